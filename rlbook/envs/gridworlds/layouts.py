"""Maze layouts: parsing them from text, checking that they can be solved, and generating random
ones."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

DEFAULT_LAYOUT = """\
S..#G
.#.#.
.#...
...#.
.#...
"""

WALL, START, GOAL, FREE = "#", "S", "G", ". "
LARGEST_SIZE = 500

UP, DOWN, LEFT, RIGHT = range(4)
ACTION_NAMES = ("up", "down", "left", "right")
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""(row, column) offset of each action: up, down, left, right."""


@dataclass(frozen=True)
class Layout:
    """A rectangular map. A state is a cell's index, `row * columns + column`."""

    walls: np.ndarray  # [rows, columns] bool
    start: int  # state the episode begins in
    goal: int  # state that ends the episode

    @property
    def rows(self) -> int:
        return self.walls.shape[0]

    @property
    def columns(self) -> int:
        return self.walls.shape[1]

    @property
    def num_states(self) -> int:
        """The number of cells, walls included; a wall is an unreachable state."""
        return self.walls.size

    def reachable(self) -> np.ndarray:
        """The cells reachable from the start, including the start and the goal, [S] bool."""
        return distances(self.walls, self.start) >= 0


def parse_layout(text: str) -> Layout:
    """Parses a map, one line per row: `#` wall, `S` start, `G` goal, `.` or a space free.
    Surrounding blank lines are ignored.

    Raises:
        ValueError: ragged rows, an unknown character, not exactly one start and one goal, or a goal
            that cannot be reached.
    """
    if not isinstance(text, str):
        raise ValueError(f"layout must be a string with one line a row, got {text!r}.")
    lines = text.strip("\r\n").splitlines()
    if not any(lines):
        raise ValueError("layout must have at least one row, got an empty string.")
    _check_rectangle(lines)
    cells = np.array([list(line) for line in lines])
    walls = cells == WALL
    layout = Layout(
        walls, start=_find_only(cells, START, "start"), goal=_find_only(cells, GOAL, "goal")
    )
    if not layout.reachable()[layout.goal]:
        row, column = divmod(layout.goal, layout.columns)
        raise ValueError(
            f"layout must have a goal that can be reached from the start, but G at row {row},"
            f" column {column} is walled off."
        )
    return layout


def _check_rectangle(lines: list[str]) -> None:
    for row, line in enumerate(lines):
        if len(line) != len(lines[0]):
            raise ValueError(
                f"layout must have rows of equal length, but row {row} has {len(line)} cells and"
                f" row 0 has {len(lines[0])}."
            )
        for column, character in enumerate(line):
            if character not in WALL + START + GOAL + FREE:
                raise ValueError(
                    f"layout may contain '#', 'S', 'G', '.' and ' ', but row {row}, column {column}"
                    f" is {character!r}."
                )


def _find_only(cells: np.ndarray, character: str, name: str) -> int:
    found = np.flatnonzero(cells == character)
    if len(found) != 1:
        raise ValueError(f"layout must have exactly one {name} {character!r}, got {len(found)}.")
    return int(found[0])


def distances(walls: np.ndarray, origin: int) -> np.ndarray:
    """Distances from `origin` to each cell by breadth-first search, [S] int; -1 if unreachable."""
    rows, columns = walls.shape
    blocked = walls.ravel().tolist()
    steps = [-1] * walls.size
    steps[origin] = 0
    queue = deque([origin])
    while queue:
        state = queue.popleft()
        row, column = divmod(state, columns)
        for down, right in MOVES:
            if not (0 <= row + down < rows and 0 <= column + right < columns):
                continue
            neighbour = state + down * columns + right
            if steps[neighbour] < 0 and not blocked[neighbour]:
                steps[neighbour] = steps[state] + 1
                queue.append(neighbour)
    return np.array(steps)


def perfect_maze(size: int, seed: int) -> str:
    """A random perfect maze of `size` × `size` rooms, as text: exactly one path connects any two
    rooms.

    Rooms stand at even rows and columns, the walls or doors between them at odd ones, so the map
    has 2·size - 1 rows and columns. The start is the upper left room, the goal the lower right one.
    The same size and seed give the same maze.

    Source: the "recursive backtracker" (depth-first search in random order), written without
    recursion.
    """
    rng = np.random.default_rng(seed)
    cells = [[WALL] * (2 * size - 1) for _ in range(2 * size - 1)]
    cells[0][0] = "."
    path = [(0, 0)]
    while path:
        row, column = path[-1]
        closed = [
            (down, right)
            for down, right in MOVES
            if _is_wall(cells, row + 2 * down, column + 2 * right)
        ]
        if not closed:
            path.pop()
            continue
        down, right = closed[rng.integers(len(closed))]
        cells[row + down][column + right] = "."
        cells[row + 2 * down][column + 2 * right] = "."
        path.append((row + 2 * down, column + 2 * right))
    cells[0][0], cells[-1][-1] = START, GOAL
    return "\n".join("".join(line) for line in cells)


def _is_wall(cells: list[list[str]], row: int, column: int) -> bool:
    return 0 <= row < len(cells) and 0 <= column < len(cells) and cells[row][column] == WALL
