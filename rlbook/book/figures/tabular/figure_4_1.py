"""Figure 4.1: iterative policy evaluation on a 4 × 4 grid. Values of random moves after k sweeps,
and the greedy policy for them.

After three sweeps the greedy policy is already the best one.

Source: Sutton & Barto 2018, example 4.1, figure 4.1 (its numbers are cut off after one decimal,
ours are rounded).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.algorithms.planning.policy_evaluation import PolicyEvaluation
from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.book.figures.axes import best_moves, value_grid
from rlbook.envs.gridworlds.gridworld import GridWorld
from rlbook.plots.figure import is_narrow, new_figure, words

SWEEPS = (0, 1, 2, 3, 10, None)
"""The numbers of sweeps; None: until convergence."""
TIE = 1e-9
"""The difference in value, in reward units, up to which moves are equally good."""


@dataclass(frozen=True)
class EvaluationSweeps:
    """Figure 4.1. K sweeps, of which the last is the limit."""

    values: np.ndarray  # [K, 4, 4]: V of random moves, in reward units
    moves: np.ndarray  # [K, 4, 4, 4] bool: up, down, left, right, each that is greedy by V
    optimal: np.ndarray  # [K] bool: whether every greedy policy is optimal
    ends: np.ndarray  # [4, 4] bool: where the episode is over


def run() -> EvaluationSweeps:
    """Sweeps all states at once; the limit is that of a linear system."""
    model = GridWorld("4x4").model()
    best = PolicyIteration.solve(model, gamma=1.0).values()
    values = np.array([_values_after(count) for count in SWEEPS])
    action_values = np.array([model.backup(table, 1.0) for table in values])
    moves = action_values >= action_values.max(axis=2, keepdims=True) - TIE
    loss = best[:, None] - model.backup(best, 1.0)  # of one move, then the best ones
    optimal = ~(moves & (loss > TIE)).any(axis=(1, 2))
    return EvaluationSweeps(
        values.reshape(-1, 4, 4), moves.reshape(-1, 4, 4, 4), optimal, model.terminal.reshape(4, 4)
    )


def _values_after(sweeps: int | None) -> np.ndarray:
    model = GridWorld("4x4").model()
    if sweeps == 0:
        return np.zeros(model.num_states)
    how = (
        {"method": "linear"} if sweeps is None else {"method": "synchronous", "max_sweeps": sweeps}
    )
    return PolicyEvaluation.solve(model, gamma=1.0, **how).values()


def measurements(result: EvaluationSweeps) -> dict[str, float]:
    """Values of the cells on the upper edge after k sweeps, and when the greedy policy first
    becomes optimal."""
    _, one, two, three, ten, limit = result.values[:, 0]
    return {
        "sweep 1, beside the corner": float(one[1]),
        "sweep 2, beside the corner": float(two[1]),
        "sweep 3, beside the corner": float(three[1]),
        "sweep 10, beside the corner": float(ten[1]),
        "limit, beside the corner": float(limit[1]),
        "limit, far corner": float(limit[3]),
        "sweeps until the greedy policy is optimal": float(
            SWEEPS[int(result.optimal.argmax())] or np.inf
        ),
    }


def draw(result: EvaluationSweeps) -> Figure:
    """A row for values and one for moves, and a column for each number of sweeps; or transposed."""
    figure = new_figure(11.6, 4.5, narrow_height=2.2 * len(SWEEPS))
    axes = figure.subplots(len(SWEEPS), 2).T if is_narrow() else figure.subplots(2, len(SWEEPS))
    span = (float(result.values.min()), 0.0)
    for place, sweeps in enumerate(SWEEPS):
        value_grid(
            axes[0, place],
            result.values[place],
            f"k = {'∞' if sweeps is None else sweeps}",
            span=span,
        )
        best_moves(
            axes[1, place],
            result.moves[place],
            "optimal" if result.optimal[place] else "",
            ends=result.ends,
        )
    for line, label in zip(axes, ("V after k sweeps", "greedy by V"), strict=True):
        if is_narrow():
            line[-1].set_xlabel(label, **words(fontsize=10.5))
        else:
            line[0].set_ylabel(label, **words(fontsize=10.5))
    return figure
