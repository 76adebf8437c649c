"""Renders amounts, such as a gambler's money or the cars at a location, as rows of full and empty
slots, in text and pixels."""

from __future__ import annotations

import numpy as np

from rlbook.envs.gridworlds.layouts import FREE, START
from rlbook.envs.rendering import AGENT, COLOURS, LINE_COLOUR

FULL, EMPTY = "#", "."
CELL = 24
"""Pixels along a slot's side."""


def filled_slots(counts: np.ndarray, capacity: int) -> np.ndarray:
    """Which slots are full, [R, capacity] bool: the first counts[i] of row i."""
    return np.arange(capacity) < np.asarray(counts)[:, None]


def slots_text(filled: np.ndarray, labels: list[str] | None = None) -> str:
    """Slots [R, C] bool as R lines of `#` (full) and `.` (empty), each with its label in front."""
    lines = ["".join(FULL if full else EMPTY for full in row) for row in filled.tolist()]
    if labels is None:
        return "\n".join(lines)
    width = max(map(len, labels))
    return "\n".join(f"{label:<{width}}  {line}" for label, line in zip(labels, lines, strict=True))


def slots_pixels(
    filled: np.ndarray, *, discs: bool = False, marked: np.ndarray | None = None
) -> np.ndarray:
    """Slots [R, C] bool as an image [24 R, 24 C, 3] uint8.

    Args:
        filled: [R, C]; where a square (a disc, with `discs`) is drawn.
        discs: coins rather than cars.
        marked: [R, C] bool, slots with another ground.
    """
    ground = np.array([COLOURS[FREE[0]], COLOURS[START]], dtype=np.uint8)
    image = ground[np.zeros(filled.shape, dtype=int) if marked is None else marked.astype(int)]
    image = image.repeat(CELL, axis=0).repeat(CELL, axis=1)
    offset = np.abs(np.arange(CELL) - (CELL - 1) / 2)
    piece = (
        offset[:, None] ** 2 + offset**2 <= (0.4 * CELL) ** 2
        if discs
        else np.maximum(offset[:, None] * 1.4, offset) <= 0.4 * CELL
    )
    image[np.tile(piece, filled.shape) & filled.repeat(CELL, axis=0).repeat(CELL, axis=1)] = (
        COLOURS[AGENT]
    )
    edge = np.arange(CELL) == 0
    image[np.tile(edge[:, None] | edge, filled.shape)] = LINE_COLOUR
    return image
