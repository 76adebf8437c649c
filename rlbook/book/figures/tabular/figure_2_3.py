"""Figure 2.3: optimistic first values make a greedy learner explore.

Every machine disappoints a learner that begins with Q = 5, so it tries all of them, several times.
At first it therefore does worse than the ε-greedy learner that begins with 0; later it does better,
because it stops exploring. Both have the constant step size 0.1: with averages the first pull would
wipe the optimism out.

Source: Sutton & Barto 2018, section 2.6, figure 2.3.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rlbook.algorithms.tabular.bandit import BanditConfig
from rlbook.book.figures.bandits import BanditAverages, compare, numbers, panel_figure
from rlbook.functional.schedules import Constant


def run(seed: int = 0, runs: int = 2_000, steps: int = 1_000) -> BanditAverages:
    """Each run is a problem of its own; the book's sizes."""
    learners = {
        "optimistic, greedy: Q = 5, ε = 0": BanditConfig(
            alpha=0.1, epsilon=Constant(0.0), initial_value=5.0
        ),
        "realistic, ε-greedy: Q = 0, ε = 0.1": BanditConfig(alpha=0.1, epsilon=Constant(0.1)),
    }
    return compare(learners, seed, runs, steps)


def measurements(result: BanditAverages) -> dict[str, float]:
    """Early and late averages; and the spike, when all machines have been tried once and the best
    of them is tried again."""
    found, optimistic = numbers(result), result.optimal["optimistic, greedy: Q = 5, ε = 0"]
    if len(optimistic) > 10:
        found["optimistic: share of optimal actions at step 11"] = float(optimistic[10])
    return found


def draw(result: BanditAverages) -> Figure:
    """Share of optimal actions."""
    return panel_figure(result, "optimal")
