"""Figure 6.4: SARSA and Q-learning beside a cliff, α = 0.5, ε = 0.1, γ = 1.

Q-learning learns the values of the shortest path, along the edge, and it falls while exploring: 13
steps, but about -50 an episode. SARSA learns what its steps are worth with exploration included,
keeps away from the edge, and loses about half as much.

Source: Sutton & Barto 2018, example 6.6 with its unnumbered figure on page 132. The book says
neither how many runs are averaged nor how the curves are smoothed: here 100 runs and the mean of 10
episodes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlbook.book.figures.axes import cells, curve_colour, label_axes, legend
from rlbook.book.figures.cliff import (
    COLUMNS,
    GOAL,
    LEARNERS,
    ROWS,
    START,
    cliff_model,
    greedy_way,
    settings,
)
from rlbook.book.figures.learners import learners
from rlbook.book.figures.standard_error import standard_error
from rlbook.plots.colours import INK, fraction_rgb
from rlbook.plots.figure import new_figure, words

ALPHA = 0.5
NAMES = ("SARSA", "Q-learning")
LAST = 100
"""The number of final episodes that measure what has been learned."""
CLIFF = (150, 152, 156)
SMOOTH = 10
"""The number of episodes per point of a curve."""


@dataclass(frozen=True)
class CliffReturns:
    """Figure 6.4."""

    returns: dict[str, np.ndarray]  # algorithm → [runs, episodes]: sum of rewards, in reward units
    # algorithm → a run's greedy way, cell after cell, where it reaches the goal
    ways: dict[str, list[tuple[int, ...]]]


def run(seed: int = 0, runs: int = 100, episodes: int = 500) -> CliffReturns:
    """Learns with seeds `seed`, `seed + 1`, ..."""
    returns, ways = {}, {}
    for name in NAMES:
        kind, found = LEARNERS[name], []
        rows = np.empty((runs, episodes))
        for row, (agent, finished) in zip(
            rows,
            learners(
                kind, settings(kind, ALPHA), cliff_model(), episodes=episodes, runs=runs, seed=seed
            ),
            strict=True,
        ):
            row[:] = finished[:, 0]
            found.append(tuple(greedy_way(agent.greedy_policy())))
        returns[name], ways[name] = rows, [way for way in found if way[-1] == GOAL]
    return CliffReturns(returns, ways)


def measurements(result: CliffReturns) -> dict[str, float]:
    """Mean sum of rewards of the last 100 episodes with its standard error over runs; the median
    length of the greedy path, in steps."""
    numbers: dict[str, float] = {}
    for name in NAMES:
        each = result.returns[name][:, -LAST:].mean(axis=1)
        numbers[f"{name}, return of the last {LAST} episodes"] = float(each.mean())
        numbers[f"{name}, standard error"] = standard_error(each)
        lengths = [len(way) - 1 for way in result.ways[name]]
        numbers[f"{name}, greedy steps to the goal (median)"] = (
            float(np.median(lengths)) if lengths else float("nan")
        )
        numbers[f"{name}, share of runs whose greedy way ends"] = len(lengths) / len(each)
    return numbers


def draw(result: CliffReturns) -> Figure:
    """The cliff with each method's most frequent path, and the curves."""
    figure = new_figure(6.6, 6.0)
    top, bottom = figure.subplots(2, 1, height_ratios=[1, 2.0])
    _draw_ways(top, result)
    label_axes(bottom, "Episodes", "Sum of rewards during episode")
    for place, name in enumerate(NAMES):
        mean = result.returns[name].mean(axis=0)
        smooth = (
            np.convolve(mean, np.full(SMOOTH, 1 / SMOOTH), mode="valid")
            if len(mean) >= SMOOTH
            else mean
        )
        bottom.plot(
            np.arange(len(smooth)) + len(mean) - len(smooth) + 1,
            smooth,
            color=curve_colour(place),
            linewidth=1.6,
            label=name,
        )
    bottom.set(ylim=(-100, -10), xlim=(0, result.returns[NAMES[0]].shape[1]))
    legend(bottom, loc="lower right")
    return figure


def _draw_ways(axes: Axes, result: CliffReturns) -> None:
    ground = [[(250, 248, 240)] * COLUMNS for _ in range(ROWS)]
    cells(axes, ground, "The most frequent greedy path")
    for place, name in enumerate(NAMES):
        if result.ways[name]:
            way = np.array(Counter(result.ways[name]).most_common(1)[0][0])
            row, column = np.divmod(way, COLUMNS)
            axes.plot(
                column + 0.08 * place,
                row + 0.08 * place,
                color=curve_colour(place),
                linewidth=2.2,
                solid_joinstyle="round",
            )
    axes.fill_between(
        [0.53, COLUMNS - 1.53], 2.53, 3.5, color=fraction_rgb(CLIFF), linewidth=0, zorder=3
    )
    axes.text(
        5.5, 3, "The cliff", ha="center", va="center", zorder=4, **words(color="white", fontsize=11)
    )
    for state, letter in ((START, "S"), (GOAL, "G")):
        row, column = divmod(state, COLUMNS)
        axes.text(
            column - 0.3,
            row + 0.25,
            letter,
            ha="center",
            va="center",
            **words(fontsize=11, color=fraction_rgb(INK)),
        )
