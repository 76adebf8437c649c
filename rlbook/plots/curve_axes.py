"""The axes of learning curves: limits that follow the training returns, marks for evaluations,
ticks as people write numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlbook.plots.colours import GREY, fraction_rgb

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARGIN = 0.06  # of the height, above and below what is drawn
EDGE = 0.025  # where marks of what lies outside stand, as a share of the height
MOST_MARKS = 12  # evaluations of a curve that are marked
SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
WRITTEN_OUT = 10_000  # up to here a number is written in full
FINISHED, UNFINISHED = "greedy episodes", "greedy episodes: did not finish"
BELOW, ABOVE = "greedy episodes below the axis", "greedy episodes above the axis"


class Evaluations(NamedTuple):
    """Greedy episodes of a curve."""

    steps: np.ndarray  # [E]
    returns: np.ndarray  # [E], in reward units, of those that came to their end
    unfinished: np.ndarray  # [U]: the steps of those that were cut, since they did not end
    colour: tuple[float, float, float]


def tick_text(value: float, _position: int | None = None) -> str:
    """A number at an axis: 0.5, 200, 10k, 1.5M; no power of ten stands apart from it."""
    size = abs(value)
    scale, letter = (
        next(((scale, letter) for scale, letter in SCALES if size >= scale), (1.0, ""))
        if size >= WRITTEN_OUT
        else (1.0, "")
    )
    digits = f"{value / scale:.10f}".rstrip("0").rstrip(".")
    return ("0" if digits in ("-0", "") else digits).replace("-", "−") + letter


def plain_ticks(axes: Axes, *, most: int = 6) -> None:
    """Ticks that are read at once, on straight axes and on logarithmic ones. Call it when the
    scales are set."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(tick_text))
        axis.set_minor_formatter(NullFormatter())
        axis.offsetText.set_visible(False)
    axes.locator_params(axis="x", nbins=most)
    if axes.get_yscale() == "linear":
        axes.locator_params(axis="y", nbins=8)


def follow(
    axes: Axes,
    shown: Sequence[np.ndarray],
    evaluations: Sequence[Evaluations],
    optimum: float | None,
) -> None:
    """Sets the height by the training returns and the optimum, and marks the evaluations in it.

    An evaluation may widen the axis to twice its height. What lies beyond is marked at the edge,
    and so is what did not finish: its return says when the episodes were cut, and nothing of the
    policy.

    Args:
        axes: with the curves in it.
        shown: what the curves and their bands reach, in reward units.
        evaluations: of each curve that has some.
        optimum: the best return, where it is known.
    """
    known = np.concatenate(
        [*(np.asarray(part, dtype=float) for part in shown), [] if optimum is None else [optimum]]
    )
    low, high = float(known.min()), float(known.max())
    room = max(high - low, 1e-6 * max(abs(low), abs(high), 1.0))
    inside = [
        value
        for item in evaluations
        for value in item.returns[_places(item)].tolist()
        if low - room / 2 <= value <= high + room / 2
    ]
    low, high = min([low, *inside]), max([high, *inside])
    pad = MARGIN * ((high - low) or 2.0 * max(abs(high), 1.0))
    axes.set_ylim(low - pad, high + pad)
    kinds = [kind for item in evaluations for kind in _mark(axes, item, low, high)]
    for kind, marker in ((FINISHED, "o"), (UNFINISHED, "x"), (BELOW, "v"), (ABOVE, "^")):
        if kind in kinds:
            axes.plot(
                [],
                [],
                marker,
                color=fraction_rgb(GREY),
                markersize=4.5,
                markerfacecolor="white",
                label=kind,
            )


def _places(item: Evaluations) -> np.ndarray:
    """Which of the evaluations are marked."""
    count = len(item.steps)
    return np.linspace(0, count - 1, min(count, MOST_MARKS)).round().astype(int)


def _mark(axes: Axes, item: Evaluations, low: float, high: float) -> list[str]:
    """Marks one curve's evaluations. Returns the kinds of marks."""
    edge, kinds = axes.get_xaxis_transform(), []
    style: dict[str, Any] = {
        "color": item.colour,
        "markersize": 4.5,
        "markerfacecolor": "white",
        "clip_on": False,
        "zorder": 3,
    }
    for place in _places(item):
        step, value = float(item.steps[place]), float(item.returns[place])
        kind = BELOW if value < low else ABOVE if value > high else FINISHED
        if kind == FINISHED:
            axes.plot([step], [value], "o", **style)
        else:
            axes.plot(
                [step],
                [EDGE if kind == BELOW else 1.0 - EDGE],
                "v" if kind == BELOW else "^",
                transform=edge,
                **style,
            )
        kinds.append(kind)
    if item.unfinished.size:
        axes.plot(
            item.unfinished, np.full(len(item.unfinished), EDGE), "x", transform=edge, **style
        )
        kinds.append(UNFINISHED)
    return kinds
