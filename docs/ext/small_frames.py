"""Pages without what surrounds their text for nothing: indentation, icons, and marks that no style
sheet names. On nearly a thousand pages that is a third of the site.

The icons are in one file for all pages, which puts them in: where a browser runs no scripts, the
menus of a narrow screen have none, and the button between light and dark does nothing anyway.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ARTICLE = re.compile(r'<article role="main".*</article>', flags=re.DOTALL)
UNUSED = re.compile(r'<symbol id="svg-(?:pencil|eye)".*?</symbol>', flags=re.DOTALL)
"""The icons of links to a page's source, which the site does not have."""
USED = re.compile(r'<symbol id="svg-(?!pencil|eye).*?</symbol>', flags=re.DOTALL)
UNSTYLED = re.compile(r'<span class="(?:pre|n|p|w)">((?:[^<]|<wbr ?/?>)*)</span>')
"""A word of code, and a name, a point or a space, which have the colour of the code around them."""
ROOT = re.compile(r'data-content_root="([^"]*)"')
ICONS = "theme-icons.js"
SCRIPT = "document.querySelector('body > svg').insertAdjacentHTML('beforeend', {});\n"


def shrink(page: str) -> str:
    """A page whose article says what it said, in the same places."""
    page = _without_unstyled(page)
    article, root = ARTICLE.search(page), ROOT.search(page)
    if article is None:
        return page
    before, after = page[: article.start()], page[article.end() :]
    if root is not None and USED.search(before):
        loaded = f'<script defer="defer" src="{root[1]}_static/{ICONS}"></script>'
        before = USED.sub("", before).replace("</head>", f"{loaded}\n</head>", 1)
    return _frame(before) + article[0] + _frame(after)


def _without_unstyled(html: str) -> str:
    """The inner ones first: one may stand within another."""
    found = 1
    while found:
        html, found = UNSTYLED.subn(r"\1", html)
    return html


def _frame(html: str) -> str:
    return re.sub(r"\s*\n\s*", "\n", UNUSED.sub("", html))


def theme_icons(page: str) -> str:
    """The script that puts the icons into a page; empty where this page has none."""
    found = _frame("".join(USED.findall(page)))
    return SCRIPT.format(json.dumps(found)) if found else ""


def shrink_pages(app: Sphinx, error: Exception | None) -> None:
    """Writes the finished pages again."""
    if error is not None or app.builder.format != "html":
        return
    icons = ""
    for path in Path(app.outdir).rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        icons = icons or theme_icons(page)
        path.write_text(shrink(page), encoding="utf-8")
    if icons:
        (Path(app.outdir) / "_static" / ICONS).write_text(icons, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the last step of a build."""
    app.connect("build-finished", shrink_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
