"""The theorems of the chapters, as their Markdown has them; theorems.py shows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent.parent
BLOCK = re.compile(
    r"^(?P<fence>:{3,})\{proof\} (?P<title>[^\n]+)\n(?P<options>(?::\w+: [^\n]+\n)+)"
    r"(?P<text>.*?)^(?P=fence)$",
    flags=re.MULTILINE | re.DOTALL,
)
OPTION = re.compile(r"^:(\w+): (.+)$", flags=re.MULTILINE)
OPTIONS = ("states", "assumes", "source", "exercise", "tests")


class Theorem(NamedTuple):
    title: str
    chapter: str  # the page's name in docs/chapters
    states: str
    assumes: str
    source: str
    exercise: str
    tests: tuple[str, ...]
    text: str  # the proof, as Markdown

    @property
    def anchor(self) -> str:
        return anchor(self.title)


def anchor(title: str) -> str:
    """The place on the page that a theorem's title leads to."""
    return "theorem-" + re.sub(r"[^\w]+", "-", title.lower()).strip("-")


def theorems() -> list[Theorem]:
    """Those of all chapters, in the order of the book."""
    chapters = re.findall(r"^chapters/([\w-]+)$", (DOCS / "index.md").read_text("utf-8"), re.M)
    found = []
    for chapter in chapters:
        text = (DOCS / "chapters" / f"{chapter}.md").read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            said = dict(OPTION.findall(block["options"]))
            *words, tests = (said[name] for name in OPTIONS)
            found.append(
                Theorem(block["title"], chapter, *words, tuple(tests.split()), block["text"])
            )
    return found
