"""A film of values as a GIF."""

from __future__ import annotations

from PIL import Image, ImageDraw, ImageFont

from rlbook.plots.colours import GREY, INK, PAPER, mix_colours, readable_ink
from rlbook.plots.films.film import EMPTY, Cell, Film, arrow_outline, arrows_in
from rlbook.plots.films.gif_writer import LAST, encode_gif, font, shared_palette

WIDEST, LARGEST_CELL = 760, 68  # pixels
FINER = 2  # drawn so many times larger, and shrunk: smooth edges
HEAD, FOOT, MARGIN = 34, 34, 12  # pixels
LINE = 18  # pixels from a line of the caption to the next
NARROWEST = 320  # pixels that a line of the caption may always have
BETWEEN = " · "  # the parts of a caption
FAINT = 0.62
EDGE = 1


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
    side = FINER * max(6, min(LARGEST_CELL, (WIDEST - 2 * MARGIN) // columns, WIDEST // rows))
    board = Image.new("RGB", (side * columns, side * rows), PAPER)
    pencil = ImageDraw.Draw(board)
    for cell, (column, row) in zip(cells, film.places, strict=True):
        _draw_cell(pencil, cell, film.moves, side * column, side * row, side)
    return side, board


def _picture(film: Film, cells: list[Cell], caption: str) -> Image.Image:

    _, large = board_image(film, cells)
    board = large.resize((large.width // FINER, large.height // FINER), Image.Resampling.LANCZOS)
    words = font(14), font(13)
    lines = {
        still.caption: _lines(still.caption, words[1], max(board.width, NARROWEST))
        for still in film.stills
    }
    longest = max(
        [
            words[0].getlength(film.title),
            *(words[1].getlength(line) for told in lines.values() for line in told),
        ]
    )
    width = 2 * MARGIN + max(board.width, round(longest))
    foot = FOOT + LINE * (max(map(len, lines.values())) - 1)
    whole = Image.new("RGB", (width, HEAD + board.height + foot), PAPER)
    whole.paste(board, ((width - board.width) // 2, HEAD))
    pen = ImageDraw.Draw(whole)
    pen.text((width / 2, HEAD / 2), film.title, fill=INK, font=words[0], anchor="mm")
    for place, line in enumerate(lines[caption]):
        pen.text(
            (width / 2, HEAD + board.height + FOOT / 2 + LINE * place),
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
    gap = max(EDGE, side // 40)
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
        _write(pencil, cell.mark, (left + 0.14 * side, top + 0.16 * side), 0.2 * side, ink)


def _write(
    pencil: ImageDraw.ImageDraw,
    text: str,
    middle: tuple[float, float],
    size: float,
    ink: tuple[int, int, int],
) -> None:
    if text:
        pencil.text(middle, text, fill=ink, font=font(max(6, round(size))), anchor="mm")
