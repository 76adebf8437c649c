"""Figure 2.4: action selection by an upper confidence bound.

UCB first pulls each machine once, in random order. At step 11 it takes the one that paid most,
which explains the spike; then that one's bound has shrunk, and others are tried. Afterwards it
earns more than ε-greedy, because it explores those machines whose value is uncertain rather than
any.

Source: Sutton & Barto 2018, section 2.7, figure 2.4.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rlbook.algorithms.tabular.bandit import BanditConfig
from rlbook.book.figures.bandits import BanditAverages, compare, numbers, panel_figure
from rlbook.functional.schedules import Constant


def run(seed: int = 0, runs: int = 2_000, steps: int = 1_000) -> BanditAverages:
    """Each run is a problem of its own; the book's sizes."""
    learners = {
        "UCB, c = 2": BanditConfig(method="ucb", confidence=2.0),
        "ε-greedy, ε = 0.1": BanditConfig(epsilon=Constant(0.1)),
    }
    return compare(learners, seed, runs, steps)


def measurements(result: BanditAverages) -> dict[str, float]:
    """Early and late averages, and the spike of UCB."""
    found, ucb = numbers(result), result.reward["UCB, c = 2"]
    if len(ucb) > 10:
        found["UCB: reward at step 11"] = float(ucb[10])
    return found


def draw(result: BanditAverages) -> Figure:
    """Average reward."""
    return panel_figure(result, "reward")
