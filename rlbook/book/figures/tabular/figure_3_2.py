"""Figure 3.2: random moves on a 5 × 5 grid, γ = 0.9: the exact value of each cell.

A is worth less than the 10 that leaving it pays, since it leads to the lower edge, where bumps cost
1. B is worth more than its 5.

Source: Sutton & Barto 2018, example 3.5, figure 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.algorithms.planning.policy_evaluation import PolicyEvaluation
from rlbook.book.figures.axes import value_grid
from rlbook.book.figures.grid_5x5 import GAMMA, draw_grid, model
from rlbook.plots.figure import new_figure


@dataclass(frozen=True)
class RandomPolicyValues:
    """Figure 3.2."""

    values: np.ndarray  # [5, 5]: V of the random policy, in reward units


def run() -> RandomPolicyValues:
    """Solves the linear system of the Bellman equation."""
    return RandomPolicyValues(
        PolicyEvaluation.solve(model(), gamma=GAMMA, method="linear").values().reshape(5, 5)
    )


def measurements(result: RandomPolicyValues) -> dict[str, float]:
    """The values of A and B, and of the best and the worst of the other cells."""
    others = np.delete(result.values.ravel(), [1, 3])
    return {
        "value of A": float(result.values[0, 1]),
        "value of B": float(result.values[0, 3]),
        "highest other value": float(others.max()),
        "lowest value": float(others.min()),
    }


def draw(result: RandomPolicyValues) -> Figure:
    """The grid, and its values."""
    figure = new_figure(6.6, 3.7)
    left, right = figure.subplots(1, 2)
    draw_grid(left)
    value_grid(right, result.values, "V of random moves, γ = 0.9")
    return figure
