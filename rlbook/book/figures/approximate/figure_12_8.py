"""Figure 12.8: the online λ-return algorithm, which is true online TD(λ), beside the offline one,
on the walk of 19 states.

The online algorithm learns during the episode, from λ-returns cut off at the present step, and does
a little better. It tolerates step sizes that make accumulating traces diverge. Replacing traces,
the older cure, tolerate them too.

Source: Sutton & Barto 2018, figure 12.8, section 12.5; averages over the first 10 episodes and 100
runs. The lower panels, TD(λ) with accumulating and with replacing traces on the same walks, are
ours.

At λ = 1 the two are one: what is learned in an episode is then the same at its end. At λ = 0 they
are not, since within an episode the online algorithm, which is TD(0), uses what it has just
learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from rlbook.book.figures.long_walk import ALPHAS, Sweep, draw_sweep, lambda_sweep, lowest_errors
from rlbook.plots.figure import is_narrow, new_figure, words

PANELS = {
    "true-online": "Online λ-return: true online TD(λ)",
    "offline": "Offline λ-return",
    "accumulating": "TD(λ), accumulating traces",
    "replacing": "TD(λ), replacing traces",
}


@dataclass(frozen=True)
class OnlineLambdaReturnErrors:
    """Figure 12.8."""

    errors: dict[str, Sweep]  # traces → for each λ


def run(
    seed: int = 0, runs: int = 100, alphas: Sequence[float] = ALPHAS
) -> OnlineLambdaReturnErrors:
    """λ = 0, 0.4, ..., 1, all four on the same walks."""
    return OnlineLambdaReturnErrors(
        {traces: lambda_sweep(traces, seed, runs, alphas) for traces in PANELS}
    )


def measurements(result: OnlineLambdaReturnErrors) -> dict[str, float]:
    """The lowest error of each λ, in reward units; of the best one also its standard error and step
    size."""
    return {
        name: value
        for traces, sweep in result.errors.items()
        for name, value in lowest_errors(sweep, f"{traces} λ").items()
    }


def draw(result: OnlineLambdaReturnErrors) -> Figure:
    """The book's two panels above, the two common forms of TD(λ) below."""
    figure = new_figure(7.4, 5.7)
    panels = figure.subplots(2, 2, sharey=True)
    for axes, (traces, title) in zip(panels.flat, PANELS.items(), strict=True):
        draw_sweep(axes, result.errors[traces], "λ", title, wide=3.6)
        if not is_narrow():
            axes.set_xlabel("Step size α" if axes in panels[1] else "", **words(fontsize=10))
        leftmost = is_narrow() or axes in panels[:, 0]
        axes.set_ylabel("RMS error, first 10 episodes" if leftmost else "", **words(fontsize=10))
    return figure
