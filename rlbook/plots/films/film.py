"""A film of values: its moments, and the content of each cell at each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rlbook.plots.boards import GOALS, HOLES
from rlbook.plots.colours import GREEN, INK, PALE, RED, Colour, ramp
from rlbook.plots.value_map import ValueMap, number

Kept = TypeVar("Kept")
NUMBERED = 14  # columns of a film up to which its numbers can be read
WALL, EMPTY, GOAL, HOLE = -1, -2, -3, -4
GROUNDS: dict[int, Colour] = {WALL: INK, EMPTY: PALE, GOAL: GREEN, HOLE: RED}
"""Colours of cells in which no action is chosen."""


@dataclass(frozen=True)
class Still:
    """One moment of a film."""

    charts: list[ValueMap]  # side by side
    caption: str  # when it is, and what has changed


@dataclass(frozen=True)
class Cell:
    """The content of a cell at one moment."""

    ground: int  # 0 to 100, where its value stands between the lowest and the highest; below 0: `GROUNDS`
    value: str  # "" where there is none, or no room
    best: tuple[int, ...]  # actions with an arrow
    taken: int  # the one among them that the agent takes, or -1
    word: str  # the action, where it has no arrow
    mark: str  # S, G and the like

    @property
    def colour(self) -> Colour:
        return GROUNDS[self.ground] if self.ground < 0 else ramp(self.ground / 100)


@dataclass(frozen=True)
class Film:
    """A sequence of moments, all with boards of the same shape."""

    title: str
    stills: list[Still]

    @property
    def places(self) -> list[tuple[int, int]]:
        """(column, row) of each cell from the upper left, boards side by side with a column between
        them."""
        found: list[tuple[int, int]] = []
        left = 0
        for chart in self.stills[0].charts:
            board = chart.board
            for state in range(board.num_states):
                row, column = divmod(state, board.columns)
                found.append((left + column, board.rows - 1 - row if board.upward else row))
            left += board.columns + 1
        return found

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows in all."""
        columns, rows = zip(*self.places, strict=True)
        return max(columns) + 1, max(rows) + 1

    @property
    def moves(self) -> list[list[int]]:
        """[A][2]: where each action's arrow points, (rows down, columns right); [] where actions
        have none."""
        moves = self.stills[0].charts[0].board.moves
        return [] if moves is None else moves.tolist()

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and the highest value of the whole film, in reward units, so that colours mean
        the same throughout."""
        ranges = [chart.range for still in self.stills for chart in still.charts]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def cells(self) -> list[list[Cell]]:
        """The content of each cell for each moment."""
        span, numbered = self.span, self.size[0] <= NUMBERED or len(self.stills[0].charts) > 1
        return [
            [cell for chart in still.charts for cell in _cells(chart, span, numbered)]
            for still in self.stills
        ]


def thin_stills(stills: list[Kept], most: int, *, early: bool = False) -> list[Kept]:
    """At most so many of the stills, the first and the last among them; with `early`, more of the
    earlier ones, as far as there are enough."""
    count = len(stills)
    if count <= most:
        return stills
    places = np.linspace(0, count - 1, most)
    if early:
        growing = np.geomspace(1, count, most)
        places = np.maximum(growing, np.minimum(np.arange(1, most + 1), count)) - 1
    return [stills[place] for place in np.unique(np.minimum(places.round().astype(int), count - 1))]


def _cells(chart: ValueMap, span: tuple[float, float], numbered: bool) -> list[Cell]:
    board, shares = chart.board, chart.shares(span)
    found = []
    for state in range(board.num_states):
        mark, action = board.texts[state], int(chart.policy[state])
        if not board.decided[state]:
            wall = bool(board.walls.flat[state])
            ground = WALL if wall else GOAL if mark in GOALS else HOLE if mark in HOLES else EMPTY
            found.append(Cell(ground, "", (), -1, "", mark))
            continue
        pointing = board.moves is not None and action >= 0
        best = tuple(np.flatnonzero(chart.best[state]).tolist()) if pointing else ()
        word = board.action_text(state, action) if board.moves is None and action >= 0 else ""
        value = number(chart.values[state]) if numbered else ""
        found.append(
            Cell(
                round(100 * float(shares[state])),
                value,
                best,
                action if pointing else -1,
                word,
                mark,
            )
        )
    return found


def arrow_outline(
    x: float, y: float, right: float, down: float, width: float
) -> list[tuple[float, float]]:
    """The seven corners of an arrow from (x, y) to (x + right, y + down), its shaft `width` wide;
    any unit."""
    length = float(np.hypot(right, down))
    along, across = (right / length, down / length), (-down / length, right / length)
    neck, half = max(0.0, length - 2.1 * width), width / 2
    corners = [
        (0, half),
        (neck, half),
        (neck, 2.2 * half),
        (length, 0),
        (neck, -2.2 * half),
        (neck, -half),
        (0, -half),
    ]
    return [
        (x + forth * along[0] + side * across[0], y + forth * along[1] + side * across[1])
        for forth, side in corners
    ]


def arrows_in(
    cell: Cell, moves: list[list[int]], *, numbered: bool
) -> list[tuple[bool, tuple[float, ...]]]:
    """The arrows of a cell, with those not taken first.

    Returns:
        For each whether the agent takes it, and (x, y, right, down, width) of `arrow_outline` in
        cells from the cell's middle; an action that stays has right = down = 0.
    """
    raised, single, several = (0.16, 0.36, 0.22) if numbered else (0.0, 0.6, 0.34)
    alone, found = len(cell.best) == 1, []
    for action in sorted(cell.best, key=lambda action: action == cell.taken):
        down, right = moves[action]
        scale = (single if alone else several) / max(1.0, float(np.hypot(down, right)))
        tail = -0.5 * scale if alone else 0.06 / max(1.0, float(np.hypot(down, right)))
        found.append(
            (
                action == cell.taken,
                (
                    tail * right,
                    tail * down - raised,
                    scale * right,
                    scale * down,
                    0.07 if alone else 0.045,
                ),
            )
        )
    return found
