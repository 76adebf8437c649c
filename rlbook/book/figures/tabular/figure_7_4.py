"""Figure 7.4: which action values one episode changes: the last one, the last ten, or all of them.

An agent comes to the goal of a maze for the first time, and only the goal pays. All action values
were 0, so SARSA learns about the last action alone. 10-step SARSA learns about the last ten, all by
the same amount. SARSA(λ) learns about the whole way: each action value is raised by its trace,
which is the smaller the longer ago the action was. An arrow is an action value that was raised; its
area says by how much, in proportion to the largest.

Source: Sutton & Barto 2018, section 7.2, figure 7.4, and section 12.7, example 12.1. The maze is
that of example 8.1, the way through it is ours; α = 0.1, γ = 1, n = 10, λ = 0.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlbook.agent import Step
from rlbook.algorithms.tabular.control_agent import ControlAgent
from rlbook.algorithms.tabular.n_step_sarsa import NStepSarsa
from rlbook.algorithms.tabular.sarsa import Sarsa
from rlbook.algorithms.tabular.sarsa_lambda import SarsaLambda
from rlbook.book.figures.axes import cells
from rlbook.envs.gridworlds.dyna_maze import DynaMaze
from rlbook.envs.gridworlds.layouts import MOVES
from rlbook.functional.schedules import Constant
from rlbook.plots.colours import INK, PALE, fraction_rgb
from rlbook.plots.figure import new_figure, words

WAY = "URDDDRRUURRDLLDDRRRUURRUUU"
"""The agent's path from the start to the goal; it makes one loop."""
LEARNERS: dict[str, tuple[type[ControlAgent], dict[str, Any]]] = {
    "SARSA": (Sarsa, {}),
    "10-step SARSA": (NStepSarsa, {"n": 10}),
    "SARSA(λ), λ = 0.9": (SarsaLambda, {"trace_decay": 0.9, "traces": "accumulating"}),
}
ROWS, COLUMNS = 6, 9
FREE, WALL = (246, 240, 220), PALE


@dataclass(frozen=True)
class EpisodeChanges:
    """Figure 7.4."""

    way: np.ndarray  # [T + 1]: the states from the start to the goal
    taken: np.ndarray  # [T]: the actions: up, down, left, right
    # learner → [S, A]: Q after the episode, which was 0 before it, in reward units
    changed: dict[str, np.ndarray]


def run() -> EpisodeChanges:
    """Feeds the same episode to each learner, step by step."""
    steps = _episode()
    return EpisodeChanges(
        np.array([steps[0].obs, *(step.next_obs for step in steps)]),
        np.array([step.action for step in steps]),
        {name: _learn(kind, settings, steps) for name, (kind, settings) in LEARNERS.items()},
    )


def _episode() -> list[Step]:
    maze, steps = DynaMaze(), []
    state, _ = maze.reset(seed=0)
    for move in WAY:
        action = "UDLR".index(move)
        after, reward, terminated, truncated, _ = maze.step(action)
        steps.append(Step(state, action, reward, after, terminated=terminated, truncated=truncated))
        state = after
    return steps


def _learn(kind: type[ControlAgent], settings: dict[str, Any], steps: list[Step]) -> np.ndarray:
    agent = kind(DynaMaze(), kind.Config(gamma=1.0, alpha=Constant(0.1), **settings))
    agent.begin()
    for step in steps:
        agent.learn(step)
    return agent.q.copy()


def measurements(result: EpisodeChanges) -> dict[str, float]:
    """The number of action values that each learner changed, and the first change on the path
    relative to the last."""
    counts = {
        f"{name}: action values changed": float(np.count_nonzero(q))
        for name, q in result.changed.items()
    }
    q = result.changed["SARSA(λ), λ = 0.9"][result.way[:-1], result.taken]
    return counts | {
        "SARSA(λ), λ = 0.9: change of the first action over that of the last": float(q[0] / q[-1])
    }


def draw(result: EpisodeChanges) -> Figure:
    """The path, and for each learner the action values that increased."""
    figure = new_figure(9.6, 7.0)
    panels = figure.subplots(2, 2).flat
    way = np.zeros((ROWS * COLUMNS, len(MOVES)))
    way[result.way[:-1], result.taken] = 1.0
    for axes, (name, q) in zip(
        panels, {"the way of the agent": way, **result.changed}.items(), strict=True
    ):
        draw_arrows(axes, result, q, name)
    return figure


def draw_arrows(axes: Axes, result: EpisodeChanges, q: np.ndarray, title: str) -> None:
    """An arrow for each action value that increased: within its cell, its area in proportion to the
    change."""
    walls = DynaMaze().grid_walls.reshape(ROWS, COLUMNS)
    cells(axes, [[WALL if wall else FREE for wall in line] for line in walls], title)
    state, action = np.nonzero(q > 0)
    length = 0.8 * np.sqrt(q[state, action] / q.max())
    down, right = np.array(MOVES)[action].T
    # two arrows in a cell pass each other
    aside = 0.17 * (np.count_nonzero(q > 0, axis=1)[state] > 1)
    row, column = state // COLUMNS + aside * right, state % COLUMNS - aside * down
    for x, y, dx, dy, size in zip(column, row, right, down, length, strict=True):
        axes.arrow(
            x - dx * size / 2,
            y - dy * size / 2,
            dx * size,
            dy * size,
            width=0.09 * size,
            head_width=0.42 * size,
            head_length=0.42 * size,
            length_includes_head=True,
            color=fraction_rgb(INK),
            linewidth=0,
        )
    for place, letter in ((result.way[0], "S"), (result.way[-1], "G")):
        row, column = divmod(int(place), COLUMNS)
        axes.text(column - 0.36, row - 0.3, letter, ha="center", va="center", **words(fontsize=8))
