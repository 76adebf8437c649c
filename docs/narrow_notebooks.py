"""The narrow forms of the pictures that a notebook draws: docs/notebook_outputs.py has them kept in
the notebook's kernel, while it executes the cells, and docs/ext/dark_pictures.py shows them.

A figure is laid out anew after it was displayed: in the column of a phone, its panels below each
other, in letters that can be read there. What it shows stays the same.
"""

from __future__ import annotations

import base64
import io
import itertools
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from picture_files import PHONE, enlarge_letters, shrink, smallest_letters
from PIL import Image

from rlbook.plots.figure import COLUMN, kept_share, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE = 34  # letters of a title or a label that have room
UPWARD = 9  # letters of a label upwards that an inch of a panel has room for
BELOW, ROW = 4.2, 0.2  # of a legend: lines below the panel where it begins, and inches of a row
TITLE = 10.5  # points: a title is not larger


def keep_narrow_forms(folder: str) -> None:
    """Has this kernel write the narrow form of the picture number n that it displays as n.png, from
    0."""
    from IPython.core.formatters import PNGFormatter
    from matplotlib.figure import Figure

    display, numbers = PNGFormatter.__call__, itertools.count()

    def display_and_keep(formatter: PNGFormatter, shown: object) -> Any:
        found = display(formatter, shown)
        if found:
            number = next(numbers)
            if isinstance(shown, Figure) and width_of(found) > PHONE:
                path = Path(folder) / f"{number}.png"
                make_narrow(shown)
                save_figure(shown, path)
                shrink(path, smallest_letters(shown))
        return found

    PNGFormatter.__call__ = display_and_keep  # type: ignore[method-assign]


def width_of(displayed: Any) -> int:
    """Of a PNG as it is sent to be displayed, in pixels."""
    data = displayed[0] if isinstance(displayed, tuple) else displayed
    data = base64.b64decode(data) if isinstance(data, str) else data
    with Image.open(io.BytesIO(data)) as image:
        return image.width


def make_narrow(figure: Figure) -> None:
    """Lays a figure out in the column of a phone."""
    scales = [(bar.mappable, bar.ax.get_ylabel()) for bar in remove_fixed_colorbars(figure)]
    panels: dict[tuple[int, int], list[Axes]] = {}
    columns = rows = 1
    for axes in figure.axes:
        if (place := axes.get_subplotspec()) is not None:
            grids = place.get_gridspec(), place.get_topmost_subplotspec().get_gridspec()
            panels.setdefault((id(grids[0]), place.num1), []).append(axes)
            columns = max(columns, *(grid.ncols for grid in grids))
            rows = max(rows, *(grid.nrows for grid in grids))
    width, height = figure.get_size_inches() / (columns, rows)
    figure.set_layout_engine("constrained")
    height *= kept_share(width)
    figure.set_size_inches(COLUMN, len(panels) * height)
    for mappable, label in scales:
        figure.colorbar(mappable, ax=mappable.axes, label=label)
    grid = figure.add_gridspec(len(panels), 1)
    for row, together in enumerate(panels.values()):
        for axes in together:
            axes.set_subplotspec(grid[row])
            fit_texts(axes, height)
    enlarge_letters(figure)


def remove_fixed_colorbars(figure: Figure) -> list[Any]:
    """Those that would not move with their panels."""
    bars = [getattr(axes, "_colorbar", None) for axes in figure.axes if axes.get_subplotspec()]
    fixed = [bar for bar in bars if bar is not None]
    for bar in fixed:
        bar.remove()
    return fixed


def fit_texts(axes: Axes, height: float) -> None:
    """Breaks what stands around a panel of so many inches into lines, moves its legend below it,
    and numbers the axes that it shares."""
    axes.tick_params(labelbottom=True)
    if axes.yaxis.get_ticks_position() != "right":
        axes.tick_params(labelleft=True)
    lines = {axes.title: LINE, axes.xaxis.label: LINE, axes.yaxis.label: round(height * UPWARD)}
    for text, most in lines.items():
        text.set_text("\n".join(textwrap.fill(line, most) for line in text.get_text().split("\n")))
        text.set_fontsize(min(TITLE, text.get_fontsize()))
    if (legend := axes.get_legend()) is not None:
        written = [text.get_text() for text in legend.get_texts()]
        axes.legend(
            legend.legend_handles,
            written,
            frameon=legend.get_frame_on(),
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            borderaxespad=BELOW,
        )
        figure: Any = axes.get_figure()
        figure.set_figheight(figure.get_figheight() + len(written) * ROW)
