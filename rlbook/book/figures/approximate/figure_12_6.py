"""Figure 12.6: TD(λ) with accumulating traces beside the offline λ-return algorithm that it
approximates, on the walk of 19 states.

Up to the step sizes that are best both do about equally well. With larger ones TD(λ) is the worse
of the two, and the larger λ the sooner: a state that is visited often has a trace of more than 1,
its error is corrected more than once, and the values diverge.

Source: Sutton & Barto 2018, figure 12.6; averages over the first 10 episodes and 100 runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from rlbook.book.figures.long_walk import ALPHAS, Sweep, draw_sweep, lambda_sweep, lowest_errors
from rlbook.plots.figure import is_narrow, new_figure


@dataclass(frozen=True)
class TDLambdaErrors:
    """Figure 12.6."""

    accumulating: Sweep  # for each λ
    offline: Sweep  # for each λ


def run(seed: int = 0, runs: int = 100, alphas: Sequence[float] = ALPHAS) -> TDLambdaErrors:
    """λ = 0, 0.4, ..., 1, both on the same walks."""
    return TDLambdaErrors(
        lambda_sweep("accumulating", seed, runs, alphas),
        lambda_sweep("offline", seed, runs, alphas),
    )


def measurements(result: TDLambdaErrors) -> dict[str, float]:
    """The lowest error of each λ, in reward units; of the best one also its standard error and step
    size."""
    return lowest_errors(result.accumulating, "TD(λ), λ") | lowest_errors(
        result.offline, "offline λ"
    )


def draw(result: TDLambdaErrors) -> Figure:
    """TD(λ) on the left."""
    figure = new_figure(11.0, 4.8)
    left, right = figure.subplots(1, 2, sharey=True)
    draw_sweep(left, result.accumulating, "λ", "TD(λ), accumulating traces")
    draw_sweep(right, result.offline, "λ", "Offline λ-return algorithm (figure 12.3)")
    if not is_narrow():
        right.set_ylabel("")
    return figure
