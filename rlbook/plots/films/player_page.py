"""A page of pictures with buttons that needs no server and loads nothing: play, steps, a slider for
the position and one for the speed.

What changes from picture to picture is kept as data; a few lines of script put it into the picture.
A page's own script says how: `put(...change)` applies one change, `reset()` goes back to before the
first picture, `shown(frame)` is told which one it is and returns the caption.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from rlbook.plots.pages.templates import fill_template, script_data, text_of


def player_page(
    title: str,
    picture: str,
    data: Mapping[str, Any],
    script: str,
    *,
    unit: str,
    style: str = "",
    frames_per_second_log2: float = 3.0,
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
        "title": html.escape(title),
        "picture": picture,
        "unit": html.escape(unit),
        "style": style,
        "speed": f"{frames_per_second_log2:g}",
        "data": script_data(data),
        "script": text_of(script),
        "theme": text_of("pages/theme.js"),
    }
    return fill_template("films/player.html", known)
