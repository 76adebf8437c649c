"""The standard error that figures print beside a mean over runs."""

from __future__ import annotations

import math

import numpy as np
from closeness import near

from rlbook.book.figures.standard_error import standard_error


def test_the_standard_error_is_that_of_a_mean_and_of_one_run_unknown() -> None:
    # squares around the mean 2.5: 2.25 + 0.25 + 0.25 + 2.25 = 5, of 3 degrees of freedom
    assert standard_error(np.array([1.0, 2.0, 3.0, 4.0])) == near(
        math.sqrt(5 / 3) / math.sqrt(4), dtype="float64", terms=4
    )
    assert math.isnan(standard_error(np.array([1.0])))
