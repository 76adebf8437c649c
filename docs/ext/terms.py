"""An index of the book's terms: each leads to where it stands in bold, which is where it is
defined.

{terms}
discount: introduction                       the term, and the chapter that defines it
termination: introduction = terminate        the same where the chapter writes it otherwise
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

PAGE = Path(__file__).parent.parent / "terms.md"
LINE = re.compile(
    r"^(?P<term>[^:=\n]+): (?P<chapter>[\w-]+)(?: = (?P<bold>.+))?$", flags=re.MULTILINE
)


class Term(NamedTuple):
    term: str
    chapter: str  # the page's name in docs/chapters
    bold: str  # as the chapter writes it

    @property
    def anchor(self) -> str:
        return "term-" + re.sub(r"\W+", "-", self.term.lower()).strip("-")

    @property
    def letter(self) -> str:
        """The one it stands under; a Greek letter's is that of its name."""
        return {"ε": "E", "λ": "L"}.get(self.term[0], self.term[0].upper())


def terms() -> list[Term]:
    """As docs/terms.md lists them."""
    text = PAGE.read_text(encoding="utf-8").split("```{terms}\n")[1].split("\n```")[0]
    return [
        Term(found["term"], found["chapter"], found["bold"] or found["term"])
        for found in LINE.finditer(text)
    ]


class Terms(SphinxDirective):
    """The list, letter by letter."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        known = terms()
        if len(known) != len(self.content):
            raise self.error(
                "each line is `term: chapter` or `term: chapter = as it is written there`"
            )
        shown: list[nodes.Node] = []
        for letter in sorted({term.letter for term in known}):
            items = [self._entry(term) for term in known if term.letter == letter]
            shown += [nodes.rubric("", letter), nodes.bullet_list("", *items, classes=["terms"])]
        return shown

    def _entry(self, term: Term) -> nodes.list_item:
        page = self.env.app.builder.get_relative_uri(self.env.docname, f"chapters/{term.chapter}")
        link = nodes.reference("", term.term, internal=True, refuri=f"{page}#{term.anchor}")
        return nodes.list_item("", nodes.paragraph("", "", link))


class Anchors(SphinxTransform):
    """In a chapter, a place to link to where a term stands in bold for the first time, and an entry
    of the general index."""

    default_priority = 500

    def apply(self, **options: Any) -> None:
        folder, _, chapter = self.env.docname.rpartition("/")
        here = [term for term in terms() if term.chapter == chapter] if folder == "chapters" else []
        if not here:
            return
        self.env.note_dependency(str(PAGE))
        strong = list(self.document.findall(nodes.strong))
        for term in here:
            place = next((node for node in strong if node.astext() == term.bold), None)
            if place is None:
                continue  # a test says so
            place["ids"].append(term.anchor)
            entry = addnodes.index(entries=[("single", term.term, term.anchor, "main", None)])
            place.parent.insert(place.parent.index(place), entry)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("terms", Terms)
    app.add_transform(Anchors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
