"""The axes of learning curves: limits that follow the range in which learning happens, marks at the
edge for values beyond it, marks for evaluations, and readable tick labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.scale import SymmetricalLogTransform
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from rlbook.plots.colours import GREY, fraction_rgb

MARGIN = 0.06  # of the height, above and below what is drawn
EDGE = 0.025  # where marks of what lies outside stand, as a share of the height
MOST_MARKS = 12  # evaluations of a curve that are marked
SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
WRITTEN_OUT = 10_000  # up to here a number is written in full
LATE = 1 / 3  # of a curve's points, by which the height is chosen where the beginning is far off
ENDS = 0.1  # quantile of that part at which it ends: one bad report does not set the height
FAR = 20.0  # heights of that part that all of a picture may have before the rest goes to the edge
SLOTS = 24  # parts of an edge, each with one mark of a curve that is outside there
FEWEST_TICKS = 3  # that a logarithmic axis must have, to be read
FINISHED, UNFINISHED = "greedy episodes", "greedy episodes: did not finish"
BELOW, ABOVE = "greedy episodes below the axis", "greedy episodes above the axis"


class DrawnCurve(NamedTuple):
    """A curve in the form in which it is drawn."""

    steps: np.ndarray  # [X], increasing
    mean: np.ndarray  # [X], in reward units
    low: np.ndarray  # [X], the ends of its band
    high: np.ndarray  # [X]
    colour: tuple[float, float, float]


class Evaluations(NamedTuple):
    """Greedy episodes of a curve."""

    steps: np.ndarray  # [E]
    returns: np.ndarray  # [E], in reward units, of those that came to their end
    unfinished: np.ndarray  # [U]: the steps of those that were cut, since they did not end
    colour: tuple[float, float, float]


def tick_text(value: float, _position: int | None = None) -> str:
    """A number as an axis label: 0.5, 200, 10k, 1.5M; never with a separate power of ten."""
    size = abs(value)
    scale, letter = (
        next(((scale, letter) for scale, letter in SCALES if size >= scale), (1.0, ""))
        if size >= WRITTEN_OUT
        else (1.0, "")
    )
    digits = f"{value / scale:.10f}".rstrip("0").rstrip(".")
    return ("0" if digits in ("-0", "") else digits).replace("-", "−") + letter


def log_ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """The labelled ticks of a logarithmic axis from `low` to `high`, both above 0: powers of ten,
    or, if these are fewer than three, numbers between them."""
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    powers = range(first, last + 1)
    for digits in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10))):
        ticks = [
            tick
            for power in powers
            for digit in digits
            if low <= (tick := float(f"{digit}e{power}")) <= high
        ]
        if len(ticks) >= FEWEST_TICKS:
            return ticks[:: -(-len(ticks) // most)]

    even = MaxNLocator(nbins=4, min_n_ticks=FEWEST_TICKS).tick_values(low, high)
    return [float(f"{tick:.10g}") for tick in even if low <= tick <= high]


def plain_ticks(axes: Axes, *, most: int = 6) -> None:
    """Readable ticks on linear and logarithmic axes. Call it after the scales and limits are
    set."""

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(tick_text))
        axis.set_minor_formatter(NullFormatter())
        axis.offsetText.set_visible(False)
    axes.locator_params(axis="x", nbins=most)
    if axes.get_yscale() == "linear":
        axes.locator_params(axis="y", nbins=8)
        return
    (low, high), scale, zero = axes.get_ylim(), axes.yaxis.get_transform(), []
    if axes.get_yscale() == "symlog":
        assert isinstance(scale, SymmetricalLogTransform)
        low, zero = scale.linthresh, [0.0]
    axes.yaxis.set_major_locator(FixedLocator([*zero, *log_ticks(low, high)]))


def learning_range(curves: Sequence[DrawnCurve]) -> tuple[float, float]:
    """The range of returns that the axis shows: all of them, unless the last third of the curves
    would then take less than a twentieth of it.

    Where it would, the height is that of the last third and as much again on either side. A
    curve that ends so far from the best one that they cannot be seen in one picture is left out
    of account.

    Args:
        curves: at least one.

    Returns:
        Lowest and highest return, in reward units.
    """
    low = min(float(curve.low.min()) for curve in curves)
    high = max(float(curve.high.max()) for curve in curves)
    ends = sorted(map(_late_range, curves), key=sum, reverse=True)
    bottom, top = ends[0]
    for end in ends[1:]:
        both = min(bottom, end[0]), max(top, end[1])
        if both[1] - both[0] <= FAR * _size(bottom, top):
            bottom, top = both
    size = _size(bottom, top)
    if high - low <= FAR * size:
        return low, high
    return max(low, bottom - size), min(high, top + size)


def _late_range(curve: DrawnCurve) -> tuple[float, float]:
    """The range of a curve's last third, without its extremes."""
    late = -max(1, round(LATE * len(curve.steps)))
    return (
        float(np.quantile(curve.low[late:], ENDS)),
        float(np.quantile(curve.high[late:], 1.0 - ENDS)),
    )


