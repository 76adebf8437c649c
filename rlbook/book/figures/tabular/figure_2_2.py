"""Figure 2.2: ε-greedy learners with averages of the rewards on the test bed of ten machines.

A learner that never explores settles on the first machine that seems good, which is the best in
about a third of the problems. ε = 0.1 finds the best sooner than 0.01, and then takes it in at most
91 % of its steps; ε = 0.01 will be better in the long run.

Source: Sutton & Barto 2018, section 2.3, figure 2.2.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rlbook.algorithms.tabular.bandit import BanditConfig
from rlbook.book.figures.axes import legend
from rlbook.book.figures.bandits import BanditAverages, compare, draw_optimal, draw_reward, numbers
from rlbook.functional.schedules import Constant
from rlbook.plots.figure import new_figure


def run(seed: int = 0, runs: int = 2_000, steps: int = 1_000) -> BanditAverages:
    """Each run is a problem of its own; the book's sizes."""
    names = {0.1: "ε = 0.1", 0.01: "ε = 0.01", 0.0: "ε = 0 (greedy)"}
    return compare(
        {name: BanditConfig(epsilon=Constant(epsilon)) for epsilon, name in names.items()},
        seed,
        runs,
        steps,
    )


def measurements(result: BanditAverages) -> dict[str, float]:
    """Early and late averages."""
    return numbers(result)


def draw(result: BanditAverages) -> Figure:
    """Average reward above, share of optimal actions below."""
    figure = new_figure(6.6, 6.6)
    above, below = figure.subplots(2, 1)
    draw_reward(above, result)
    draw_optimal(below, result)
    legend(above, loc="lower right")
    return figure
