"""The curves of an exhibit as text and as SVG, with and without the bug, on the same axes."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlbook.book.museum.curves import WITH, WITHOUT, BugCurves, final_mean, mean_at_end, mean_curve
from rlbook.book.museum.exhibit import Exhibit
from rlbook.book.museum.training import Curve

MARKS = {WITHOUT: "o", WITH: "x"}
HEIGHT = 12  # lines of a chart in text
ACROSS, DOWN, LEFT, BELOW = 640.0, 260.0, 84.0, 28.0
"""Sizes of the SVG in its own units: the picture, and the margins for its numbers."""


@dataclass(frozen=True)
class Axes:
    """The visible range of the curves: all steps, and the values except those of the first tenth,
    which may lie outside."""

    first: float
    last: float
    low: float
    high: float
    log: bool

    @classmethod
    def from_curves(cls, exhibit: Exhibit, curves: BugCurves) -> Axes:
        """Axes that contain the mean curves and the known value."""
        means = [mean_curve(side) for side in curves.sides.values()]
        last = max(curve[-1][0] for side in curves.sides.values() for curve in side if curve)
        values = [value for curve in means for _, value in curve[len(curve) // 10 :]]
        log = exhibit.shown.log and min(values) > 0
        if exhibit.shown.known is not None and not (log and exhibit.shown.known <= 0):
            values.append(exhibit.shown.known)
        low, high = min(values), max(values)
        return cls(0.0, last, low, high if high > low else low + 1.0, log)

    def x_position(self, step: float) -> float:
        """The horizontal position of a step, from 0 to 1."""
        return step / self.last

    def relative_height(self, value: float) -> float:
        """The vertical position of a value, from 0 to 1; values outside are placed at the edge."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        if self.log:
            value = math.log(value) if value > 0 else low
        return min(max((value - low) / (high - low), 0.0), 1.0)


def numbers(exhibit: Exhibit, curves: BugCurves) -> dict[str, float]:
    """The final values of the curves, by side."""
    return {side: mean_at_end(of) for side, of in curves.sides.items()}


def legend_texts(curves: BugCurves) -> dict[str, str]:
    """The same in words, with the smallest and the largest seed's value if there are several."""
    found = {}
    for side, of in curves.sides.items():
        ends = sorted(map(final_mean, of))
        seeds = (
            f" (seeds {ends[0]:.4g} to {ends[-1]:.4g})"
            if f"{ends[0]:.4g}" != f"{ends[-1]:.4g}"
            else ""
        )
        found[side] = f"{side}: {mean_at_end(of):.4g} at the end{seeds}"
    return found


def as_text(exhibit: Exhibit, curves: BugCurves, width: int) -> str:
    """A chart of at most so many columns, and a legend."""
    axes = Axes.from_curves(exhibit, curves)
    ends = f"{axes.high:.4g}", f"{axes.low:.4g}"
    margin = max(map(len, ends)) + 2
    columns = max(20, min(width - margin - 2, 72))
    rows = [[" "] * columns for _ in range(HEIGHT)]
    if exhibit.shown.known is not None:
        rows[_line(axes.relative_height(exhibit.shown.known))][:] = ["-"] * columns
    for side, of in curves.sides.items():
        for step, value in mean_curve(of):
            rows[_line(axes.relative_height(value))][
                min(int(axes.x_position(step) * columns), columns - 1)
            ] = MARKS[side]
    labels = {0: ends[0], HEIGHT - 1: ends[1]}
    drawn = [
        f"{labels.get(place, ''):>{margin}}|{''.join(row)}".rstrip()
        for place, row in enumerate(rows)
    ]
    scale = " (logarithmic)" if axes.log else ""
    feet = [
        " " * margin + "+" + "-" * columns,
        " " * margin + f" 0{f'{axes.last:,.0f} {exhibit.shown.along}':>{columns - 1}}",
    ]
    legend = [f"{MARKS[side]} {words}" for side, words in legend_texts(curves).items()]
    if exhibit.shown.known is not None:
        legend.append(f"- {exhibit.shown.known:.4g}: {exhibit.shown.known_is}")
    seeds = len(curves.without)
    mean = f", mean of {seeds} seeds" if seeds > 1 else ""
    return "\n".join([f"{exhibit.shown.unit}{scale}{mean}", *drawn, *feet, *legend])


def _line(share: float) -> int:
    return round((1.0 - share) * (HEIGHT - 1))


def as_svg(exhibit: Exhibit, curves: BugCurves) -> str:
    """The same as a picture in the page's colours, so that it suits light and dark pages."""
    axes = Axes.from_curves(exhibit, curves)
    parts = [f'<path class="axes" d="M{LEFT} 8V{DOWN - BELOW}H{ACROSS - 8}"/>']
    if exhibit.shown.known is not None:
        height = _pixels(axes, 0.0, exhibit.shown.known)[1]
        parts.append(f'<path class="known" d="M{LEFT} {height:.1f}H{ACROSS - 8}"/>')
    for kind, of in (("without", curves.without), ("planted", curves.planted)):
        parts += [_line_of(axes, curve, f"{kind} seed") for curve in of if len(of) > 1]
        parts.append(_line_of(axes, mean_curve(of), kind))
    for value, height in ((axes.high, 14.0), (axes.low, DOWN - BELOW)):
        parts.append(f'<text x="{LEFT - 8}" y="{height}" text-anchor="end">{_label(value)}</text>')
    parts.append(f'<text x="{LEFT}" y="{DOWN - 8}">0</text>')
    parts.append(
        f'<text x="{ACROSS - 8}" y="{DOWN - 8}" text-anchor="end">{axes.last:,.0f}'
        f" {exhibit.shown.along}</text>"
    )
    title = html.escape(f"{exhibit.shown.unit}, with the bug and without")
    return (
        f'<svg class="exhibit" viewBox="0 0 {ACROSS:.0f} {DOWN:.0f}" role="img"'
        f' aria-label="{title}">{"".join(parts)}</svg>'
    )


def _label(value: float) -> str:
    """A number in a few characters, to fit beside the axis."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"


def _line_of(axes: Axes, curve: Sequence[tuple[float, float]] | Curve, kind: str) -> str:
    points = " ".join("{:.1f},{:.1f}".format(*_pixels(axes, step, value)) for step, value in curve)
    return f'<polyline class="{kind}" points="{points}"/>'


def _pixels(axes: Axes, step: float, value: float) -> tuple[float, float]:
    wide, high = ACROSS - 8 - LEFT, DOWN - BELOW - 8
    return LEFT + axes.x_position(step) * wide, 8 + (1.0 - axes.relative_height(value)) * high