def _size(low: float, high: float) -> float:
    """The width of a range of returns; of one that is narrow compared with its distance from 0,
    that distance."""
    return max(high - low, abs(low), abs(high), 1e-6)


def fit_axes(
    axes: Axes,
    curves: Sequence[DrawnCurve],
    evaluations: Sequence[Evaluations],
    optimum: float | None,
) -> None:
    """Sets the limits by the training returns and the optimum, marks values outside, and marks the
    evaluations.

    An evaluation may widen the axis to twice its height, and the last one further upwards, since it
    is what the run has come to. What lies beyond is marked at the edge, and so is what did not
    finish: its return says when the episodes were cut, and nothing of the policy.

    Args:
        axes: with the curves in it.
        curves: as they are drawn.
        evaluations: of each curve that has some.
        optimum: the best return, where it is known.
    """
    known = [*learning_range(curves), *([] if optimum is None else [optimum])]
    low, high = min(known), max(known)
    room = max(high - low, 1e-6 * max(abs(low), abs(high), 1.0))
    inside = [
        value
        for item in evaluations
        for value in item.returns[_places(item)].tolist()
        if low - room / 2 <= value <= high + room / 2
    ]
    last = [float(item.returns[-1]) for item in evaluations if item.returns.size]
    inside += [value for value in last if low <= value <= low + FAR * room]
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
    _mark_outside(axes, curves, low - pad, high + pad)


def _mark_outside(axes: Axes, curves: Sequence[DrawnCurve], low: float, high: float) -> None:
    """Marks on the edges, in a curve's colour, where the curve lies outside the axis, and states
    how far the curves extend."""
    start = min(float(curve.steps[0]) for curve in curves)
    slot = (max(float(curve.steps[-1]) for curve in curves) - start) / SLOTS or 1.0
    for marker, level, said in (
        ("v", 0.0, "below the axis, down to {}"),
        ("^", 1.0, "above the axis, up to {}"),
    ):
        farthest: list[float] = []
        for place, curve in enumerate(curves):
            outside = curve.mean < low if marker == "v" else curve.mean > high
            if not outside.any():
                continue
            slots = np.unique(np.floor((curve.steps[outside] - start) / slot).clip(max=SLOTS - 1))
            axes.plot(
                start + (slots + (place + 0.5) / len(curves)) * slot,
                np.full(len(slots), level),
                marker,
                color=curve.colour,
                markersize=4,
                transform=axes.get_xaxis_transform(),
                clip_on=False,
                zorder=3,
            )
            farthest.append(float((np.min if marker == "v" else np.max)(curve.mean[outside])))
        if farthest:
            end = min(farthest) if marker == "v" else max(farthest)
            label = said.format(tick_text(float(f"{end:.3g}")))
            axes.plot([], [], marker, color=fraction_rgb(GREY), markersize=4, label=label)


def _places(item: Evaluations) -> np.ndarray:
    """The evaluations to mark."""
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
