"""Maps of cells for rendering, as text and as pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlbook.envs.gridworlds.layouts import FREE, WALL
from rlbook.envs.rendering import AGENT, COLOURS, FREE_COLOUR, draw_cells

MARKS = COLOURS | {
    "T": COLOURS["G"],  # a cell that ends the episode
    "a": (76, 120, 182),
    "x": (190, 208, 232),  # from a to x
    "b": (140, 100, 168),
    "y": (216, 202, 228),  # from b to y
}
"""The possible marks of a cell, and their colours."""


@dataclass(frozen=True)
class Grid:
    """A rectangular map; a state is a cell's index, `row * columns + column`."""

    marks: np.ndarray  # [rows, columns] of one character each, out of `MARKS`
    # [rows, columns, 3] uint8, the colour of free cells; None: one colour for all
    ground: np.ndarray | None = None
    footer: str = ""  # a line below the map, in text

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.marks.shape
        return rows, columns

    @property
    def walls(self) -> np.ndarray:
        """[rows, columns] bool."""
        return self.marks == WALL

    def draw_text(self, state: int) -> str:
        """The map as lines of text, with the agent as `A`."""
        cells = self.marks.copy()
        cells.flat[state] = AGENT
        lines = ["".join(row) for row in cells.tolist()]
        return "\n".join([*lines, self.footer] if self.footer else lines)

    def draw_pixels(self, state: int) -> np.ndarray:
        """The map as an image [H, W, 3] uint8, with lines between the cells and the agent as a
        disc."""
        colours = np.array(
            [[MARKS[mark] for mark in row] for row in self.marks.tolist()], dtype=np.uint8
        )
        if self.ground is not None:
            free = self.marks == FREE[0]
            colours[free] = self.ground[free]
        return draw_cells(colours, state, lines=True)


def parse_grid(text: str) -> np.ndarray:
    """Parses lines of text into an array of marks [rows, columns]."""
    return np.array([list(line) for line in text.split()])


def shade(strength: np.ndarray) -> np.ndarray:
    """Colours of free cells [..., 3] uint8, bluer for higher `strength` in [0, 1]."""
    light, deep = np.array(FREE_COLOUR, dtype=float), np.array((150, 180, 214), dtype=float)
    return np.round(light + strength[..., None] * (deep - light)).astype(np.uint8)
