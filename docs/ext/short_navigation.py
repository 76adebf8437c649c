"""The sidebar without the modules: 700 links on each of 1 000 pages were three fifths of the site.

The page of the API has them all, and the search finds them. A module's own page shows the part that
it belongs to.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

MODULE = re.compile(
    r'<li class="toctree-l\d"><a class="reference internal" href="(?:[^"]*/)?rlbook[\w.]*\.html">'
    r"(?:(?!</a>).)*</a></li>\n?",
    flags=re.DOTALL,
)
PART = re.compile(r'<p class="caption".*?(?=<p class="caption"|\Z)', flags=re.DOTALL)
EMPTY = re.compile(r"<ul>\s*</ul>\n?")
BEFORE_THE_THEME = 400  # furo makes its tree at Sphinx's default, 500


def without_modules(tree: str) -> str:
    """A table of contents as HTML, without the modules but the one that is the page itself."""
    return EMPTY.sub("", MODULE.sub("", tree))


def own_part(tree: str) -> str:
    """Of a table of contents in parts, each with its caption, the one that has the page itself."""
    return "".join(part for part in PART.findall(tree) if 'l1 current"' in part) or tree


def shorten_navigation(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    toctree = context.get("toctree")
    if toctree is None:
        return
    if pagename.startswith("api/generated/"):  # hundreds of pages: not what other pages lead to
        context["toctree"] = lambda **options: own_part(
            without_modules(toctree(**options | {"collapse": True}))
        )
    else:
        context["toctree"] = lambda **options: without_modules(toctree(**options))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", shorten_navigation, priority=BEFORE_THE_THEME)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
