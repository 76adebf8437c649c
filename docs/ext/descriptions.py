"""What a page is about, in its head: its first paragraph, for search engines and for programs that
show a link."""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LENGTH = 200  # characters


def describe(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    paragraph = None if doctree is None else next(doctree.findall(nodes.paragraph), None)
    if paragraph is not None:
        words = " ".join(paragraph.astext().split())
        short = words if len(words) <= LENGTH else words[:LENGTH].rsplit(" ", 1)[0] + " …"
        context["metatags"] = (
            context.get("metatags", "") + f'<meta name="description" content="{escape(short)}" />\n'
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
