"""Figure 8.4: Dyna-Q and Dyna-Q+ in the blocking maze: the way is closed after 1000 steps, and a
longer one opens on the other side.

Both models are wrong then and lead into a wall. What is planned with them shows it soon, and the
agents stop believing them; but to come upon the other gap Dyna-Q has its ε = 0.1 alone, and in
about four runs of ten 2000 steps are too few. Dyna-Q+ goes and looks.

Source: Sutton & Barto 2018, example 8.2, figure 8.4; the hyper-parameters are in `changing_maze`.
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

__all__ = ["ChangingMazeRewards", "draw", "measurements", "run"]


def run(seed: int = 0, runs: int = 100, steps: int = 3_000) -> ChangingMazeRewards:
    """Each run has its own seed, the same for both."""
    return compare("blocking", seed, runs, steps)


def measurements(result: ChangingMazeRewards) -> dict[str, float]:
    """Cumulative reward at the change and at the end, and the share of runs that have found the new
    path by then."""
    numbers: dict[str, float] = {}
    change = min(result.change_at, next(iter(result.rewards.values())).shape[1] - 1)
    for name, rewards in result.rewards.items():
        numbers[f"{name}, cumulative reward at the change"] = float(rewards[:, change].mean())
        numbers[f"{name}, cumulative reward at the end"] = float(rewards[:, -1].mean())
        numbers[f"{name}, standard error at the end"] = standard_error(rewards[:, -1])
        numbers[f"{name}, share of runs that found the new way"] = float(
            (goal_counts(result, name, change, -1) > 0).mean()
        )
    return numbers
