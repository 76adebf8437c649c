"""What a stage of a recipe may call: it is given the place to write to, the recipe's seed, and what
the stage says."""

from pathlib import Path

from rlbook.runs.episode_recording import record


def record_walks(out: Path, *, episodes: int, epsilon: float, seed: int) -> dict:
    """Walks through the maze as a data set: right steps, and with the probability ε any step at
    all. Returns what the table may show."""
    return record("Maze-v0", out, episodes=episodes, policy="optimal", epsilon=epsilon, seed=seed)
