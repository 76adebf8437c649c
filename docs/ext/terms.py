"""An index of the book's terms: each with its meaning, and a link to where it stands in bold, which is
where it is defined. Elsewhere, the first use of a term on a page shows its meaning as a tooltip.

{terms}
discount: introduction                       the term, and the chapter that defines it
    How much a reward one step later counts.
termination: introduction = terminate        the same where the chapter writes it otherwise
    The end of an episode because the task is over.
trace: n-step-and-lambda | 资格迹              the same with its name in Chinese
    A number for each visited state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import one_file
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

PAGE = Path(__file__).parent.parent / "terms.md"
LINE = re.compile(
    r"^(?P<term>[^:=\n]+): (?P<chapter>[\w-]+)(?: = (?P<bold>[^|\n]+?))?(?: \| (?P<chinese>.+))?\n"
    r"    (?P<meaning>.+)$",
    flags=re.MULTILINE,
)
SHORT = re.compile(r"^(?P<name>[A-Z][\w-]*[A-Z\d+]\w*): ")  # PPO: several epochs of …
EXPLAINED = ("chapters", "algorithms", "llm")  # folders of pages with tooltips
EVERYWHERE = {"action", "agent", "environment", "return", "reward", "state", "step", "value"}
"""What every page speaks of: a tooltip would only be in the way."""
ELSEWHERE_OTHERWISE = (
    {
        "atom",
        "belief",
        "clone",
        "data set",
        "expert",
        "feature",
        "filter",
        "group",
        "head",
        "label",
        "leaf",
    }
    | {"learner", "loss", "mask", "model", "node", "norm", "optimism", "pair", "potential", "tree"}
    | {"preference", "prior", "query", "ratio", "recipe", "reference", "root", "round", "score"}
    | {"seed", "simulation", "smoothing", "stage", "stale", "standardised", "target", "temperature"}
    | {"tile", "vine", "weights"}
)
"""Words that also have another meaning, so that a tooltip would often show the wrong one."""
QUIET = (
    nodes.title,
    nodes.rubric,
    nodes.reference,
    nodes.literal,
    nodes.strong,
    nodes.math,
    nodes.caption,
    nodes.table,
    nodes.raw,
    nodes.FixedTextElement,
    addnodes.pending_xref,
)
"""In these no term is explained: they have a meaning, a look or a link of their own."""


class Term(NamedTuple):
    term: str
    chapter: str  # the page's name in docs/chapters
    bold: str  # as the chapter writes it
    meaning: str  # a sentence
    chinese: str  # its name in Chinese; empty where that is the English one

    @property
    def anchor(self) -> str:
        return "term-" + re.sub(r"\W+", "-", self.term.lower()).strip("-")

    @property
    def explanation(self) -> str:
        """What a tooltip says."""
        return f"{self.meaning} ({self.chinese})" if self.chinese else self.meaning

    @property
    def page(self) -> str:
        return f"chapters/{self.chapter}"

    @property
    def letter(self) -> str:
        """The one it stands under; a Greek letter's is that of its name."""
        return {"ε": "E", "λ": "L"}.get(self.term[0], self.term[0].upper())

    @property
    def names(self) -> list[str]:
        """The term, and its abbreviation where the meaning begins with one."""
        short = SHORT.match(self.meaning)
        return [self.term, *([short["name"]] if short else [])]

    @property
    def pattern(self) -> str:
        """What a text writes for it: also in the plural, and with a large letter at the start of a
        sentence."""
        return "|".join(map(_written, self.names))


def _written(name: str) -> str:
    if not name.islower():
        return f"{re.escape(name)}(?:s|es)?"
    first, rest = name[0], re.escape(name[1:])
    plural = f"{re.escape(name[1:-1])}(?:y|ies)" if name.endswith("y") else f"{rest}(?:s|es)?"
    return f"[{first}{first.upper()}]{plural}"


def terms() -> list[Term]:
    """As docs/terms.md lists them."""
    text = PAGE.read_text(encoding="utf-8").split("```{terms}\n")[1].split("\n```")[0]
    return [
        Term(
            found["term"],
            found["chapter"],
            found["bold"] or found["term"],
            found["meaning"],
            found["chinese"] or "",
        )
        for found in LINE.finditer(text)
    ]


