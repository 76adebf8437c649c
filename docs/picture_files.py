"""A picture's files in docs/figures: NAME.png, and narrow/NAME.png, the same for the column of a
phone, which docs/ext/dark_pictures.py shows there. The pictures of the notebooks, which are stored
in these, have narrow forms too, in narrow/notebooks.

Each PNG knows how large its smallest letters are, so that a test can tell whether they are legible
in a column that is 358 pixels wide.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, PngImagePlugin

from rlbook.plots.figure import DOTS_PER_INCH, narrow_column, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).resolve().parent / "figures"
NARROW = FOLDER / "narrow"
PHONE = 358  # pixels of CSS: the column of a page that is 390 wide
LEAST = (
    9.0  # points: letters of a narrow form that are smaller are drawn so large, 11 pixels of CSS
)
POINTS = "Smallest letters in points"  # a text in the PNG


def narrow_form(picture: Path) -> Path:
    """Where the narrow form of a picture of docs/figures is, if it has one."""
    return NARROW / picture.name


def narrow_form_of_output(picture: bytes) -> Path:
    """Where that of a PNG which is stored in a notebook is, if it has one."""
    return NARROW / "notebooks" / f"{hashlib.sha256(picture).hexdigest()[:16]}.png"


def save_pictures(draw: Callable[[], Figure], picture: Path) -> None:
    """What `draw` draws, and its narrow form."""
    for path, column in (
        (picture, contextlib.nullcontext()),
        (narrow_form(picture), narrow_column()),
    ):
        with column:
            figure = draw()
        if path != picture:
            enlarge_letters(figure)
        save_figure(figure, path)
        shrink(path, smallest_letters(figure))


def enlarge_letters(figure: Figure, least: float = LEAST) -> None:
    """Draws what is written in smaller letters than `least`, in points, in letters of that size."""
    from matplotlib.text import Text

    figure.draw_without_rendering()  # which makes the numbers at the axes
    for text in figure.findobj(Text):
        text.set_fontsize(max(least, text.get_fontsize()))


def smallest_letters(figure: Figure) -> float:
    """In points, of what is written in a figure that has been drawn; an exponent counts as the
    number that it belongs to."""
    from matplotlib.text import Text

    written = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    return min(float(text.get_fontsize()) for text in written)


def shrink(picture: Path, letters: float | None = None) -> None:
    """Rewrites a PNG with at most 96 colours, which takes a third of the room.

    Args:
        letters: how large its smallest letters are, in points; None: not known.
    """
    told = PngImagePlugin.PngInfo()
    if letters is not None:
        told.add_text(POINTS, f"{letters:g}")
    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(96, dither=Image.Dither.NONE)
    small.save(picture, optimize=True, pnginfo=told)


def letters_on_a_phone(picture: Path) -> float | None:
    """How large the smallest letters of a PNG are in the column of a phone, in pixels of CSS; None
    where that is not known."""
    with Image.open(picture) as image:
        points = image.info.get(POINTS)
        width = image.width
    if points is None:
        return None
    return float(points) * DOTS_PER_INCH / 72 * min(1.0, PHONE / width)
