"""The index of terms leads to where each is defined."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("terms", DOCS / "ext" / "terms.py")
assert spec is not None and spec.loader is not None
index = importlib.util.module_from_spec(spec)
sys.modules["terms"] = index
spec.loader.exec_module(index)
TERMS = index.terms()


def bold(chapter: str) -> list[str]:
    """What stands in bold in a chapter, links without their targets."""
    text = (DOCS / "chapters" / f"{chapter}.md").read_text()
    return [
        re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", found)
        for found in re.findall(r"\*\*([^*\n]+)\*\*", text)
    ]


@pytest.mark.parametrize("chapter", sorted(path.stem for path in (DOCS / "chapters").glob("*.md")))
def test_each_term_stands_in_bold_in_the_chapter_that_defines_it(chapter: str) -> None:
    listed = [term.bold for term in TERMS if term.chapter == chapter]
    assert listed, "a chapter that defines nothing"
    assert [term for term in listed if term not in bold(chapter)] == []


def test_terms_are_listed_once_and_in_order() -> None:
    names = [term.term for term in TERMS]
    assert len(names) == len(set(names)) == len({term.anchor for term in TERMS}) > 120
    assert names == sorted(
        names, key=lambda name: name.replace("ε", "epsilon").replace("λ", "lambda").lower()
    )
    lines = (DOCS / "terms.md").read_text().split("```{terms}\n")[1].split("\n```")[0].splitlines()
    assert len(lines) == len(TERMS), "a line that is not read"