class Terms(SphinxDirective):
    """The list, letter by letter."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        known = terms()
        if 2 * len(known) != len(self.content):
            raise self.error(
                "each line is `term: chapter` or `term: chapter = as it is written there`, and the"
                " next one, indented, says what it means"
            )
        shown: list[nodes.Node] = []
        for letter in sorted({term.letter for term in known}):
            items = [self._entry(term) for term in known if term.letter == letter]
            shown += [nodes.rubric("", letter), nodes.bullet_list("", *items, classes=["terms"])]
        return shown

    def _entry(self, term: Term) -> nodes.list_item:
        page = self.env.app.builder.get_relative_uri(self.env.docname, term.page)
        link = nodes.reference("", term.term, internal=True, refuri=f"{page}#{term.anchor}")
        name = nodes.inline("", f" {term.chinese}", classes=["language-zh"])
        told = [link, *([name] if term.chinese else []), nodes.Text(f": {term.meaning}")]
        return nodes.list_item("", nodes.paragraph("", "", *told))


class Anchors(SphinxTransform):
    """In a chapter, a place to link to where a term stands in bold for the first time, and an entry
    of the general index for it and for its abbreviation."""

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
            entries = [("single", name, term.anchor, "main", None) for name in term.names]
            place.parent.insert(place.parent.index(place), addnodes.index(entries=entries))


class explained(nodes.inline):
    """A term with its meaning, and a link to its definition."""


def explain_terms(app: Sphinx, document: nodes.document) -> None:
    """Explains the first use of each term on a page that does not define it."""
    folder, _, page = app.env.docname.rpartition("/")
    if folder.split("/")[0] not in EXPLAINED or app.tags.has(one_file.TAG):
        return
    app.env.note_dependency(str(PAGE))
    bold = {node.astext().lower() for node in document.findall(nodes.strong)}
    known = [
        term
        for term in explained_terms(page if folder == "chapters" else "")
        if term.term.lower() not in bold  # this page says what it means here
    ]
    words = "|".join(f"(?P<t{place}>{term.pattern})" for place, term in enumerate(known))
    pattern, seen = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])"), set[str]()
    for text in list(document.findall(nodes.Text)):
        if not any(isinstance(node, QUIET) for node in _above(text)):
            parts = list(_split(text, pattern, known, seen))
            if len(parts) > 1:
                text.parent.replace(text, parts)


def _split(
    text: nodes.Text, pattern: re.Pattern[str], known: list[Term], seen: set[str]
) -> Iterator[nodes.Node]:
    """The text, with a node of its own for each term that was not seen yet."""
    whole, done = text.astext(), 0
    for found in pattern.finditer(whole):
        term = known[int(str(found.lastgroup)[1:])]
        if term.term in seen:
            continue
        seen.add(term.term)
        yield nodes.Text(whole[done : found.start()])
        yield explained("", found[0], meaning=term.explanation, page=term.page, anchor=term.anchor)
        done = found.end()
    yield nodes.Text(whole[done:])


def explained_terms(chapter: str) -> list[Term]:
    """The terms that have a tooltip in a chapter, or in "", a page that is none; the longest first,
    so that of "reward model" all is found."""
    known = terms()
    defined = {name for term in known if term.chapter == chapter for name in (term.term, term.bold)}
    left = defined | EVERYWHERE | ELSEWHERE_OTHERWISE
    shown = [term for term in known if term.term not in left]
    return sorted(shown, key=lambda term: -len(term.term))


def _above(node: nodes.Node) -> Iterator[nodes.Node]:
    while (parent := node.parent) is not None:
        yield parent
        node = parent


def visit_explained(writer: Any, node: explained) -> None:
    page = writer.builder.get_relative_uri(writer.builder.current_docname, node["page"])
    told = {"href": f"{page}#{node['anchor']}", "aria-description": node["meaning"]}
    writer.body.append(writer.starttag(node, "a", "", CLASS="term", **told))


def depart_explained(writer: Any, node: explained) -> None:
    writer.body.append("</a>")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("terms", Terms)
    app.add_transform(Anchors)
    app.connect("doctree-read", explain_terms)
    app.add_node(explained, html=(visit_explained, depart_explained))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
