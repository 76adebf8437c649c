"""Figure 8.2: Dyna-Q in a maze, with 0, 5 and 50 steps of planning after each real one.

Without planning an episode teaches one step of the way, the last one that was not known. With
50 steps of planning the whole way is known after two episodes, with 5 after four: the model says
what the maze does, so that the way need not be walked again.

Source: Sutton & Barto 2018, example 8.1, figure 8.2: α = 0.1, ε = 0.1, γ = 0.95, Q from 0, 30 runs.
There all three have the same first episode; here planning draws from the same generator, and the
first episodes have only the same distribution, Q being 0 until the goal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.algorithms.model_based.dyna_q import DynaQ, DynaQConfig
from rlbook.book.figures.axes import curve_colour, labelled_figure, legend
from rlbook.book.figures.learners import learners
from rlbook.envs.gridworlds.dyna_maze import DynaMaze
from rlbook.functional.schedules import Constant
from rlbook.plots.colours import GREY, fraction_rgb
from rlbook.plots.figure import words

PLANNING_STEPS = (0, 5, 50)
SHORTEST = 14
LAST = 10
"""The number of final episodes that measure what has been learned."""
NEAR = 2 * SHORTEST
"""The number of steps within which an episode counts as having found the path; exploration costs
some."""


@dataclass(frozen=True)
class DynaEpisodeLengths:
    """Figure 8.2."""

    lengths: dict[int, np.ndarray]  # planning steps → [runs, episodes]: steps of each episode


def run(seed: int = 0, runs: int = 30, episodes: int = 50) -> DynaEpisodeLengths:
    """Each run has its own seed, the same for all three."""
    return DynaEpisodeLengths({n: _lengths(n, seed, runs, episodes) for n in PLANNING_STEPS})


def _lengths(planning_steps: int, seed: int, runs: int, episodes: int) -> np.ndarray:
    config = DynaQConfig(
        gamma=0.95, alpha=Constant(0.1), epsilon=Constant(0.1), planning_steps=planning_steps
    )
    made = learners(DynaQ, config, DynaMaze().model(), episodes=episodes, runs=runs, seed=seed)
    return np.array([finished[:, 1] for _, finished in made])


def first_near_optimal(lengths: np.ndarray) -> int | None:
    """The first episode, from 1, with at most `NEAR` steps on average over the runs; None where
    there is none."""
    found = np.flatnonzero(lengths.mean(axis=0) <= NEAR)
    return int(found[0]) + 1 if len(found) else None


def measurements(result: DynaEpisodeLengths) -> dict[str, float]:
    """The lengths of single episodes, means over the runs, and the first episode within twice the
    shortest path."""
    numbers: dict[str, float] = {}
    for n, lengths in result.lengths.items():
        means = lengths.mean(axis=0)
        numbers |= {
            f"n = {n}, steps of episode {place}": float(means[place - 1])
            for place in (1, 2, 3)
            if place <= len(means)
        }
        numbers[f"n = {n}, steps of the last {LAST} episodes"] = float(means[-LAST:].mean())
        numbers[f"n = {n}, first episode of {NEAR} steps or fewer"] = float(
            first_near_optimal(lengths) or np.nan
        )
    return numbers


def draw(result: DynaEpisodeLengths) -> Figure:
    """Episode lengths; the first is left out, as in the book."""
    figure, axes = labelled_figure(6.8, 4.6, "Episodes", "Steps per episode")
    for place, (n, lengths) in enumerate(result.lengths.items()):
        name = "0 planning steps (direct RL only)" if n == 0 else f"{n} planning steps"
        axes.plot(
            np.arange(2, lengths.shape[1] + 1),
            lengths.mean(axis=0)[1:],
            color=curve_colour(place),
            linewidth=1.6,
            label=name,
        )
    axes.axhline(SHORTEST, color=fraction_rgb(GREY), linestyle=":", linewidth=1.3)
    axes.text(
        lengths.shape[1],
        SHORTEST + 6,
        "shortest path",
        ha="right",
        va="bottom",
        **words(fontsize=9),
    )
    axes.set(
        xlim=(1, lengths.shape[1]),
        xticks=[2, *range(10, lengths.shape[1] + 1, 10)],
        yticks=[SHORTEST, 200, 400, 600, 800],
        ylim=(0, 800),
    )
    legend(axes, loc="upper right")
    return figure
