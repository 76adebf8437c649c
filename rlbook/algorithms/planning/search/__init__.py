"""Planning by search: trees of simulated steps from the present state, and what guides them."""
