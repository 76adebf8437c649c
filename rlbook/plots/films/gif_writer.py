"""Pictures as a GIF, and the letters in them."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

from PIL import Image, ImageFont

from rlbook.errors import RequestError
from rlbook.plots.figure import FONT

LAST = 1_200  # milliseconds that the end of an episode stays


def encode_gif(
    pictures: list[Image.Image], durations: list[int], palette: Image.Image | None = None
) -> bytes:
    """Pictures of one size as an endless GIF; each stays for its duration, in milliseconds. Without
    a `palette` each has its own."""
    buffer = io.BytesIO()
    first, *rest = [image.quantize(128, palette=palette, dither=0) for image in pictures]  # type: ignore[arg-type]
    first.save(
        buffer, "GIF", save_all=True, append_images=rest, duration=durations, loop=0, optimize=True
    )
    return buffer.getvalue()


def shared_palette(pictures: list[Image.Image], colours: int) -> Image.Image:
    """One picture that has the colours of some of them in it: with one palette, what stays the same
    takes no room in the file."""

    chosen = pictures[:: max(1, len(pictures) // 6)]
    whole = Image.new("RGB", (chosen[0].width, sum(picture.height for picture in chosen)))
    for place, picture in enumerate(chosen):
        whole.paste(picture, (0, place * picture.height))
    # a small disc keeps its colour
    rare = Image.Quantize.MAXCOVERAGE if colours == 256 else Image.Quantize.MEDIANCUT
    return whole.quantize(colours, method=rare, dither=Image.Dither.NONE)


@cache
def font(size: int, *, mono: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu, which ships with matplotlib, at `size` pixels."""
    import matplotlib

    name = FONT.replace(" ", "") + ("Mono" if mono else "")
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
    try:
        return ImageFont.truetype(str(path), size)
    except OSError as error:
        raise RequestError(
            f"the letters of a picture come from {path}, which cannot be read: {error}; install"
            " matplotlib again"
        ) from error
