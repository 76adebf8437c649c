"""The number of steps until the treasure of a deep sea is found, with and without a bonus for
rarely tried actions, by counts or by random network distillation (RND).

    found = run(seeds=10)
    found.steps["with a count bonus"]            [R, K], steps to the first treasure in seas of K sizes

Q-learning acts ε-greedily in all of them; only the bonus differs. Before the first treasure every reward is
a cost, so that without a bonus the table learns to avoid the way to it, and each row makes finding
it rarer by a factor.

Source: Osband et al. 2020, arXiv:1908.03568, appendix A.6; the bonuses: Strehl & Littman 2008,
doi:10.1016/j.jcss.2007.08.009, and Burda et al. 2018, arXiv:1810.12894.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

import rlbook
from rlbook.runs.run import Run

SIZES = (4, 6, 8, 10)
LIMIT = 20_000
"""The number of steps after which the search is abandoned."""
LEARNERS: dict[str, dict[str, Any]] = {
    "ε-greedy": {},
    "with a count bonus": {"exploration_bonus": "count", "bonus_coef": 0.3},
    "with RND": {"exploration_bonus": "rnd", "bonus_coef": 1.0},
}
SETTINGS = {"alpha": 0.5, "epsilon": 0.1}
FIRST_SEED = 10


@dataclass(frozen=True)
class ExplorationSteps:
    """Steps to the first treasure, by learner."""

    sizes: NDArray[np.int64]  # [K], rows of the sea
    steps: dict[str, NDArray[np.float64]]  # [R, K]; infinite where it was not found


class FirstTreasure(gymnasium.Wrapper):
    """Records the step at which the environment first pays more than one half."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.taken, self.first = 0, np.inf

    def step(self, action: ArrayLike) -> Any:
        self.taken += 1
        result = self.env.step(action)
        if float(result[1]) > 0.5:
            self.first = min(self.first, self.taken)
        return result


def run(
    seeds: int = 10, *, sizes: tuple[int, ...] = SIZES, limit: int = LIMIT, first: int = FIRST_SEED
) -> ExplorationSteps:
    """Runs all learners in a sea of each size with each seed, which also draws the sea's
    actions."""
    numbers = range(first, first + seeds)
    return ExplorationSteps(
        np.array(sizes),
        {
            name: np.array(
                [[steps_to_treasure(size, seed, limit, more) for size in sizes] for seed in numbers]
            )
            for name, more in LEARNERS.items()
        },
    )


def steps_to_treasure(size: int, seed: int, limit: int, more: dict[str, Any]) -> float:
    """Steps of Q-learning until the first treasure; infinite beyond the limit."""
    env = FirstTreasure(rlbook.make("DeepSea-v0", size=size, seed=seed))

    def stop(run: Run) -> str | None:
        return "stop" if np.isfinite(env.first) else None

    rlbook.train(
        "q_learning", env, steps=limit, seed=seed, eval_every=0, on_report=stop, **SETTINGS, **more
    )
    return float(env.first)


def measurements(result: ExplorationSteps) -> dict[str, float]:
    """Medians over the seeds, where more than half of them found it, and how many did."""
    return {
        f"{name}, {size} rows: steps to the first treasure": float(np.median(steps[:, column]))
        for name, steps in result.steps.items()
        for column, size in enumerate(result.sizes)
        if np.isfinite(np.median(steps[:, column]))
    } | {
        f"{name}, {size} rows: seeds that found it": float(np.isfinite(steps[:, column]).sum())
        for name, steps in result.steps.items()
        for column, size in enumerate(result.sizes)
    }


def draw(result: ExplorationSteps) -> Figure:
    """Steps over the size, a point for each seed that found it, and a line through the medians."""
    from rlbook.book.figures.axes import curve_colour, labelled_figure, legend

    figure, axes = labelled_figure(6.4, 4.0, "rows of the sea", "steps to the first treasure")
    for place, (name, steps) in enumerate(result.steps.items()):
        colour, middle = curve_colour(place), np.median(steps, axis=0)
        there = np.isfinite(middle)
        axes.plot(result.sizes[there], middle[there], color=colour, label=name)
        aside = result.sizes + 0.15 * (place - 1)  # points of different learners beside each other
        for row in steps:
            axes.plot(aside, np.where(np.isfinite(row), row, np.nan), ".", color=colour)
    chance = result.sizes * 2.0**result.sizes
    axes.plot(result.sizes, chance, color="0.5", linestyle="--", label="random actions: n 2ⁿ")
    axes.set(yscale="log", xticks=result.sizes, xticklabels=[str(size) for size in result.sizes])
    legend(axes, "lower right")
    return figure
