"""A grid world to draw, in which nine methods learn or plan step by step: a page in one file.

The methods are written a second time, in JavaScript, because a page from the disk cannot load
Python. Their files lie in `grid_play`, one for each chapter of the book, free of drawing; a test
holds them equal to this package on random worlds.
"""

from __future__ import annotations

from rlbook.plots.pages.templates import fill_template, script_of, text_of

ENGINE = ("world", "planners", "endless", "learners", "search", "run", "presets")
"""The scripts of the methods, in loading order."""
DRAWING = ("words", "board", "curve", "page", "showing", "controls")
"""The scripts of the display."""


def engine() -> str:
    """The methods as one script."""
    return script_of("grid_play", ENGINE)


def page() -> str:
    """The page as HTML."""
    drawing = script_of("grid_play", DRAWING)
    style = text_of("pages/grid_play/page.css")
    return fill_template(
        "pages/grid_play/page.html",
        {
            "style": style,
            "engine": engine(),
            "theme": text_of("pages/theme.js"),
            "drawing": drawing,
        },
    )
