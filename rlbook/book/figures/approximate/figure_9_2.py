"""Figure 9.2: semi-gradient TD with groups of states: its limit, and n-step TD for each step size
and each n.

On the left ten groups: TD's values are further from the true ones than Monte Carlo's (figure 9.1),
since each target contains a value that is a compromise already. On the right twenty groups, and the
picture of figure 7.2 comes back: something between TD(0) and Monte Carlo is best.

Source: Sutton & Barto 2018, example 9.2, figure 9.2. Averages over the first 10 episodes; the
book's are over 100 runs, these over 20.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.agent import Step
from rlbook.book.figures.axes import curve_colour, label_axes, legend
from rlbook.book.figures.long_walk import Sweep, draw_sweep, lowest_errors
from rlbook.book.figures.thousand_states import (
    LENGTH,
    exact_values,
    learned_values,
    learner,
    walk_model,
    walks,
)
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.plots.figure import new_figure, words

ALPHAS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
LENGTHS = tuple(2**k for k in range(10))
EPISODES = 10
FAR = 0.62
"""A curve this far above the chart is not continued to larger step sizes."""


@dataclass(frozen=True)
class GroupedTDValues:
    """Figure 9.2."""

    exact: np.ndarray  # [1000], V in reward units
    values: np.ndarray  # [1000], what TD learned with ten groups
    errors: Sweep  # for each n, with twenty groups


def run(
    seed: int = 0, runs: int = 20, episodes: int = 5_000, alphas: Sequence[float] = ALPHAS
) -> GroupedTDValues:
    """TD(0) over `episodes` with a step size that falls at the end, and n = 1, 2, 4, ..., 512 over
    10 episodes."""
    model = walk_model()
    exact, agent = (
        exact_values(model),
        learner(model, features="aggregate", bins=10, alpha="linear(0.01, 0.0005)"),
    )
    for episode, steps in enumerate(walks(model, seed, episodes)):
        agent.progress = episode / episodes
        values = learned_values(agent, steps)
    seen = [list(walks(model, index, EPISODES)) for index in range(seed, seed + runs)]
    errors = {}
    for n in LENGTHS:
        errors[n] = np.full((len(alphas), runs), np.nan)
        for row, alpha in zip(errors[n], alphas, strict=True):
            row[:] = (
                np.sqrt((exact**2).mean())
                if alpha == 0
                else [_error(model, walk, exact, n, alpha) for walk in seen]
            )
            if not row.mean() < FAR:
                break
    return GroupedTDValues(exact, values, Sweep(tuple(alphas), errors))


def _error(
    model: TabularMDP, walk: list[list[Step]], exact: np.ndarray, n: int, alpha: float
) -> float:
    """The root mean square error over the states, averaged over the episodes."""
    agent = learner(model, features="aggregate", bins=20, alpha=alpha, n=n)
    return float(
        np.mean([np.sqrt(((learned_values(agent, steps) - exact) ** 2).mean()) for steps in walk])
    )


def measurements(result: GroupedTDValues) -> dict[str, float]:
    """The range of TD's ten values, and the lowest error of each n."""
    ends = {
        "TD, V of the first group": float(result.values[0]),
        "TD, V of the last group": float(result.values[-1]),
    }
    return ends | lowest_errors(result.errors, "n")


def draw(result: GroupedTDValues) -> Figure:
    """The values on the left, the sweep on the right."""
    figure = new_figure(11.0, 4.8)
    left, right = figure.subplots(1, 2)
    label_axes(left, "State", "Value")
    states = np.arange(1, LENGTH + 1)
    left.plot(states, result.exact, color=curve_colour(1), linewidth=1.5, label="true value")
    left.plot(
        states,
        result.values,
        color=curve_colour(0),
        linewidth=1.5,
        label="semi-gradient TD(0), 10 groups",
    )
    left.set_title("TD's limit", **words(fontsize=11, pad=22))
    left.set_xlim(1, LENGTH)
    legend(left, loc="upper left")
    draw_sweep(right, result.errors, "n", "n-step TD, 20 groups", wide=4.5)
    return figure
