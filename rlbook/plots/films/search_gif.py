"""The growing tree of a search as a GIF, one frame per simulation; the simulation's path has a red
outline."""

from __future__ import annotations

from PIL import Image, ImageDraw

from rlbook.plots.colours import GREY, INK, PAPER, RED, mix_colours, readable_ink
from rlbook.plots.films.gif_writer import LAST, encode_gif, font, shared_palette
from rlbook.plots.search_layout import RADIUS, WIDEST, Item, Seen, fill, format_value, size_of

LARGEST = 1_000  # pixels that a picture is wide at most
FINER = 2  # drawn so many times larger, and shrunk: smooth edges
FOOT, NARROWEST = 34, 320  # pixels: for the caption, and of a picture
PACE = 250  # milliseconds a frame


def gif_of_search(
    items: list[Item], frames: list[list[Seen]], scale: tuple[float, float], shown: list[int]
) -> bytes:
    """The GIF.

    Args:
        items: circles and diamonds in their places, a parent before its children.
        frames: for each simulation, the visits and the value of each item after it.
        scale: the lowest and the highest value.
        shown: which of the frames become pictures.
    """
    nothing: list[Seen] = [(0, None)] * len(items)
    pictures = []
    for number, before in zip(shown, [None, *shown], strict=False):
        pictures.append(
            _picture(
                items,
                frames[number],
                nothing if before is None else frames[before],
                scale,
                number + 1,
                len(frames),
            )
        )
    return encode_gif(
        pictures, [*[PACE] * (len(pictures) - 1), LAST], palette=shared_palette(pictures[::-1], 200)
    )


def _picture(
    items: list[Item],
    now: list[Seen],
    before: list[Seen],
    scale: tuple[float, float],
    number: int,
    total: int,
) -> Image.Image:

    width, height = size_of(items)
    large = Image.new("RGB", (round(FINER * width), round(FINER * height)), PAPER)
    pencil = ImageDraw.Draw(large)
    changed = [seen != last for seen, last in zip(now, before, strict=True)]
    for item, (visits, _), new in zip(items, now, changed, strict=True):
        if visits and item.parent is not None:
            _line(pencil, item, visits / number, new)
    for item, seen, new in zip(items, now, changed, strict=True):
        if seen[0]:
            _mark(pencil, item, seen, scale, new)
    shrink = min(1.0, LARGEST / width)
    tree = large.resize((round(shrink * width), round(shrink * height)), Image.Resampling.LANCZOS)
    caption = f"simulation {number} of {total}{_favourite(items, now)}"
    words = font(13)
    whole = Image.new("RGB", (max(NARROWEST, tree.width), tree.height + FOOT), PAPER)
    whole.paste(tree, ((whole.width - tree.width) // 2, 0))
    place = whole.width / 2, tree.height + FOOT / 2
    ImageDraw.Draw(whole).text(
        place, caption, fill=mix_colours(INK, GREY, 0.3), font=words, anchor="mm"
    )
    return whole


def _favourite(items: list[Item], now: list[Seen]) -> str:
    """The action at the root with the most visits so far."""
    tried = [
        (visits, item.label)
        for item, (visits, _) in zip(items, now, strict=True)
        if item.parent is items[0] and visits
    ]
    if not tried:
        return ""
    visits, label = max(tried, key=lambda pair: pair[0])
    return f" · most tried: {label} ({visits})"


def _line(pencil: ImageDraw.ImageDraw, item: Item, share: float, new: bool) -> None:
    assert item.parent is not None
    above = item.parent
    ends = (FINER * above.x, FINER * above.y, FINER * item.x, FINER * item.y)
    pencil.line(ends, fill=RED if new else GREY, width=round(FINER * (1 + (WIDEST - 1) * share)))
    if item.label:
        middle = (
            FINER * (above.x + 0.55 * (item.x - above.x)),
            FINER * (above.y + 0.55 * (item.y - above.y)),
        )
        _write(pencil, item.label, middle, 11)


def _mark(
    pencil: ImageDraw.ImageDraw, item: Item, seen: Seen, scale: tuple[float, float], new: bool
) -> None:
    visits, value = seen
    ground = fill(value, scale)
    x, y, r = FINER * item.x, FINER * item.y, FINER * RADIUS
    edge = RED if new else INK
    if item.node >= 0:
        pencil.ellipse(
            (x - r, y - r, x + r, y + r), fill=ground, outline=edge, width=FINER * (3 if new else 1)
        )
    else:
        corners = [(x, y - r), (x + r, y), (x, y + r), (x - r, y)]
        pencil.polygon(corners, fill=ground, outline=edge, width=FINER * (3 if new else 1))
    pencil.text((x, y), str(visits), fill=readable_ink(ground), font=font(FINER * 11), anchor="mm")
    _write(pencil, format_value(value), (x, y + r + FINER * 8), 10)


def _write(pencil: ImageDraw.ImageDraw, text: str, middle: tuple[float, float], size: int) -> None:
    """Text with a pale outline, which is readable even on a line."""
    pencil.text(
        middle,
        text,
        fill=INK,
        font=font(FINER * size),
        anchor="mm",
        stroke_width=FINER,
        stroke_fill=PAPER,
    )
