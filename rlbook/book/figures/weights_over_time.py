"""The eight weights of Baird's counterexample against steps and against sweeps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlbook.book.experiments.baird import VISITS, baird_features, system
from rlbook.book.figures.axes import curve_colour, label_axes, legend
from rlbook.functional.linear_td import Array, projected_bellman_error, value_error
from rlbook.plots.figure import is_narrow, new_figure


@dataclass(frozen=True)
class WeightHistory:
    """Weights before the first update and after each, [updates + 1, 8], in reward units."""

    steps: Array  # of one stream
    sweeps: Array  # of mean updates


def errors(weights: Array) -> tuple[Array, Array]:
    """√VE and √PBE of weights [T, 8]: [T] each, in reward units. All values are 0, all states count
    alike."""
    x, mean = baird_features(), system(baird_features())
    ve = [value_error(row, x, np.zeros(len(x)), VISITS) for row in weights]
    pbe = [max(projected_bellman_error(row, mean), 0.0) for row in weights]
    return np.sqrt(ve), np.sqrt(pbe)


def numbers(result: WeightHistory) -> dict[str, float]:
    """The last weights of each kind, and both errors."""
    told: dict[str, float] = {}
    for name, weights in (("steps", result.steps), ("sweeps", result.sweeps)):
        ve, pbe = errors(weights[-1:])
        told |= {
            f"{name}: mean of w₁ to w₆": float(weights[-1, :6].mean()),
            f"{name}: w₇": float(weights[-1, 6]),
        }
        told |= {
            f"{name}: w₈": float(weights[-1, 7]),
            f"{name}: √VE": float(ve[0]),
            f"{name}: √PBE": float(pbe[0]),
        }
    return told


def picture(result: WeightHistory, left: str, right: str, *, with_errors: bool) -> Figure:
    """Two panels of weights."""
    figure = new_figure(9.0, 4.2)
    axes = figure.subplots(1, 2, sharey=True)
    panel(label_axes(axes[0], "Steps", "Weights", left), result.steps, with_errors)
    up = "Weights" if is_narrow() else ""
    panel(label_axes(axes[1], "Sweeps", up, right), result.sweeps, with_errors)
    legend(axes[1], loc="upper left" if not with_errors else "upper right")
    return figure


def panel(axes: Axes, weights: Array, with_errors: bool) -> None:
    """w₁ to w₆ in one colour, w₇, w₈, and the errors if they are requested."""
    for index, (place, label) in enumerate(
        [(0, "w₁ – w₆")] + [(0, "")] * 5 + [(1, "w₇"), (2, "w₈")]
    ):
        axes.plot(weights[:, index], color=curve_colour(place), linewidth=1.2, label=label or None)
    if with_errors:
        for place, (label, error) in enumerate(
            zip(("√VE", "√PBE"), errors(weights), strict=True), 3
        ):
            axes.plot(error, color=curve_colour(place), linewidth=1.2, linestyle="--", label=label)
    axes.set_xlim(0, len(weights) - 1)
