"""The standard error of a mean over runs, and half of its 95 % interval."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rlbook.functional.intervals import t_interval


def standard_error(values: NDArray[np.floating]) -> float:
    """The standard error of the mean of [R] runs, in their unit: s / √R with R - 1 degrees of
    freedom; NaN for a single run."""
    runs = len(values)
    return float(values.std(ddof=1) / math.sqrt(runs)) if runs > 1 else math.nan


def half_interval(values: NDArray[np.floating]) -> float:
    """Half of the 95 % interval (Student's t) for the mean of [R] runs, in their unit; NaN for a
    single run."""
    low, high = t_interval(values)
    return (high - low) / 2 if len(values) > 1 else math.nan
