"""Figure 2.5: gradient bandits with and without a baseline, where the means lie around 4 instead of
0.

Without a baseline nearly every reward is a large positive number, so whatever is pulled is made
more likely, and the learner settles before it knows. With the mean reward as the baseline the
height of the rewards makes no difference at all.

Source: Sutton & Barto 2018, section 2.8, figure 2.5.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rlbook.algorithms.tabular.bandit import BanditConfig
from rlbook.book.figures.bandits import BanditAverages, compare, numbers, panel_figure

MEAN = 4.0
"""The centre of the machines' means, in reward units."""


def run(seed: int = 0, runs: int = 2_000, steps: int = 1_000) -> BanditAverages:
    """Each run is a problem of its own; the book's sizes."""
    learners = {
        f"{'with' if baseline else 'without'} baseline, α = {alpha:g}": BanditConfig(
            "gradient", alpha, baseline=baseline
        )
        for baseline in (True, False)
        for alpha in (0.1, 0.4)
    }
    return compare(learners, seed, runs, steps, MEAN)


def measurements(result: BanditAverages) -> dict[str, float]:
    """Early and late averages."""
    return numbers(result)


def draw(result: BanditAverages) -> Figure:
    """Share of optimal actions."""
    return panel_figure(result, "optimal")
