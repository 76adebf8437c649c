"""Renders maps: as text for the terminal, as pixels for videos and notebooks."""

from __future__ import annotations

import numpy as np

from rlbook.envs.gridworlds.layouts import FREE, GOAL, START, WALL, Layout

AGENT = "A"
FREE_COLOUR = (245, 243, 236)
LINE_COLOUR = (205, 203, 196)

COLOURS = {
    WALL: (38, 50, 66),
    FREE[0]: FREE_COLOUR,
    START: (214, 223, 233),
    GOAL: (120, 184, 128),
    AGENT: (204, 92, 60),
}


def draw_text(layout: Layout, state: int) -> str:
    """The map as lines of text, with the agent as `A`."""
    cells = _cells(layout)
    cells.flat[state] = AGENT
    return "\n".join("".join(row) for row in cells)


def draw_pixels(layout: Layout, state: int, cell: int | None = None) -> np.ndarray:
    """The map as an image [H, W, 3] uint8, with `cell` × `cell` pixels per cell and the agent as a
    disc."""
    return draw_cells(
        np.array(
            [[COLOURS[character] for character in row] for row in _cells(layout)], dtype=np.uint8
        ),
        state,
        cell,
    )


def draw_cells(
    colours: np.ndarray, state: int, cell: int | None = None, *, lines: bool = False
) -> np.ndarray:
    """Cells of these colours [rows, columns, 3] as an image [H, W, 3] uint8, with the agent as a
    disc in cell `state`.

    `lines` sets neighbouring cells apart by a line one pixel wide.
    """
    cell = cell or int(np.clip(480 // max(colours.shape[:2]), 4, 48))
    image = colours.repeat(cell, axis=0).repeat(cell, axis=1)
    if lines and cell >= 8:
        image[::cell] = image[:, ::cell] = LINE_COLOUR
    row, column = divmod(state, colours.shape[1])
    offset = np.arange(cell) - (cell - 1) / 2
    disc = offset[:, None] ** 2 + offset[None, :] ** 2 <= (0.36 * cell) ** 2
    image[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell][disc] = COLOURS[AGENT]
    return image


def _cells(layout: Layout) -> np.ndarray:
    """The map as single characters, [rows, columns]."""
    cells = np.where(layout.walls, WALL, FREE[0])
    cells.flat[layout.start] = START
    cells.flat[layout.goal] = GOAL
    return cells
