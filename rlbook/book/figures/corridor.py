"""REINFORCE on the short corridor, as in the boxes of chapter 13: plain gradient steps after each
episode, γ = 1.

The policy has one preference for each action, the same everywhere, and the baseline one number: all
places look alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.random import Generator

from rlbook.book.figures.axes import curve_colour, labelled_figure, legend
from rlbook.book.figures.standard_error import standard_error
from rlbook.envs.short_corridor import RIGHT, ShortCorridor, short_corridor_model
from rlbook.plots.colours import GREY, fraction_rgb
from rlbook.plots.figure import words
from rlbook.seeding import rng_for

FIRST_CHANCE = 0.05
"""The initial probability of going right. The book does not state it; its curves begin at about
this policy's value, -82."""

TIME_LIMIT = 1_000
"""Steps of an episode, as in ShortCorridor-v0."""


@dataclass(frozen=True)
class CorridorReturns:
    """Returns of the training episodes, in reward units."""

    returns: dict[str, np.ndarray]  # learner → [runs, episodes]


def play(
    alphas: Mapping[str, tuple[float, float | None]], seed: int, runs: int, episodes: int
) -> CorridorReturns:
    """Many runs of each learner.

    Args:
        alphas: learner → α of the policy, and α of the baseline or None for none.
        seed: of each learner's first run; the second has `seed + 1`, and so on.
        runs, episodes: how many.
    """
    returns = {
        name: np.array(
            [
                learn(*steps, episodes, rng_for(run, "environment"))
                for run in range(seed, seed + runs)
            ]
        )
        for name, steps in alphas.items()
    }
    return CorridorReturns(returns)


def learn(alpha: float, alpha_baseline: float | None, episodes: int, rng: Generator) -> list[float]:
    """The returns of one learner's episodes. θ is H(right) - H(left), of which the policy is a
    function."""
    theta, baseline, returns = math.log(FIRST_CHANCE / (1.0 - FIRST_CHANCE)), 0.0, []
    for _ in range(episodes):
        actions = episode(chance(theta), rng)
        returns.append(-float(len(actions)))
        for step, went_right in enumerate(actions):
            error = step - len(actions) - baseline  # G_t - v̂, where G_t is -1 for each step to come
            if alpha_baseline is not None:
                baseline += alpha_baseline * error
            # H(right) moves by half of it, H(left) by minus that
            theta += 2.0 * alpha * error * (went_right - chance(theta))
    return returns


def chance(theta: float) -> float:
    """π(right), the softmax of two preferences that differ by θ."""
    return 1.0 / (1.0 + math.exp(-theta))


SUCCESSORS = short_corridor_model(observable=True).outcomes.successor.reshape(-1, 2).tolist()
GOAL = len(SUCCESSORS) - 1


def episode(right: float, rng: Generator) -> list[bool]:
    """For each step until the goal, whether the action was `right`, which has this probability."""
    place, actions = 0, []
    while place != GOAL and len(actions) < TIME_LIMIT:
        for action in rng.random(32) < right:
            actions.append(bool(action))
            place = SUCCESSORS[place][RIGHT if action else 1 - RIGHT]
            if place == GOAL or len(actions) == TIME_LIMIT:
                break
    return actions


def numbers(result: CorridorReturns) -> dict[str, float]:
    """Mean returns early and late, with the standard error of the latter over runs."""
    told: dict[str, float] = {}
    for name, returns in result.returns.items():
        late = returns[:, -100:].mean(axis=1)
        if returns.shape[1] >= 200:
            told[f"{name}: mean return, episodes 101 to 200"] = float(returns[:, 100:200].mean())
        told[f"{name}: mean return, last 100 episodes"] = float(late.mean())
        told[f"{name}: its standard error"] = standard_error(late)
    return told


def picture(result: CorridorReturns, order: Sequence[str]) -> Figure:
    """The mean return of each episode over the runs, and the optimal value."""
    figure, axes = labelled_figure(
        6.6, 4.2, "Episode", "Total reward of the episode, mean over the runs"
    )
    for place, name in enumerate(order):
        mean = result.returns[name].mean(axis=0)
        axes.plot(
            np.arange(1, len(mean) + 1), mean, color=curve_colour(place), linewidth=1.1, label=name
        )
    best = ShortCorridor().optimal_return
    axes.axhline(best, color=fraction_rgb(GREY), linestyle=":", linewidth=1.5)
    axes.text(0.015 * len(mean), best + 1, "v*(start)", ha="left", va="bottom", **words(fontsize=9))
    axes.set(xlim=(1, len(mean)), ylim=(-90, -5))
    legend(axes, loc="lower right")
    return figure
