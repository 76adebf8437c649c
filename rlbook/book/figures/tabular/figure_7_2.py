"""Figure 7.2: n-step TD on the random walk of 19 states, for each step size and each n.

Neither TD(0) nor Monte Carlo is best but something in between, here n = 4: the more steps, the less
a target depends on V, which is wrong at first, and the more on what happened to happen.

Source: Sutton & Barto 2018, example 7.1, figure 7.2; averages over the first 10 episodes and, as
there, 100 runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from rlbook.book.figures.long_walk import ALPHAS, Sweep, draw_sweep, lowest_errors, n_step_sweep
from rlbook.plots.figure import new_figure


@dataclass(frozen=True)
class NStepErrors:
    """Figure 7.2."""

    errors: Sweep  # for each n


def run(seed: int = 0, runs: int = 100, alphas: Sequence[float] = ALPHAS) -> NStepErrors:
    """n = 1, 2, 4, ..., 512."""
    return NStepErrors(n_step_sweep(seed, runs, alphas))


def measurements(result: NStepErrors) -> dict[str, float]:
    """The lowest error of each n, in reward units; of the best one also its standard error and step
    size."""
    return lowest_errors(result.errors, "n")


def draw(result: NStepErrors) -> Figure:
    """A curve for each n."""
    figure = new_figure(7.2, 5.2)
    draw_sweep(figure.subplots(), result.errors, "n")
    return figure
