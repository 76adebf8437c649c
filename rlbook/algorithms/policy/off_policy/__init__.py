"""Actor-critics that learn from a replay buffer."""
