"""Figure 11.2: semi-gradient TD on Baird's counterexample, off-policy; the weights grow without
bound.

On the left along one stream of the behaviour, on the right by mean updates of all states at once,
as in dynamic programming: chance is not the cause.

Source: Sutton & Barto 2018, section 11.2, figure 11.2; α = 0.01, γ = 0.99, and the weights begin as
in the book.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from rlbook.book.experiments.baird import FIRST_WEIGHTS, baird_features, stream, stream_td, system
from rlbook.book.figures.weights_over_time import WeightHistory, numbers, picture

ALPHA = 0.01


def run(seed: int = 0, steps: int = 1_000) -> WeightHistory:
    """As many sweeps as steps."""
    x, (a, b, _) = baird_features(), system(baird_features())
    sweeps = [FIRST_WEIGHTS]
    for _ in range(steps):
        sweeps.append(sweeps[-1] + ALPHA * (b - a @ sweeps[-1]))
    return WeightHistory(
        stream_td(x, FIRST_WEIGHTS, stream(steps, seed), alpha=ALPHA), np.array(sweeps)
    )


def measurements(result: WeightHistory) -> dict[str, float]:
    """The last weights."""
    return numbers(result)


def draw(result: WeightHistory) -> Figure:
    """Steps beside sweeps."""
    return picture(
        result, "semi-gradient off-policy TD", "the same in expectation", with_errors=False
    )
