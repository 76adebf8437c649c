"""Pages without what surrounds their text for nothing: indentation, and icons that no page shows. On
nearly a thousand pages that is a twentieth of the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ARTICLE = re.compile(r'<article role="main".*</article>', flags=re.DOTALL)
UNUSED = re.compile(r'<symbol id="svg-(?:pencil|eye)".*?</symbol>', flags=re.DOTALL)
"""The icons of links to a page's source, which the site does not have."""


def shrink(page: str) -> str:
    """A page whose article stays as it is."""
    article = ARTICLE.search(page)
    if article is None:
        return page
    before, after = page[: article.start()], page[article.end() :]
    return _frame(before) + article[0] + _frame(after)


def _frame(html: str) -> str:
    return re.sub(r"\s*\n\s*", "\n", UNUSED.sub("", html))


def shrink_pages(app: Sphinx, error: Exception | None) -> None:
    """Writes the finished pages again."""
    if error is not None or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        path.write_text(shrink(page), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the last step of a build."""
    app.connect("build-finished", shrink_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
