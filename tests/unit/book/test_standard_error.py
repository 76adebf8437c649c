"""The standard error and the interval that are printed beside a mean over runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from closeness import near

from rlbook.book.figures.standard_error import half_interval, standard_error


def test_the_standard_error_is_that_of_a_mean_and_of_one_run_unknown() -> None:
    # squares around the mean 2.5: 2.25 + 0.25 + 0.25 + 2.25 = 5, of 3 degrees of freedom
    assert standard_error(np.array([1.0, 2.0, 3.0, 4.0])) == near(
        math.sqrt(5 / 3) / math.sqrt(4), dtype="float64", terms=4
    )
    assert math.isnan(standard_error(np.array([1.0])))


def test_the_interval_of_two_runs_by_hand_and_of_one_run_unknown() -> None:
    """With one degree of freedom t is tan(0.475 π); the standard error of 0 and 1 is 1/2."""
    # SciPy before 1.17 finds a quantile of t to ten digits
    half = pytest.approx(math.tan(0.475 * math.pi) / 2, rel=1e-10)
    assert half_interval(np.array([0.0, 1.0])) == half
    assert math.isnan(half_interval(np.array([1.0])))
