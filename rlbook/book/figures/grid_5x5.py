"""The 5 × 5 grid of figures 3.2 and 3.5: its picture, with the two teleports."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from rlbook.book.figures.axes import cells
from rlbook.envs.gridworlds.grids import MARKS, parse_grid
from rlbook.envs.gridworlds.gridworld import LAYOUTS, TELEPORTS, GridWorld
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.plots.colours import INK, Colour, fraction_rgb
from rlbook.plots.figure import words

GAMMA = 0.9
FREE: Colour = (250, 248, 240)


def model() -> TabularMDP:
    """Its tables, S = 25."""
    return GridWorld("5x5").model()


def draw_grid(axes: Axes) -> None:
    """The grid, with an arrow and the reward for each teleport."""
    marks = parse_grid(LAYOUTS["5x5"])
    cells(
        axes,
        [[MARKS[mark] if mark in "abxy" else FREE for mark in row] for row in marks.tolist()],
        "Gridworld",
    )
    for name, end, paid in TELEPORTS:
        (row, column), (below, _) = np.argwhere(marks == name)[0], np.argwhere(marks == end)[0]
        axes.text(
            column, row, name.upper(), ha="center", va="center", **words(color="white", fontsize=11)
        )
        axes.text(column, below, f"{name.upper()}′", ha="center", va="center", **words(fontsize=11))
        axes.annotate(
            "",
            (column + 0.28, below - 0.1),
            (column + 0.28, row + 0.15),
            arrowprops={
                "arrowstyle": "-|>",
                "color": fraction_rgb(INK),
                "connectionstyle": "arc3,rad=-0.25",
                "linewidth": 1.2,
            },
        )
        axes.text(
            column - 0.05,
            (row + below) / 2,
            f"+{paid:g}",
            ha="center",
            va="center",
            **words(fontsize=10),
        )
