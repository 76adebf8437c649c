"""Encodes pictures as a GIF, and provides the font for text in them."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageFont

from rlbook.errors import RequestError
from rlbook.plots.figure import FONT

LAST = 1_200  # milliseconds that the end of an episode stays
POWERS = np.array([1, 1 << 8, 1 << 16], np.uint32)  # of red, green and blue in one number


def encode_gif(
    pictures: list[Image.Image], durations: list[int], palette: Image.Image | None = None
) -> bytes:
    """Pictures of one size as a looping GIF; each is shown for its duration, in milliseconds.
    Without a `palette` each has its own."""
    buffer = io.BytesIO()
    first, *rest = (
        [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in pictures]
        if palette is not None
        else quantise_each(pictures)
    )
    first.save(
        buffer, "GIF", save_all=True, append_images=rest, duration=durations, loop=0, optimize=True
    )
    return buffer.getvalue()


def quantise_each(pictures: list[Image.Image]) -> list[Image.Image]:
    """Each picture with its own palette; of 128 colours if it has more than 256."""
    places = np.zeros(1 << 24, np.uint8)  # of each colour, its place in the palette
    indexed = []
    for picture in pictures:
        counted = picture.getcolors(256)
        if counted is None:  # ten times slower than looking them up
            indexed.append(picture.quantize(128, dither=Image.Dither.NONE))
            continue
        colours = np.array([colour for _, colour in counted], np.uint8)
        places[colours.astype(np.uint32) @ POWERS] = np.arange(len(colours))
        pixels = np.asarray(picture.convert("RGBA")).view("<u4")[..., 0]
        found = Image.fromarray(places[pixels & 0xFFFFFF])
        found.putpalette(colours.tobytes())
        indexed.append(found)
    return indexed


def shared_palette(pictures: list[Image.Image], colours: int) -> Image.Image:
    """A picture with the colours of several pictures: with a shared palette, unchanged regions take
    no space in the file."""

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
