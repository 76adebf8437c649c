"""Figure 3.5: the optimal solution of the 5 × 5 grid, γ = 0.9: V*, and every optimal move.

Source: Sutton & Barto 2018, example 3.8, figure 3.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.book.figures.axes import best_moves, value_grid
from rlbook.book.figures.grid_5x5 import GAMMA, draw_grid, model
from rlbook.plots.figure import new_figure

TIE = 1e-9
"""The difference in value, in reward units, up to which moves are equally good."""


@dataclass(frozen=True)
class OptimalGridValues:
    """Figure 3.5."""

    values: np.ndarray  # [5, 5]: V*, in reward units
    moves: np.ndarray  # [5, 5, 4] bool: up, down, left, right, each that is best


def run() -> OptimalGridValues:
    """Policy iteration."""
    planner = PolicyIteration.solve(model(), gamma=GAMMA)
    action_values = planner.action_values()
    best = action_values >= action_values.max(axis=1, keepdims=True) - TIE
    return OptimalGridValues(planner.values().reshape(5, 5), best.reshape(5, 5, 4))


def measurements(result: OptimalGridValues) -> dict[str, float]:
    """The values of A and B, and the number of cells with several optimal moves."""
    several = int(np.count_nonzero(result.moves.sum(axis=2) > 1))
    return {
        "value of A": float(result.values[0, 1]),
        "value of B": float(result.values[0, 3]),
        "cells with several best moves": several,
    }


def draw(result: OptimalGridValues) -> Figure:
    """The grid, the values, the moves."""
    figure = new_figure(9.6, 3.6)
    left, middle, right = figure.subplots(1, 3)
    draw_grid(left)
    value_grid(middle, result.values, "V*, γ = 0.9")
    best_moves(right, result.moves, "Best moves")
    return figure
