"""The figures of chapters 9 to 13 of Sutton and Barto: approximate solution methods."""
