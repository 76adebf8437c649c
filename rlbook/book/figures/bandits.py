"""The agent of `rlbook.algorithms.tabular.bandit` on many problems in parallel, one row of its
tables for each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlbook.algorithms.tabular.bandit import BanditConfig, choose, empty_memory, update
from rlbook.book.figures.axes import curve_colour, label_axes, legend
from rlbook.envs.ten_armed_testbed import machine_means
from rlbook.plots.figure import new_figure
from rlbook.seeding import rng_for

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BanditAverages:
    """Averages over the problems, by learner; entry t is the step t + 1."""

    reward: dict[str, Array]  # [steps], in reward units
    optimal: dict[str, Array]  # [steps]: share of problems in which a best action was taken
    runs: int  # problems


def compare(
    learners: dict[str, BanditConfig], seed: int, runs: int, steps: int, mean: float = 0.0
) -> BanditAverages:
    """All learners on the same problems `seed`, `seed + 1`, …, with the same noise on the
    rewards."""
    means = np.stack([machine_means(problem, mean=mean) for problem in range(seed, seed + runs)])
    played = {name: play(config, means, steps, seed) for name, config in learners.items()}
    best = means.argmax(axis=1)
    return BanditAverages(
        {name: reward.mean(axis=1) for name, (reward, _) in played.items()},
        {name: (action == best).mean(axis=1) for name, (_, action) in played.items()},
        runs,
    )


def play(
    config: BanditConfig, means: Array, steps: int, seed: int
) -> tuple[Array, NDArray[np.int64]]:
    """The rewards and actions of R learners on R problems.

    Args:
        config: of all learners. ε is that of the first step.
        means: [R, A]. q*(a) of each problem, in reward units.
        steps: how many.
        seed: of the actions, and of the noise on the rewards.

    Returns:
        rewards and actions, each [steps, R].
    """
    exploration, noise = rng_for(seed, "exploration"), rng_for(seed, "environment")
    memory, rows = empty_memory(means.shape, config), np.arange(len(means))
    rewards, actions = np.empty((steps, len(means))), np.empty((steps, len(means)), dtype=np.int64)
    for step in range(steps):
        actions[step] = choose(memory, config, exploration, config.epsilon(0.0))
        rewards[step] = means[rows, actions[step]] + noise.standard_normal(len(means))
        update(memory, config, actions[step], rewards[step])
    return rewards, actions


def numbers(result: BanditAverages, *, first: int = 10) -> dict[str, float]:
    """Early and late averages of each learner: over the first steps, and over the last hundred."""
    told: dict[str, float] = {}
    for name in result.reward:
        first = min(first, len(result.reward[name]))
        told[f"{name}: reward, steps 1 to {first}"] = float(result.reward[name][:first].mean())
        told[f"{name}: reward, last 100 steps"] = float(result.reward[name][-100:].mean())
        told[f"{name}: share of optimal actions, last 100 steps"] = float(
            result.optimal[name][-100:].mean()
        )
    return told


def draw_reward(axes: Axes, result: BanditAverages) -> None:
    """Average reward against steps."""
    label_axes(axes, "Steps", "Average reward")
    for place, (name, reward) in enumerate(result.reward.items()):
        axes.plot(
            np.arange(1, len(reward) + 1),
            reward,
            color=curve_colour(place),
            linewidth=1.2,
            label=name,
        )
    axes.set_xlim(0, None)


def draw_optimal(axes: Axes, result: BanditAverages) -> None:
    """Share of optimal actions against steps."""
    label_axes(axes, "Steps", "% optimal action")
    for place, (name, share) in enumerate(result.optimal.items()):
        axes.plot(
            np.arange(1, len(share) + 1),
            100 * share,
            color=curve_colour(place),
            linewidth=1.2,
            label=name,
        )
    axes.set(xlim=(0, None), ylim=(0, 100))


def panel_figure(result: BanditAverages, panel: str) -> Figure:
    """A picture of "reward" or of "optimal", with a legend."""
    figure = new_figure(6.6, 4.2, narrow_height=4.8)
    axes = figure.subplots()
    (draw_reward if panel == "reward" else draw_optimal)(axes, result)
    legend(axes, loc="lower right")
    return figure
