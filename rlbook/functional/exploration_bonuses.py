"""Bonuses for rarely taken steps, added to the environment's reward."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def count_bonus(count: ArrayLike, coef: float) -> NDArray[np.float64]:
    """The bonus of an action that was taken n times in its state.

    b = β / √n

    The mean of n rewards is off by about 1/√n. With the bonus as the width of its interval the
    value is optimistic until the pair is known; β then has the size of a return.

    Args:
        count: n ≥ 1, any shape; how often the pair was taken, this step included.
        coef: β ≥ 0, in reward units.

    Returns:
        The same shape, in reward units.

    Source: Strehl & Littman 2008, doi:10.1016/j.jcss.2007.08.009, section 3.2 (MBIE-EB), where the
    bonus stands in the Bellman equation of a model.
    """
    return coef / np.sqrt(np.asarray(count, dtype=np.float64))
