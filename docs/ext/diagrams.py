"""A diagram of drawings.py, drawn into the page.

{diagram} rlhf
{diagram} backups sarsa q_learning
"""

from __future__ import annotations

from typing import Any

import drawings
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Diagram(SphinxDirective):
    """The name; after `backups`, those of the methods."""

    required_arguments = 1
    optional_arguments = len(drawings.BACKUPS)

    def run(self) -> list[nodes.Node]:
        try:
            svg = drawings.diagram(*self.arguments)
        except KeyError as error:
            raise self.error(f"diagram: there is no {error}") from None
        self.env.note_dependency(drawings.__file__)
        return [nodes.raw("", f'<p class="diagram">{svg}</p>', format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("diagram", Diagram)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
