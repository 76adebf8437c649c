"""Parses the arguments of a vector environment's reset: which environments to reset, and their
seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> np.ndarray:
    """`options["reset_mask"]` [N] bool, default all. Raises ValueError for anything else."""
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, dtype=bool)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != bool:
        raise ValueError(
            f"reset_mask must be {num_envs} booleans, got an array of shape {mask.shape} and type"
            f" {mask.dtype}."
        )
    return mask


def seed_list(seed: int | Sequence[int | None], num_envs: int) -> Sequence[int | None]:
    """One seed per environment; an integer seeds them consecutively. Raises ValueError for a list
    of the wrong length."""
    if isinstance(seed, int | np.integer):
        return [int(seed) + index for index in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(
            f"seed must be an integer or a list of {num_envs}, one for each environment, got"
            f" {len(seed)}."
        )
    return seed
