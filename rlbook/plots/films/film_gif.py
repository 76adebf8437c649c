"""A film of values as a GIF. Within `rlbook.plots.figure.narrow_column` it is made for a phone,
which shows it half as large: its letters are larger, and cells have no numbers if these would be
too small to read."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from rlbook.plots.colours import GREY, INK, PAPER, mix_colours, readable_ink
from rlbook.plots.figure import is_narrow
from rlbook.plots.films.film import EMPTY, Cell, Film, arrow_outline, arrows_in
from rlbook.plots.films.gif_writer import LAST, encode_gif, font, shared_palette

FINER = 2  # drawn so many times larger, and shrunk: smooth edges
MARGIN = 12  # pixels
BETWEEN = " · "  # the parts of a caption
FAINT = 0.62
EDGE = 1


class Sizes(NamedTuple):
    """In pixels."""

    widest: int = 760
    largest_cell: int = 68
    title: int = 14  # its letters
    caption: int = 13
    mark: float = 0.2  # letters in the corner of a cell, as a fraction of its side
    least: int = 0  # of the numbers in cells; smaller ones are left out
    band: int = 34  # above the cells, and below them for one line of the caption
    line: int = 18  # from a line of the caption to the next
    narrowest: int = 320  # that a line of the caption may always have


ON_A_PHONE = Sizes(716, 140, 24, 22, mark=0.36, least=20, band=54, line=30, narrowest=690)
"""Twice the column of a page that is 390 wide."""


def sizes() -> Sizes:
    return ON_A_PHONE if is_narrow() else Sizes()


def gif_of(film: Film, frames_per_second: float) -> bytes:
    """The film as a GIF that loops, with its last picture held longer."""
    pictures = [
        _picture(film, cells, still.caption)
        for cells, still in zip(film.cells(), film.stills, strict=True)
    ]
    pace = round(1000 / frames_per_second)
    return encode_gif(
        pictures, [*[pace] * (len(pictures) - 1), LAST], palette=shared_palette(pictures, 160)
    )


def board_image(film: Film, cells: list[Cell]) -> tuple[int, Image.Image]:
    """The side of a cell in pixels, and the cells of a moment, drawn `FINER` times larger than they
    are shown."""

    columns, rows = film.size
    size = sizes()
    room = min(size.largest_cell, (size.widest - 2 * MARGIN) // columns, size.widest // rows)
    side = FINER * max(6, room)
    board = Image.new("RGB", (side * columns, side * rows), PAPER)
    pencil = ImageDraw.Draw(board)
    for cell, (column, row) in zip(cells, film.places, strict=True):
        _draw_cell(pencil, cell, film.moves, side * column, side * row, side)
    return side, board


def _picture(film: Film, cells: list[Cell], caption: str) -> Image.Image:
    size = sizes()
    _, large = board_image(film, cells)
    board = large.resize((large.width // FINER, large.height // FINER), Image.Resampling.LANCZOS)
    words = font(size.title), font(size.caption)
    lines = {
        still.caption: _lines(still.caption, words[1], max(board.width, size.narrowest))
        for still in film.stills
    }
    longest = max(
        [
            words[0].getlength(film.title),
            *(words[1].getlength(line) for told in lines.values() for line in told),
        ]
    )
    width = 2 * MARGIN + max(board.width, round(longest))
    foot = size.band + size.line * (max(map(len, lines.values())) - 1)
    whole = Image.new("RGB", (width, size.band + board.height + foot), PAPER)
    whole.paste(board, ((width - board.width) // 2, size.band))
    pen = ImageDraw.Draw(whole)
    pen.text((width / 2, size.band / 2), film.title, fill=INK, font=words[0], anchor="mm")
    for place, line in enumerate(lines[caption]):
        pen.text(
            (width / 2, 1.5 * size.band + board.height + size.line * place),
            line,
            fill=mix_colours(INK, GREY, 0.3),
            font=words[1],
            anchor="mm",
        )
    return whole


def _lines(caption: str, letters: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """A caption in lines of at most `width` pixels, broken between its parts."""
    lines: list[str] = []
    for part in caption.split(BETWEEN):
        longer = BETWEEN.join([*lines[-1:], part])
        if lines and letters.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def _draw_cell(
    pencil: ImageDraw.ImageDraw, cell: Cell, moves: list[list[int]], left: int, top: int, side: int
) -> None:
    size, gap = sizes(), max(EDGE, side // 40)
    if 0.2 * side < FINER * size.least:
        cell = replace(cell, value="")
    pencil.rectangle(
        (left + gap, top + gap, left + side - 1 - gap, top + side - 1 - gap), fill=cell.colour
    )
    ink, middle = readable_ink(cell.colour), (left + side / 2, top + side / 2)
    acting = bool(cell.best or cell.word)
    for taken, (x, y, right, down, width) in arrows_in(cell, moves, numbered=bool(cell.value)):
        colour, tail = (
            ink if taken else mix_colours(ink, cell.colour, FAINT),
            (middle[0] + side * x, middle[1] + side * y),
        )
        if right == down == 0:
            reach = 0.05 * side
            pencil.ellipse(
                (tail[0] - reach, tail[1] - reach, tail[0] + reach, tail[1] + reach), fill=colour
            )
        else:
            pencil.polygon(
                arrow_outline(*tail, side * right, side * down, side * width), fill=colour
            )
    _write(
        pencil, cell.word, (middle[0], middle[1] - 0.16 * side * bool(cell.value)), 0.32 * side, ink
    )
    _write(pencil, cell.value, (middle[0], middle[1] + 0.26 * side * acting), 0.2 * side, ink)
    if cell.ground <= EMPTY:
        _write(pencil, cell.mark, middle, 0.4 * side, ink)
    elif cell.mark:
        _write(pencil, cell.mark, (left + 0.14 * side, top + 0.16 * side), size.mark * side, ink)


def _write(
    pencil: ImageDraw.ImageDraw,
    text: str,
    middle: tuple[float, float],
    size: float,
    ink: tuple[int, int, int],
) -> None:
    if text:
        pencil.text(middle, text, fill=ink, font=font(max(6, round(size))), anchor="mm")
