"""The standard error of a mean over runs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def standard_error(values: NDArray[np.floating]) -> float:
    """The standard error of the mean of [R] runs, in their unit: s / √R with R - 1 degrees of
    freedom; NaN for a single run."""
    runs = len(values)
    return float(values.std(ddof=1) / math.sqrt(runs)) if runs > 1 else math.nan
