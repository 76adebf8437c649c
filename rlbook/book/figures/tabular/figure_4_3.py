"""Figure 4.3: the gambler, p = 0.4. Value iteration's sweeps, and every optimal stake.

Many stakes are equally good up to rounding, so there are many best policies; the figure marks all
of them, and of each capital the smallest, which is what the book draws.

Source: Sutton & Barto 2018, example 4.3, figure 4.3. Sweeps in place, from a capital of 1 upwards,
as in the box on page 83.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.book.figures.axes import curve_colour, label_axes, legend
from rlbook.envs.gambler import TARGET, Gambler, gambler_stakes
from rlbook.plots.colours import GREY, fraction_rgb
from rlbook.plots.figure import is_narrow, new_figure

HEADS = 0.4
SHOWN = (1, 2, 3, 32)
"""The sweeps drawn besides the last."""
TIE = 1e-9
"""The difference in winning probability up to which stakes are equally good."""


@dataclass(frozen=True)
class GamblerSolution:
    """Figure 4.3. Capitals 1 to 99."""

    sweeps: dict[int, np.ndarray]  # sweep → [99]: V after it, a probability
    values: np.ndarray  # [99]: V*
    best: np.ndarray  # [99, 50] bool: stakes 1 to 50, each that is best
    count: int  # sweeps until V* stood


def run() -> GamblerSolution:
    """Value iteration in place, until it converges to within 1e-12."""
    stakes = gambler_stakes()
    sweeps = {
        count: _planner(sweep="gauss-seidel", tolerance=0.0, max_sweeps=count).values()[1:TARGET]
        for count in SHOWN
    }
    planner = _planner(sweep="gauss-seidel", tolerance=1e-12)
    action_values = planner.action_values()
    near = action_values >= action_values.max(axis=1, keepdims=True) - TIE
    best = np.zeros((TARGET + 1, TARGET // 2 + 1), dtype=bool)
    state, action = np.nonzero(near)
    best[state, stakes[state, action]] = True
    return GamblerSolution(
        sweeps, planner.values()[1:TARGET], best[1:TARGET, 1:], int(planner.state_dict()["sweep"])
    )


def _planner(**config: float | str) -> ValueIteration:
    return ValueIteration.solve(Gambler(HEADS).model(), gamma=1.0, **config)


def measurements(result: GamblerSolution) -> dict[str, float]:
    """Chances of winning, and the best stakes where there is only one."""
    numbers = {
        f"V({capital})": float(result.values[capital - 1]) for capital in (1, 25, 50, 51, 75, 99)
    }
    stakes = {
        f"best stake at {capital}": _unique_optimum(result.best[capital - 1])
        for capital in (25, 50, 75)
    }
    return (
        numbers
        | stakes
        | {"best stakes at 51": float(result.best[50].sum()), "sweeps": float(result.count)}
    )


def _unique_optimum(best: np.ndarray) -> float:
    """The optimal stake; NaN if several are optimal."""
    return float(best.argmax() + 1) if best.sum() == 1 else float("nan")


def draw(result: GamblerSolution) -> Figure:
    """Value estimates above, stakes below."""
    figure = new_figure(6.6, 7.2)
    top, bottom = figure.subplots(2, 1)
    capitals = np.arange(1, TARGET)
    label_axes(top, "", "Value estimates")
    top.plot(
        capitals,
        result.values,
        color="0.8",
        linewidth=5,
        label=f"final value function (after {result.count} sweeps)",
    )
    for place, (count, values) in enumerate(result.sweeps.items()):
        top.plot(
            capitals, values, color=curve_colour(place + 1), linewidth=1.4, label=f"sweep {count}"
        )
    legend(top, loc="upper left")
    label_axes(bottom, "Capital", "Best stakes")
    capital, stake = np.nonzero(result.best)
    bottom.plot(
        capital + 1,
        stake + 1,
        "o",
        color=fraction_rgb(GREY),
        markersize=2.6,
        label="equally good stakes",
        alpha=0.55,
    )
    smallest = result.best.argmax(axis=1) + 1
    bottom.step(
        capitals,
        smallest,
        where="mid",
        color=curve_colour(0),
        linewidth=1.5,
        label="the smallest of them",
    )
    legend(bottom, loc="upper left")
    for axes in (top, bottom):
        axes.set(xticks=[1, 25, 50, 75, 99], xlim=(0, TARGET))
    top.set_ylim(0, 1)
    bottom.set_ylim(0, 70 if is_narrow() else 52)  # room for the legend
    return figure
