"""Figure 11.5: TD with gradient correction (TDC) on Baird's counterexample; it converges.

The projected Bellman error goes to 0, which is what TDC descends. The value error does not yet: the
weights are far from what would make all values 0, and approach it very slowly.

Source: Sutton & Barto 2018, section 11.7, figure 11.5; α = 0.005, β = 0.05, γ = 0.99.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from rlbook.book.experiments.baird import FIRST_WEIGHTS, baird_features, stream, stream_tdc, system
from rlbook.book.figures.weights_over_time import WeightHistory, numbers, picture
from rlbook.functional.linear_td import mean_tdc_update

ALPHA, BETA = 0.005, 0.05


def run(seed: int = 0, steps: int = 1_000) -> WeightHistory:
    """As many sweeps as steps."""
    x, mean = baird_features(), system(baird_features())
    sweeps, helper = [FIRST_WEIGHTS], np.zeros_like(FIRST_WEIGHTS)
    for _ in range(steps):
        weights, helper = mean_tdc_update(mean, sweeps[-1], helper, alpha=ALPHA, beta=BETA)
        sweeps.append(weights)
    return WeightHistory(
        stream_tdc(x, FIRST_WEIGHTS, stream(steps, seed), alpha=ALPHA, beta=BETA), np.array(sweeps)
    )


def measurements(result: WeightHistory) -> dict[str, float]:
    """The last weights."""
    return numbers(result)


def draw(result: WeightHistory) -> Figure:
    """Steps beside sweeps, with both errors."""
    return picture(result, "TDC", "TDC in expectation", with_errors=True)
