"""The figures of chapters 2 to 8 of Sutton and Barto: tabular solution methods."""
