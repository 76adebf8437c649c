"""Evaluation of agents: greedy episodes, samples and pass@k, search, comparison, classification,
verification."""
