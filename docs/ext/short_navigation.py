"""The sidebar without the modules, and with the pages below another only there: 700 links on each of
1 000 pages were three fifths of the site, and half of the time that it takes to build.

The page of the API has all modules, and the search finds them. A module's page shows that page alone.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from docutils.nodes import document
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

MODULES = "api/generated/rlbook"
"""How the pages of modules begin; they are all in one folder, so that links from them are alike."""
PART = re.compile(r'<p class="caption".*?(?=<p class="caption"|\Z)', flags=re.DOTALL)
HOME = 'toctree-l1"><a class="reference internal" href="index.html"'
OTHER = re.compile(
    r'<li class="toctree-l1">(?!<a class="reference internal" href="index.html").*?</li>\n?'
)
BEFORE_THE_THEME = 400  # furo makes its tree at Sphinx's default, 500


def leave_modules_out(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Takes the modules out of the tables of contents that the sidebar is made of. The order of the
    pages and the lists on them stay."""
    for contents in env.tocs.values():
        for tree in contents.findall(addnodes.toctree):
            tree["entries"] = [
                (title, page) for title, page in tree["entries"] if not page.startswith(MODULES)
            ]
    return []


def own_part(tree: str) -> str:
    """Of a table of contents in parts, each with its caption, the page of the API, below which a
    module is, and the caption over it; that page counts as a part of the way here."""
    part = next((part for part in PART.findall(tree) if HOME in part), tree)
    return OTHER.sub("", part).replace(HOME, HOME.replace('l1"', 'l1 current"'))


def shorten_navigation(
    known: list[str],
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: document | None,
) -> None:
    """Lists what is below a page beside that page alone; all pages of modules have one sidebar,
    which is made once."""
    toctree = context.get("toctree")
    if toctree is None:
        return

    def collapsed(**options: Any) -> str:
        return toctree(**options | {"collapse": True})

    def one_for_all(**options: Any) -> str:
        if not known:
            known.append(own_part(collapsed(**options)))
        return known[0]

    context["toctree"] = one_for_all if pagename.startswith(MODULES) else collapsed


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("env-updated", leave_modules_out)
    shorten = partial(shorten_navigation, [])
    app.connect("html-page-context", shorten, priority=BEFORE_THE_THEME)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
