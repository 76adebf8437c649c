"""Finished episodes as stored in the log, and the seeds of resets."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

Episode = tuple[int, float, int]
"""(environment step it ended at, return in reward units, length in environment steps)"""


def draw_seed(rng: np.random.Generator) -> int:
    """Draws the seed for an environment's first reset."""
    return int(rng.integers(2**31 - 1))


def episode_table(episodes: list[Episode]) -> np.ndarray:
    """Finished episodes as rows [E, 3]; float64 represents step counts up to 2^53 exactly."""
    return np.array(episodes, dtype=np.float64).reshape(-1, 3)


def episodes_of(table: ArrayLike) -> list[Episode]:
    """The inverse of `episode_table`. Raises ValueError if the rows do not describe episodes."""
    rows = np.asarray(table, dtype=np.float64).reshape(-1, 3)
    steps, returns, lengths = rows.T
    counted = (rows[:, [0, 2]] >= 0) & (rows[:, [0, 2]] <= 2**53)
    if not (counted.all() and np.isfinite(returns).all()):
        raise ValueError("finished episodes must have a step, a finite return and a length")
    ends, lasted = steps.astype(np.int64).tolist(), lengths.astype(np.int64).tolist()
    return list(zip(ends, returns.tolist(), lasted, strict=True))
