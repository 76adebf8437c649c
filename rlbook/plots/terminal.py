"""The terminal as a drawing surface: colour if it is supported and wanted, plain text otherwise."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import sys
from typing import TextIO

import numpy as np

from rlbook.ascii_signs import writable
from rlbook.envs.gridworlds.layouts import MOVES
from rlbook.envs.rendering import AGENT, COLOURS
from rlbook.plots.boards import GOALS, HOLES
from rlbook.plots.colours import (
    GREEN,
    GREY,
    INK,
    PALE,
    PAPER,
    RED,
    Colour,
    mix_colours,
    ramp,
    readable_ink,
)
from rlbook.plots.value_map import ValueMap, number

ARROWED = [*MOVES, (-1, -1), (-1, 1), (1, -1), (1, 1), (0, 0)]
"""Directions, (rows down, columns right), in the order of the arrows."""
ARROWS = "↑↓←→↖↗↙↘·"
PLAIN_ARROWS = "^v<>\\//\\o"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
MARKED = re.compile(r"\x1b\[[0-9;]*m([^\x1b]+)\x1b\[0?m")
HALF_BLOCK = "▀"
RAMP_256: tuple[Colour, ...] = (
    (255, 255, 215),
    (215, 255, 215),
    (175, 215, 215),
    (135, 215, 215),
    (95, 175, 215),
    (95, 135, 175),
    (0, 95, 175),
)
"""`ramp` for a terminal with only 256 colours."""


class Terminal:
    """A text stream and its capabilities.

    Colour needs a terminal that is not "dumb" and a user who has not set NO_COLOR
    (https://no-color.org).
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.is_terminal = self.stream.isatty()
        self.colour = (
            self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        self.true_colour = os.environ.get("COLORTERM") in ("truecolor", "24bit")
        self._drawn = 0  # lines of the last `redraw`

    @property
    def arrows(self) -> str:
        """The arrows up, down, left, right; the four between them; staying."""
        return ARROWS if self._can_write(ARROWS) else PLAIN_ARROWS

    @property
    def agent(self) -> str:
        """The character for the agent."""
        return "●" if self._can_write("●") else "A"

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines; 100 × 40 if there is no terminal to ask."""
        return tuple(shutil.get_terminal_size((100, 40)))  # type: ignore[return-value]

    def write(self, text: str = "") -> None:
        """Writes one or more lines; characters that the stream cannot encode are spelled out
        (`ascii_signs`)."""
        print(writable(text, self.stream.encoding), file=self.stream, flush=True)
        self._drawn = 0

    def redraw(self, text: str) -> None:
        """Replaces the lines written before, so that pictures move; one below the other if this is
        not a terminal."""
        if self._drawn:
            self.stream.write(
                "\x1b[H\x1b[J" if self._drawn >= self.size[1] else f"\x1b[{self._drawn}F\x1b[J"
            )
        self.write(text if self.is_terminal else text + "\n")
        self._drawn = self._lines_of(text) if self.is_terminal else 0

    def _lines_of(self, text: str) -> int:
        """The number of terminal lines that a text takes; one that is too wide takes several."""
        columns = max(1, self.size[0])
        return sum(max(1, -(-visible_length(line) // columns)) for line in text.split("\n"))

    def paint(
        self,
        text: str,
        *,
        ink: Colour | None = None,
        paper: Colour | None = None,
        bold: bool = False,
    ) -> str:
        """`text` in colours; unchanged if there are none."""
        codes = [*(["1"] if bold else []), *self._codes(38, ink), *self._codes(48, paper)]
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self.colour and codes else text

    def ramp(self, share: float) -> Colour:
        """The colour of a value at fraction `share`, from 0 to 1, between the lowest and the
        highest."""
        return (
            ramp(share)
            if self.true_colour
            else RAMP_256[min(int(share * len(RAMP_256)), len(RAMP_256) - 1)]
        )

    def faint(self, text: str) -> str:
        """Text in a faint style."""
        return self.paint(text, ink=GREY)

    def bold(self, text: str) -> str:
        """Text in bold."""
        return self.paint(text, bold=True)

    def own_colours(self, text: str) -> str:
        """Text that arrived coloured (gymnasium marks the agent so); without colour, the marked
        part is in brackets."""
        return text if self.colour else ESCAPE.sub("", MARKED.sub(r"[\1]", text))

    def _codes(self, layer: int, colour: Colour | None) -> list[str]:
        if colour is None:
            return []
        return (
            [str(layer), "2", *map(str, colour)]
            if self.true_colour
            else [str(layer), "5", str(nearest_256(colour))]
        )

    def _can_write(self, text: str) -> bool:
        try:
            text.encode(self.stream.encoding or "utf-8")
        except UnicodeEncodeError:
            return False
        return True


@functools.lru_cache(maxsize=4096)
def nearest_256(colour: Colour) -> int:
    """The nearest of the 256 colours that every terminal has: a grey for what is nearly grey or
    nearly black, otherwise one of the 6 × 6 × 6 cube."""
    if min(colour) >= 247:
        return 231  # white
    if max(colour) - min(colour) <= 16 or max(colour) < 80:
        return 232 + int(np.clip(round((sum(colour) / 3 - 8) / 10), 0, 23))
    levels = np.array([0, 95, 135, 175, 215, 255])
    red, green, blue = (int(np.abs(levels - channel).argmin()) for channel in colour)
    return 16 + 36 * red + 6 * green + blue


def visible_length(text: str) -> int:
    """The number of columns of a line, without its colour codes."""
    return len(ESCAPE.sub("", text))


# Mazes


def value_map_text(chart: ValueMap, terminal: Terminal, agent: int | None = None) -> str:
    """A value map as text: in each cell the greedy action and the value, or the action alone if the
    map is too wide for both.

    Without colour, walls are blocks of #. `agent` is the cell in which the agent is to be seen.
    """
    width = 7
    if (
        chart.board.columns * width > terminal.size[0]
        or 3 * chart.board.rows + 2 > terminal.size[1]
    ):
        rows = [_compact_row(chart, row, terminal, agent) for row in _rows(chart)]
        return "\n".join(rows)
    lines = [line for row in _rows(chart) for line in _tall_row(chart, row, width, terminal, agent)]
    low, high = chart.range
    return "\n".join(
        [*lines, terminal.faint(f"{chart.meaning}, from {_number(low)} to {_number(high)}")]
    )


def _rows(chart: ValueMap) -> list[int]:
    """The rows from the top down."""
    return [*range(chart.board.rows)][:: -1 if chart.board.upward else 1]


def _number(value: float) -> str:
    return number(value).replace("−", "-")


def _tall_row(
    chart: ValueMap, row: int, width: int, terminal: Terminal, agent: int | None
) -> list[str]:
    """Three lines per row, the last one empty, so that cells look square."""
    lines, shares = ["", "", ""], chart.shares()
    for state in range(row * chart.board.columns, (row + 1) * chart.board.columns):
        for index, text in enumerate(_cell(chart, state, width, terminal.arrows)):
            shown = terminal.agent.center(width) if state == agent and index == 0 else text
            lines[index] += _paint_map(chart, shares, state, shown, terminal, here=state == agent)
    return lines


def _cell(chart: ValueMap, state: int, width: int, arrows: str) -> tuple[str, str, str]:
    """The content of a cell: three lines of `width` characters."""
    empty, text = " " * width, chart.board.texts[state]
    if chart.board.walls.flat[state]:
        return "#" * width, "#" * width, "#" * width
    if not chart.is_decision[state]:
        return empty, text.center(width), empty
    action = (text or " ")[0] + _action(chart, state, arrows).center(width - 2) + " "
    return action, _number(chart.values[state]).center(width), empty


def _action(chart: ValueMap, state: int, arrows: str) -> str:
    """The greedy action in one or two characters; nothing if the agent only predicts."""
    action = int(chart.policy[state])
    if action < 0:
        return ""
    if chart.board.moves is None:
        return chart.board.action_text(state, action).replace("−", "-")
    return arrows[ARROWED.index(tuple(chart.board.moves[action].tolist()))]


def _compact_row(chart: ValueMap, row: int, terminal: Terminal, agent: int | None) -> str:
    """One line per row, two characters per cell."""
    cells, shares = [], chart.shares()
    for state in range(row * chart.board.columns, (row + 1) * chart.board.columns):
        inside = (
            _action(chart, state, terminal.arrows)
            if chart.is_decision[state]
            else chart.board.texts[state]
        )
        inside = terminal.agent if state == agent else inside
        text = "##" if chart.board.walls.flat[state] else f"{inside:<2}"
        cells.append(_paint_map(chart, shares, state, text, terminal, here=state == agent))
    return "".join(cells)


def _paint_map(
    chart: ValueMap,
    shares: np.ndarray,
    state: int,
    text: str,
    terminal: Terminal,
    *,
    here: bool = False,
) -> str:
    if here:
        return terminal.paint(text, ink=PAPER, paper=COLOURS[AGENT], bold=True)
    if chart.board.walls.flat[state]:
        return terminal.paint(text, ink=INK, paper=INK)
    if chart.is_decision[state]:
        paper = terminal.ramp(float(shares[state]))
        return terminal.paint(text, ink=readable_ink(paper), paper=paper)
    mark = chart.board.texts[state]
    return (
        terminal.paint(text, ink=PAPER, paper=RED if mark in HOLES else GREEN, bold=True)
        if mark in (*GOALS, *HOLES)
        else text
    )


# Pictures


def picture_text(picture: np.ndarray, terminal: Terminal) -> str:
    """An image [H, W, 3] uint8 as half blocks: two pixels per character, one above the other, as
    large as the terminal allows. Needs colour."""
    columns, lines = terminal.size
    height, width = picture.shape[:2]
    scale = min((columns - 1) / width, 2 * (lines - 4) / height)
    if scale >= 2:  # of a small picture, each pixel becomes a square
        fitted = picture.repeat(int(scale), axis=0).repeat(int(scale), axis=1)
    else:
        rows = max(2, int(height * min(1.0, scale)) // 2 * 2)
        fitted = _shrunk(picture, rows, max(1, int(width * min(1.0, scale))))
    if len(fitted) % 2:
        fitted = np.concatenate([fitted, fitted[-1:]])
    return "\n".join(
        _half_blocks(fitted[row], fitted[row + 1], terminal) for row in range(0, len(fitted), 2)
    )


def _half_blocks(uppers: np.ndarray, lowers: np.ndarray, terminal: Terminal) -> str:
    """Two rows of pixels, each [W, 3]; adjacent ones with the same colours are painted together."""
    pairs = zip(map(_colour, uppers), map(_colour, lowers), strict=True)
    return "".join(
        terminal.paint(HALF_BLOCK * len([*same]), ink=ink, paper=paper)
        for (ink, paper), same in itertools.groupby(pairs)
    )


def _shrunk(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """A smaller image [height, width, 3]: the mean of the pixels that coincide."""
    rows = np.linspace(0, picture.shape[0], height + 1).astype(int)[:-1]
    columns = np.linspace(0, picture.shape[1], width + 1).astype(int)[:-1]
    sums = np.add.reduceat(
        np.add.reduceat(picture.astype(np.float64), rows, axis=0), columns, axis=1
    )
    counts = (
        np.diff([*rows, picture.shape[0]])[:, None] * np.diff([*columns, picture.shape[1]])[None, :]
    )
    return np.round(sums / counts[..., None]).astype(np.uint8)


def _colour(pixel: np.ndarray) -> Colour:
    red, green, blue = pixel.tolist()
    return red, green, blue


def advantage_paper(advantage: float, largest: float) -> Colour | None:
    """The background of a token by its advantage: green above 0, red below; the stronger the
    further from 0."""
    if largest <= 0 or abs(advantage) < 1e-9:
        return None
    return mix_colours(
        PALE, GREEN if advantage > 0 else RED, min(1.0, 0.25 + 0.75 * abs(advantage) / largest)
    )
