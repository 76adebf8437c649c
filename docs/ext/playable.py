"""The pages to play with, written into the site when it is built: `{playable} tokens` is a link to
the one of `rlbook play tokens`. On paper the command stands there."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import one_file
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rlbook.plots.pages.play_pages import play

FOLDER = "_play"


class Playable(SphinxDirective):
    """The name of a page; the body is what the link says."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        if self.env.app.tags.has(one_file.TAG):
            return self.parse_text_to_nodes(
                f"{' '.join(self.content)}: `rlbook play {self.arguments[0]} --open`"
            )
        file = f"{FOLDER}/{self.arguments[0]}.html"
        path = Path(self.env.app.outdir) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        play(self.arguments[0], path)
        source = "../" * self.env.docname.count("/") + file
        return [
            nodes.raw(
                "",
                f'<p><a href="{source}"><b>{escape(" ".join(self.content))}</b></a></p>',
                format="html",
            )
        ]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("playable", Playable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
