"""Dyna-Q and Dyna-Q+ in a maze whose walls change during training: the experiment of figures 8.4
and 8.5.

Each map is a table of its own with the same cells, so that learning goes on in the second where it
was in the first: the interaction of the second takes over the cell, the age and the generators. It
is what `rlbook.train` does in the environment itself, to the bit.

The book does not say what the hyper-parameters were. Here α = 1, since nothing in these mazes is
left to chance; κ = 7e-4, ε = 0.1, γ = 0.95, Q from 0, and 10 steps of planning.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlbook.algorithms.model_based.dyna_q import DynaQ, DynaQConfig
from rlbook.algorithms.model_based.dyna_q_plus import DynaQPlus, DynaQPlusConfig
from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.book.figures.axes import cells, curve_colour, label_axes, legend
from rlbook.envs.gridworlds.dyna_maze import MAPS, DynaMaze
from rlbook.envs.gridworlds.grids import parse_grid
from rlbook.envs.gridworlds.layouts import GOAL, START, WALL
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.fast.tabular.table_interaction import TableInteraction
from rlbook.functional.schedules import Constant
from rlbook.interaction.budget import Budget
from rlbook.plots.colours import GREY, PALE, fraction_rgb
from rlbook.plots.figure import is_narrow, new_figure, words
from rlbook.seeding import rng_for


@dataclass(frozen=True)
class ChangingMazeRewards:
    """The results in a changing maze."""

    variant: str  # of `DynaMaze`
    # algorithm → [runs, steps + 1] int: episodes that had reached the goal by each step
    rewards: dict[str, np.ndarray]
    change_at: int  # the step after which the walls stand elsewhere


SHARED: dict[str, Any] = {
    "gamma": 0.95,
    "alpha": Constant(1.0),
    "epsilon": Constant(0.1),
    "planning_steps": 10,
}
LEARNERS: dict[str, tuple[type[ControlAgent], Any]] = {
    "Dyna-Q+": (DynaQPlus, DynaQPlusConfig(kappa=7e-4, **SHARED)),
    "Dyna-Q": (DynaQ, DynaQConfig(**SHARED)),
}
"""Name → algorithm and hyper-parameters."""


def compare(variant: str, seed: int, runs: int, steps: int) -> ChangingMazeRewards:
    """Learns with seeds `seed`, `seed + 1`, ..., each for `steps` steps."""
    maze, rewards = DynaMaze(variant), {}
    for name, (kind, config) in LEARNERS.items():
        rewards[name] = np.array(
            [goals(kind, config, maze, seed + index, steps) for index in range(runs)]
        )
    return ChangingMazeRewards(variant, rewards, int(maze.change_at or 0))


def goals(
    kind: type[ControlAgent], config: ControlConfig, maze: DynaMaze, seed: int, steps: int
) -> np.ndarray:
    """[steps + 1]: how often one learner has reached the goal by each step."""
    phases, budget = maze.phases, Budget(steps, None)
    agent = kind(TabularEnv(phases[0][1]), config, seed)
    interaction = TableInteraction(phases[0][1], rng_for(seed, "environment"))
    interaction.start()
    agent.begin()
    for until, model in phases:
        after = TableInteraction(model, rng_for(seed, "environment"))
        after.load_state_dict(interaction.state_dict())
        interaction, last = after, min(steps, until or steps)
        interaction.marks = steps // gcd(steps, last)  # a chunk ends at the change
        while interaction.steps < last:
            interaction.advance(agent, budget)
    reached = np.zeros(steps + 1, dtype=np.int64)
    reached[[episode[0] for episode in interaction.finished]] = 1
    return reached.cumsum()


def goal_counts(result: ChangingMazeRewards, name: str, first: int, last: int) -> np.ndarray:
    """[runs]: how often the goal was reached after step `first` and up to step `last`."""
    return result.rewards[name][:, last] - result.rewards[name][:, first]


def draw(result: ChangingMazeRewards) -> Figure:
    """Cumulative rewards, and both mazes beside them, or below."""
    figure = new_figure(8.6, 4.4, narrow_height=5.2)
    if is_narrow():
        places = figure.add_gridspec(2, 2, height_ratios=[2.6, 1])
        curves, before, after = places[0, :], places[1, 0], places[1, 1]
    else:
        places = figure.add_gridspec(2, 2, width_ratios=[2.6, 1])
        curves, before, after = places[:, 0], places[0, 1], places[1, 1]
    draw_rewards(figure.add_subplot(curves), result)
    draw_mazes(figure.add_subplot(before), figure.add_subplot(after), result)
    return figure


def draw_rewards(axes: Axes, result: ChangingMazeRewards) -> None:
    """Cumulative reward over steps, both algorithms, with the mazes before and after."""
    label_axes(axes, "Time steps", "Cumulative reward")
    for place, (name, rewards) in enumerate(result.rewards.items()):
        axes.plot(rewards.mean(axis=0), color=curve_colour(place), linewidth=1.7, label=name)
    steps = next(iter(result.rewards.values())).shape[1] - 1
    axes.axvline(result.change_at, color=fraction_rgb(GREY), linestyle="--", linewidth=1.1)
    axes.set(xlim=(0, steps), ylim=(0, None))
    legend(axes, loc="lower right")


def draw_mazes(before: Axes, after: Axes, result: ChangingMazeRewards) -> None:
    """Both maps, with start and goal."""
    for axes, text, title in zip(
        (before, after), MAPS[result.variant], ("before", "after"), strict=True
    ):
        marks = parse_grid(text)
        cells(axes, [[GREY if mark == WALL else PALE for mark in row] for row in marks], title)
        for (row, column), mark in np.ndenumerate(marks):
            if mark in (START, GOAL):
                axes.text(column, row, mark, ha="center", va="center", **words(fontsize=9))
