"""The random walk of five states, A to E, on which prediction methods are compared."""

from __future__ import annotations

import numpy as np

from rlbook.envs.random_walk import RandomWalk
from rlbook.envs.tabular.mdp import TabularMDP

LENGTH = 5
EXACT = np.arange(1, LENGTH + 1) / (LENGTH + 1)
"""[5]: V of A to E, the probability of leaving on the right."""
BEFORE = 0.5
"""V before the first episode."""


def walk_model() -> TabularMDP:
    """S = 7: both ends, and A to E as states 1 to 5."""
    return RandomWalk(LENGTH).model()


def root_mean_square_error(curves: np.ndarray) -> np.ndarray:
    """The error of V, averaged over the five states.

    Args:
        curves: [runs, E, 7], values after each episode.

    Returns:
        [runs, E], in reward units.
    """
    return np.sqrt(((curves[:, :, 1 : LENGTH + 1] - EXACT) ** 2).mean(axis=2))
