"""Long lines of code, where they go on below on a narrow page: behind their own indentation, so that Python still reads as Python."""

from __future__ import annotations

import html
import re
from typing import Any

from sphinx.application import Sphinx

BLOCK = re.compile(r'(<div class="highlight"><pre>)(.*?)(</pre>)', flags=re.DOTALL)
SHORT = 40                                   # characters that have room on every page
FURTHER = 4                                  # characters by which the rest of a line is set in


def with_hanging_lines(body: str) -> str:
    """The HTML of a page, each long line of its code in a block of its own. The text of the code stays what it was."""
    return BLOCK.sub(lambda block: block[1] + "".join(map(_hanging, block[2].splitlines(keepends=True))) + block[3], body)


def _hanging(line: str) -> str:
    text = html.unescape(re.sub(r"<[^>]+>", "", line)).rstrip("\n")
    if len(text) <= SHORT:
        return line
    indent = len(text) - len(text.lstrip(" ")) + FURTHER
    return f'<span class="hanging" style="--in: {indent}ch">{line}</span>'


def wrap(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if "body" in context:
        context["body"] = with_hanging_lines(context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", wrap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
