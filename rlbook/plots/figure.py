"""Figures without pyplot: no global state, no window, and matplotlib is loaded when the first
figure is made."""

from __future__ import annotations

import base64
import contextlib
import html
import io
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbook.errors import RequestError, TrainingError, system_reason
from rlbook.plots.colours import GREY, INK, fraction_rgb
from rlbook.runs.storage.files import CheckpointError, replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150
COLUMN = (
    4.0  # inches, the width of a figure for a phone: on 358 pixels, 9 points are 11 pixels high
)
LEAST_SHARE = 0.8  # of a panel's height that is kept where the panel becomes narrower
NOTEBOOK_DOTS_PER_INCH = 70
FONT = "DejaVu Sans"  # ships with matplotlib
FORMATS = ("png", "svg", "pdf")
SERVED = "JPY_SESSION_NAME"
"""An environment variable of a kernel that a Jupyter server has started for a page."""
DARK_PAGES = ('[data-jp-theme-light="false"]', ".vscode-dark", 'html[theme="dark"]')
"""CSS selectors for a dark page in JupyterLab, VS Code and Colab."""
DARK_PICTURE = "invert(0.93) hue-rotate(180deg)"


@contextlib.contextmanager
def drawing(what: str) -> Iterator[None]:
    """The context of drawing `what`: any error of a library in it becomes one sentence.

    Raises:
        RequestError: something in it raised an exception that is none of this package's.
    """
    try:
        yield
    except (RequestError, TrainingError, CheckpointError):
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or "it does not say why"
        raise RequestError(f"{what} could not be drawn: {type(error).__name__}: {said}") from error


_narrow: ContextVar[bool] = ContextVar("narrow", default=False)


@contextlib.contextmanager
def narrow_column() -> Iterator[None]:
    """Within the context, figures are as wide as a phone's column, with their panels below each
    other; the font size is kept."""
    token = _narrow.set(True)
    try:
        yield
    finally:
        _narrow.reset(token)


def is_narrow() -> bool:
    """Whether figures are currently made for a narrow column; see `narrow_column`."""
    return _narrow.get()


def new_figure(width: float, height: float, narrow_height: float | None = None) -> Figure:
    """An empty figure that can be saved anywhere.

    Args:
        width, height: in inches; in `narrow_column` it is `COLUMN` wide, and `subplots` puts its
            panels below each other.
        narrow_height: how high it is there, of a figure that arranges its panels there itself.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    stacked = is_narrow() and narrow_height is None
    size = (width, height)
    if is_narrow():
        size = (COLUMN, narrow_height or height * kept_share(width))
    figure = _figure_class()(
        figsize=size, dpi=DOTS_PER_INCH, layout="constrained", facecolor="white"
    )
    figure.wide_size = (width, height) if stacked else None
    FigureCanvasAgg(figure)
    return figure


def kept_share(width: float) -> float:
    """The height of a panel of `width` inches in a narrow column, as a fraction of its height."""
    return min(1.0, max(LEAST_SHARE, COLUMN / width))


@cache
def _figure_class() -> type[Any]:
    """A figure class that a notebook displays below the cell even if pyplot, which would register
    this, has not been imported, and that can stack its panels."""
    from matplotlib.figure import Figure

    class BookFigure(Figure):
        wide_size: tuple[float, float] | None = None
        """Its size without a narrow column, in inches; None if panels stay in place."""

        def subplots(self, nrows: int = 1, ncols: int = 1, **options: object) -> Any:
            """As in matplotlib; in a narrow figure each panel has its own row, in an array of the
            requested shape."""
            make: Callable[..., Any] = super().subplots
            if self.wide_size is None or ncols == 1:
                return make(nrows, ncols, **options)
            width, height = self.wide_size
            self.set_size_inches(COLUMN, height * ncols * kept_share(width / ncols))
            options.pop("width_ratios", None)
            panels = make(nrows * ncols, 1, **options)
            return panels if nrows == 1 else panels.reshape(nrows, ncols)

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=NOTEBOOK_DOTS_PER_INCH)
            return buffer.getvalue()

        def _repr_html_(self) -> str | None:
            """The picture for a page that may be dark, if a server shows it; otherwise a PNG alone,
            as in notebooks executed without one."""
            return image_in_cell(self._repr_png_()) if SERVED in os.environ else None

    BookFigure.__name__ = Figure.__name__  # a notebook says <Figure size …>
    return BookFigure


def image_in_cell(data: bytes, alt: str = "") -> str:
    """HTML that shows a PNG or a GIF in a notebook's cell, adapted to a dark page as on the site: a
    picture's lightness is inverted and its hues are kept; a film is dimmed."""
    film = data.startswith(b"GIF")
    name, turned = ("film", "brightness(0.8)") if film else ("picture", DARK_PICTURE)
    where = ", ".join(f"{page} .rlbook-{name}" for page in DARK_PAGES)
    source = f"data:image/{'gif' if film else 'png'};base64,{base64.b64encode(data).decode()}"
    image = f'<img class="rlbook-{name}" alt="{html.escape(alt)}" src="{source}"/>'
    return f"<style>{where} {{ filter: {turned} }}</style>{image}"


def plain_axes(axes: Axes) -> Axes:
    """Axes in the book's style: two spines, a faint grid in the background, unobtrusive ticks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(fraction_rgb(GREY))
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=fraction_rgb(GREY), labelcolor=fraction_rgb(INK), labelsize=9)
    return axes


def words(**extra: str | float | tuple[float, float, float]) -> dict[str, Any]:
    """Keyword arguments for any function that draws text."""
    return {"family": FONT, "color": fraction_rgb(INK), **extra}


def format_of(path: Path) -> str:
    """The image format of a file name.

    Raises:
        RequestError: an ending that is not one of `FORMATS`.
    """
    ending = path.suffix.removeprefix(".").lower()
    if ending not in FORMATS:
        raise RequestError(
            f"the name of a figure must end in {', '.join('.' + name for name in FORMATS)}, got"
            f" {str(path)!r}"
        )
    return ending


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Writes a figure in the format of its file name; the file is replaced completely or not at
    all.

    Raises:
        RequestError: another ending, or a file that cannot be written.
    """
    path = Path(path)
    buffer = io.BytesIO()
    kind = format_of(path)
    with drawing(str(path)):
        figure.savefig(buffer, format=kind, dpi=DOTS_PER_INCH)
    return save_bytes(path, buffer.getvalue())


def save_bytes(path: Path, data: bytes) -> Path:
    """Writes a file, completely or not at all, in a folder that is created if necessary.

    Raises:
        RequestError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    except OSError as error:
        raise RequestError(f"cannot write {path}: {system_reason(error)}") from error
    return path
