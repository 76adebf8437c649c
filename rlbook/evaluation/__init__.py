"""How good an agent is: greedy episodes, samples and pass@k, search, comparison, classification,
verification."""
