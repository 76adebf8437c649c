"""Which pages the chapters are that `make epub` and `make pdf` put into one file, and what becomes of
links to the others."""

from __future__ import annotations

import json
import posixpath
import re
from functools import cache
from pathlib import Path

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
PARTS = ("Foundations", "Part I", "Part II", "Part III")
LEFT_OUT = {"play", "play-tokens", "course"}
LAST = ("terms",)
TOCTREE = re.compile(
    r"^```\{toctree\}\n:caption: (?P<caption>.+)\n:maxdepth: 1\n(?::hidden:\n)?\n(?P<pages>[^`]+)```",
    flags=re.MULTILINE,
)
LINK = re.compile(
    r"(?<!!)\[(?P<text>(?:[^][]|\[[^][]*\])*)\]\((?P<page>[^()#\s:]+)\.(?P<kind>md|ipynb)(?:#[^()\s]*)?\)"
)


@cache
def parts() -> dict[str, list[str]]:
    """What is printed: captions of the first page, each with its pages in order."""
    found = {
        match["caption"]: [name for name in match["pages"].split() if name not in LEFT_OUT]
        for match in TOCTREE.finditer((DOCS / "index.md").read_text(encoding="utf-8"))
    }
    return {**{caption: found[caption] for caption in PARTS}, "Terms": [*LAST]}


def pages() -> set[str]:
    """The names of all pages that are printed; a folder's first page brings those beside it."""
    named = {name for names in parts().values() for name in names}
    folders = {name.removesuffix("/index") for name in named if name.endswith("/index")}
    beside = {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for folder in folders
        for path in (DOCS / folder).glob("*.md")
    }
    return named | beside


def without_other_links(text: str, page: str) -> str:
    """The Markdown of a page in which a link to a page that is not printed is its words."""

    def words(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link["page"]))
        if target in pages():
            return link[0]
        return link["text"] or _title(target, link["kind"])

    return LINK.sub(words, text)


def _title(page: str, kind: str) -> str:
    """What a page or a notebook is called."""
    if kind == "md":
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    else:
        notebook = ROOT / "notebooks" / f"{posixpath.basename(page)}.ipynb"
        text = "".join(json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"])
    found = re.search(r"^# (.+)$", text, flags=re.MULTILINE)
    assert found is not None
    return found[1]
