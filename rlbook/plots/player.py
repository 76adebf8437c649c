"""Pictures with buttons: one page that needs no server and loads nothing, with play, steps, a slider for the place and one for the speed.

What changes from picture to picture is kept as data; a few lines of script put it into the picture. A page's own script says how:
`put(...change)` applies one change, `reset()` goes back to before the first picture, `shown(frame)` is told which one it is and returns
the caption.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def player_page(
    title: str, picture: str, data: Mapping[str, Any], script: str, *, unit: str, style: str = "", frames_per_second_log2: float = 3.0
) -> str:
    """A page as HTML.

    Args:
        title: of the page.
        picture: SVG to begin with.
        data: what the script reads; `changes` has a list of changes for each picture.
        script: a file beside this one.
        unit: what a picture is called, such as "sweep".
        style: rules of CSS.
        frames_per_second_log2: the speed to begin with, from 0 (one picture a second) to 5 (32).
    """
    known = {
        "title": html.escape(title), "picture": picture, "unit": html.escape(unit), "style": style, "speed": f"{frames_per_second_log2:g}",
        "data": json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/"), "script": _text(script),
    }  # fmt: skip
    page = _text("player.html")
    pieces = page.split("{{")
    return pieces[0] + "".join(known[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces[1:]))


def _text(name: str) -> str:
    return files("rlbook.plots").joinpath(name).read_text(encoding="utf-8").rstrip("\n")
