"""Figure 12.3: the offline λ-return algorithm beside n-step TD, on the random walk of 19 states.

λ does what n does in figure 7.2: in the middle both do best, and about equally well. Averaging all
n-step returns costs nothing.

Source: Sutton & Barto 2018, figure 12.3; averages over the first 10 episodes and 100 runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from rlbook.book.figures.long_walk import (
    ALPHAS,
    Sweep,
    draw_sweep,
    lambda_sweep,
    lowest_errors,
    n_step_sweep,
)
from rlbook.plots.figure import is_narrow, new_figure


@dataclass(frozen=True)
class LambdaReturnErrors:
    """Figure 12.3."""

    offline: Sweep  # for each λ
    n_step: Sweep  # for each n


def run(seed: int = 0, runs: int = 100, alphas: Sequence[float] = ALPHAS) -> LambdaReturnErrors:
    """λ = 0, 0.4, ..., 1, and n = 1, 2, ..., 512, on the same walks."""
    return LambdaReturnErrors(
        lambda_sweep("offline", seed, runs, alphas), n_step_sweep(seed, runs, alphas)
    )


def measurements(result: LambdaReturnErrors) -> dict[str, float]:
    """The lowest error of each λ and n, in reward units; of the best one also its standard error
    and step size."""
    return lowest_errors(result.offline, "offline λ") | lowest_errors(result.n_step, "n")


def draw(result: LambdaReturnErrors) -> Figure:
    """λ on the left, n on the right."""
    figure = new_figure(11.0, 4.8)
    left, right = figure.subplots(1, 2, sharey=True)
    draw_sweep(left, result.offline, "λ", "Offline λ-return algorithm")
    draw_sweep(right, result.n_step, "n", "n-step TD methods (figure 7.2)")
    if not is_narrow():
        right.set_ylabel("")
    return figure
