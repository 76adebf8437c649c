"""The sidebar leads to every page but the modules, which the page of the API lists."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("sphinx")
from docutils.nodes import paragraph
from sphinx import addnodes

spec = importlib.util.spec_from_file_location(
    "short_navigation", Path(__file__).parents[2] / "docs" / "ext" / "short_navigation.py"
)
assert spec is not None and spec.loader is not None
short_navigation = importlib.util.module_from_spec(spec)
spec.loader.exec_module(short_navigation)


def test_modules_are_left_out_and_other_pages_stay() -> None:
    pages = ["api/generated/rlbook", "api/generated/rlbook.agent", "api/generated/internals"]
    others = ["chapters/pixels", "api/generated/index"]
    trees = [addnodes.toctree(entries=[(None, page) for page in some]) for some in (pages, others)]
    tocs = {name: paragraph("", "", tree) for name, tree in zip("ab", trees, strict=True)}
    short_navigation.leave_modules_out(Any, SimpleNamespace(tocs=tocs))
    left = [[page for _, page in tree["entries"]] for tree in trees]
    assert left == [["api/generated/internals"], others]


def part(title: str, *pages: str) -> str:
    """A part of a table of contents, as Sphinx writes it for a page beside these."""
    entries = "".join(
        f'<li class="toctree-l1"><a class="reference internal" href="{page}">{page}</a></li>\n'
        for page in pages
    )
    return f'<p class="caption" role="heading"><span>{title}</span></p>\n<ul>\n{entries}</ul>\n'


def test_a_modules_page_shows_the_page_of_the_api_which_leads_here() -> None:
    other, mine = part("Part I", "../planning.html"), part("Reference", "../a.html", "index.html")
    found = short_navigation.own_part(other + mine + other)
    assert found.replace(" current", "") == part("Reference", "index.html")
    assert found.count("toctree-l1 current") == 1


def test_the_sidebar_of_modules_is_made_once() -> None:
    asked: list[dict[str, Any]] = []

    def toctree(**options: Any) -> str:
        asked.append(options)
        return part("Reference", "index.html")

    known: list[str] = []
    for page in ("api/generated/rlbook.agent", "api/generated/rlbook", "chapters/pixels"):
        context: dict[str, Any] = {"toctree": toctree}
        short_navigation.shorten_navigation(known, Any, page, "page.html", context, None)
        assert ("current" in context["toctree"](collapse=False)) == page.startswith("api")
    assert asked == [{"collapse": True}] * 2
