"""A film of values as a page with play and step buttons, a slider for the position and one for the
speed; see `player_page`."""

from __future__ import annotations

import html
from typing import Any

from rlbook.plots.colours import INK, RAMP
from rlbook.plots.figure import FONT
from rlbook.plots.films.film import EMPTY, GOAL, GROUNDS, HOLE, WALL, Cell, Film
from rlbook.plots.films.player_page import player_page

SIDE = 60  # units of the picture a cell is wide
WIDEST = 760  # pixels
NARROW = 9  # columns up to which the numbers can be read on a phone
PHONE = f"""@media (max-width: 30rem) {{
    .value {{ display: none; }}
    .action {{ transform: translateY({0.24 * SIDE:g}px) scale(1.5); }}
  }}"""
"""The style for phones, where numbers would be too small to read: colours remain, and arrows
replace the numbers."""


def page_of(film: Film, *, unit: str) -> str:
    """The film as HTML; `unit` is the name of a step, such as "sweep"."""
    columns, rows = film.size
    width, height = columns * SIDE, rows * SIDE
    picture = (
        f'<svg id="board" role="img" aria-label="{html.escape(film.title)}"'
        f' xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{min(width, WIDEST)}" font-family="{FONT}, sans-serif" text-anchor="middle"'
        ' dominant-baseline="central"></svg>'
    )
    data = {
        "title": film.title,
        "captions": [still.caption for still in film.stills],
        "places": film.places,
        "moves": film.moves,
        "side": SIDE,
        "ramp": RAMP,
        "grounds": [GROUNDS[ground] for ground in (WALL, EMPTY, GOAL, HOLE)],
        "ink": "#" + bytes(INK).hex(),
        "changes": changes(film.cells()),
    }
    heading = f"<p><b>{html.escape(film.title)}</b></p>\n"
    style = PHONE if columns > NARROW else ""
    return player_page(
        film.title,
        heading + picture,
        data,
        "films/film_page.js",
        unit=unit,
        style=style,
        frames_per_second_log2=2.0,
    )


def changes(moments: list[list[Cell]]) -> list[list[list[Any]]]:
    """For each moment the cells that differ from the previous one: [index, ground, value, best,
    taken or word, mark]."""
    found, before = [], [None] * len(moments[0])
    for cells in moments:
        found.append(
            [
                [
                    index,
                    cell.ground,
                    cell.value,
                    list(cell.best),
                    cell.word or cell.taken,
                    cell.mark,
                ]
                for index, cell in enumerate(cells)
                if cell != before[index]
            ]
        )
        before = list(cells)
    return found
