"""Drawing shared by several figures: axes with labels, grids of numbers, arrows for several best
moves."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from rlbook.envs.gridworlds.layouts import MOVES
from rlbook.plots.colours import CURVES, GREY, INK, PALE, Colour, fraction_rgb, ramp, readable_ink
from rlbook.plots.figure import is_narrow, new_figure, plain_axes, words

if TYPE_CHECKING:
    from matplotlib.typing import LegendLocType  # which matplotlib has from 3.11 on

RGB = tuple[float, float, float]
LABEL = 33  # letters of a label that a narrow panel has room for


def curve_colour(place: int) -> RGB:
    """The colour of curve number `place` of a figure, from 0."""
    return fraction_rgb(CURVES[place % len(CURVES)])


def label_axes(axes: Axes, across: str, up: str, title: str = "") -> Axes:
    """Plain axes with a label each, and a title where there is one; in a narrow column a long
    label has two lines."""
    plain_axes(axes)
    if is_narrow():
        across, up = (textwrap.fill(label, LABEL) for label in (across, up))
    axes.set_xlabel(across, **words(fontsize=10))
    axes.set_ylabel(up, **words(fontsize=10))
    if title:
        axes.set_title(title, **words(fontsize=11, pad=8))
    return axes


def labelled_figure(
    width: float, height: float, across: str, up: str, title: str = ""
) -> tuple[Figure, Axes]:
    """A figure of one panel, `width` by `height` inches, and that panel with its labels."""
    figure = new_figure(width, height)
    return figure, label_axes(figure.subplots(), across, up, title)


def draw_median(
    axes: Axes,
    across: np.ndarray,
    values: np.ndarray,
    colour: RGB,
    label: str,
    **style: Any,
) -> None:
    """A curve through the medians of `values` [runs, points], in a band from the lowest run to the
    highest; `style` is the curve's, as in `Axes.plot`."""
    axes.plot(across, np.median(values, axis=0), color=colour, label=label, **style)
    low, high = values.min(axis=0), values.max(axis=0)
    axes.fill_between(across, low, high, color=colour, alpha=0.2, linewidth=0)


def draw_runs(
    axes: Axes,
    across: ArrayLike,
    values: np.ndarray,
    colour: RGB,
    label: str | None = None,
    *,
    thin: float = 1.0,
    linestyle: str = "-",
    linewidth: float | None = None,
) -> None:
    """A pale line for each run of `values` [runs, points], `thin` points wide, and a full one for
    their mean; `across` is [points] or [runs, points]."""
    across = np.atleast_2d(across)
    style: dict[str, Any] = {"color": colour, "linestyle": linestyle}
    axes.plot(across.T, values.T, alpha=0.35, linewidth=thin, **style)
    axes.plot(across.mean(0), values.mean(0), linewidth=linewidth, label=label, **style)


def legend(axes: Axes, loc: LegendLocType, **options: float | tuple[float, float]) -> None:
    """A legend without a frame."""
    axes.legend(frameon=False, labelcolor=words()["color"], fontsize=9, loc=loc, **options)


def value_grid(
    axes: Axes,
    values: np.ndarray,
    title: str,
    *,
    digits: int = 1,
    span: tuple[float, float] | None = None,
) -> None:
    """A grid with a number in each cell, on a colour that encodes it.

    Args:
        values: [rows, columns], in reward units; NaN for cells without one.
        digits: after the decimal point.
        span: lowest and highest value of the colours; None: of these values.
    """
    low, high = span or (float(np.nanmin(values)), float(np.nanmax(values)))
    shares = np.clip((values - low) / (high - low), 0, 1) if high > low else np.zeros_like(values)
    colours = [[PALE if np.isnan(share) else ramp(share) for share in row] for row in shares]
    cells(axes, colours, title)
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            ink = fraction_rgb(readable_ink(colours[row][column]))
            axes.text(
                column,
                row,
                format_number(value, digits),
                ha="center",
                va="center",
                **words(color=ink, fontsize=9.5),
            )


def format_number(value: float, digits: int) -> str:
    """A number in the book's format: a true minus sign, and none before 0."""
    text = f"{value:.{digits}f}"
    return (text.removeprefix("-") if float(text) == 0 else text).replace("-", "−")


def cells(axes: Axes, colours: Sequence[Sequence[Colour]], title: str) -> None:
    """A grid of coloured cells with thin lines between them."""
    pixels = np.array(colours, dtype=np.uint8)
    rows, columns = pixels.shape[:2]
    axes.imshow(pixels, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5), interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color(fraction_rgb(GREY))
    axes.hlines(np.arange(rows - 1) + 0.5, -0.5, columns - 0.5, color="white", linewidth=1.2)
    axes.vlines(np.arange(columns - 1) + 0.5, -0.5, rows - 0.5, color="white", linewidth=1.2)
    axes.set_title(title, **words(fontsize=10.5, pad=7))


def best_moves(
    axes: Axes, moves: np.ndarray, title: str, *, ends: np.ndarray | None = None
) -> None:
    """An arrow for each optimal move.

    Args:
        moves: [rows, columns, 4] bool: up, down, left, right.
        ends: [rows, columns] bool, cells in which nothing is decided.
    """
    rows, columns = moves.shape[:2]
    over = np.zeros((rows, columns), dtype=bool) if ends is None else ends
    cells(
        axes,
        [
            [PALE if over[row, column] else (246, 240, 220) for column in range(columns)]
            for row in range(rows)
        ],
        title,
    )
    row, column, move = np.nonzero(moves & ~over[:, :, None])
    down, right = np.array(MOVES)[move].T
    axes.quiver(
        column + 0.04 * right,
        row + 0.04 * down,
        0.34 * right,
        0.34 * down,
        color=fraction_rgb(INK),
        angles="xy",
        scale_units="xy",
        scale=1.0,
        units="xy",
        width=0.035,
        headwidth=5.0,
        headlength=4.6,
        headaxislength=4.2,
        minlength=0.0,
        minshaft=1.0,
    )
