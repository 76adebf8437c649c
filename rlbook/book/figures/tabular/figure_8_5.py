"""Figure 8.5: Dyna-Q and Dyna-Q+ in the shortcut maze: after 3000 steps a shorter way opens, and
the old one remains.

Nothing tells Dyna-Q: the world does what its model says, wherever it goes. Steps taken at random
hardly ever lead as far from the known way as the new gap is. Dyna-Q+ looks after everything from
time to time, and so finds it.

Source: Sutton & Barto 2018, example 8.3, figure 8.5; the hyper-parameters are in `changing_maze`.
The book says nothing of the number of runs; here 100.
"""

from __future__ import annotations

from rlbook.book.figures.changing_maze import (
    ChangingMazeRewards,
    compare,
    draw,
    goal_counts,
)
from rlbook.book.figures.standard_error import standard_error

__all__ = ["ChangingMazeRewards", "draw", "measurements", "run", "shortcut_share"]

OLD_WAY = 16
"""The length of the old path: keeping to it reaches the goal at most 1000 / 16 = 62.5 times in 1000
steps."""
LAST = 1_000
"""The number of final steps in which the agent's path is determined."""


def run(seed: int = 0, runs: int = 100, steps: int = 6_000) -> ChangingMazeRewards:
    """Each run has its own seed, the same for both."""
    return compare("shortcut", seed, runs, steps)


def shortcut_share(result: ChangingMazeRewards, name: str) -> float:
    """The share of runs that reach the goal more often, in the last steps, than is possible on the
    old path."""
    steps = result.rewards[name].shape[1] - 1
    first = max(0, steps - LAST)
    return float((goal_counts(result, name, first, steps) > -(-(steps - first) // OLD_WAY)).mean())


def measurements(result: ChangingMazeRewards) -> dict[str, float]:
    """Cumulative reward at the change and at the end, and the share of runs that finally take the
    new path."""
    numbers: dict[str, float] = {}
    for name, rewards in result.rewards.items():
        numbers[f"{name}, cumulative reward at the change"] = float(
            rewards[:, min(result.change_at, rewards.shape[1] - 1)].mean()
        )
        numbers[f"{name}, cumulative reward at the end"] = float(rewards[:, -1].mean())
        numbers[f"{name}, standard error at the end"] = standard_error(rewards[:, -1])
        numbers[f"{name}, share of runs that found the shortcut"] = shortcut_share(result, name)
    return numbers
