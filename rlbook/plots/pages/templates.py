"""Page templates: HTML with `{{names}}`, filled with texts, scripts and data. Such a page needs no
server and loads nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files

HEAD = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
"""


def text_of(name: str) -> str:
    """A file of `rlbook.plots`, such as "pages/grid_play/world.js"."""
    return files("rlbook.plots").joinpath(name).read_text(encoding="utf-8").rstrip("\n")


def script_of(folder: str, names: Iterable[str]) -> str:
    """Some files of a folder of `rlbook.plots.pages`, without their ".js", as one script."""
    return "\n\n".join(text_of(f"pages/{folder}/{name}.js") for name in names)


def fill_template(name: str, values: dict[str, str]) -> str:
    """The page whose body, from its title on, is a file of `rlbook.plots`, with each `{{name}}`
    replaced by its value."""
    first, *rest = text_of(name).split("{{")
    return (
        HEAD
        + first
        + "".join(values[key] + text for key, _, text in (piece.partition("}}") for piece in rest))
    )


def script_data(data: object) -> str:
    """Data as a JavaScript literal that cannot contain a tag."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
