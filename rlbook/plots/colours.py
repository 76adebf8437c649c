"""The book's colours, the same in figures and in the terminal: (red, green, blue), each from 0 to
255."""

from __future__ import annotations

import numpy as np

Colour = tuple[int, int, int]

INK: Colour = (38, 50, 66)
GREY: Colour = (128, 134, 143)
PALE: Colour = (235, 235, 232)
PAPER: Colour = (255, 255, 255)
GREEN: Colour = (88, 160, 98)
RED: Colour = (204, 92, 60)
CURVES: tuple[Colour, ...] = (
    (31, 98, 158),
    (217, 110, 30),
    (44, 138, 96),
    (168, 84, 150),
    (120, 96, 60),
    (90, 170, 200),
)
"""One for each learning curve, in order: distinguishable with colour blindness, too."""
RAMP: tuple[Colour, ...] = ((246, 240, 220), (150, 196, 201), (36, 90, 140))
"""From the lowest value to the highest."""


def ramp(fraction: float) -> Colour:
    """The colour at `fraction` in [0, 1] of `RAMP`."""
    places = np.linspace(0.0, 1.0, len(RAMP))
    red, green, blue = (
        round(float(np.interp(fraction, places, channel))) for channel in zip(*RAMP, strict=True)
    )
    return red, green, blue


def mix_colours(first: Colour, second: Colour, fraction: float) -> Colour:
    """`first` at 0, `second` at 1."""
    red, green, blue = (round(a + (b - a) * fraction) for a, b in zip(first, second, strict=True))
    return red, green, blue


def readable_ink(background: Colour) -> Colour:
    """A readable text colour: ink on light colours, paper on dark ones."""
    red, green, blue = background
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER


def fraction_rgb(colour: Colour) -> tuple[float, float, float]:
    """The colour in matplotlib's format: three numbers from 0 to 1."""
    red, green, blue = colour
    return red / 255, green / 255, blue / 255
