"""A theorem of a chapter, with its proof folded up, and a list of all of them.

:::{proof} Value iteration is a contraction
:states: what holds, one line
:assumes: under which conditions, one line
:source: where it was proved first, or is proved at length
:exercise: a step that is left to the reader, and how to check it
:tests: tests/docs/test_theorems.py::test_value_iteration_contracts          one or more
The proof.
:::

{theorems}          a list, chapter by chapter
"""

from __future__ import annotations

from typing import Any, ClassVar

import excerpts
from beside import folded_test
from docutils import nodes
from docutils.parsers.rst import directives
from proofs import DOCS, OPTIONS, Theorem, anchor, theorems
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Proof(SphinxDirective):
    """A theorem's title."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = dict.fromkeys(OPTIONS, directives.unchanged_required)

    def run(self) -> list[nodes.Node]:
        missing = [name for name in OPTIONS if name not in self.options]
        if missing:
            raise self.error(f"proof: {missing[0]} is missing")
        try:
            tests = {name: excerpts.source_of_test(name) for name in self.options["tests"].split()}
        except (ValueError, KeyError) as error:
            raise self.error(f"proof: {error}") from None
        for name in tests:
            self.env.note_dependency(str(excerpts.ROOT / name.split("::")[0]))
        title = self.arguments[0]
        statement = [
            f"**{title}.** {self.options['states']}",
            "",
            f"*Assumed:* {self.options['assumes']} *Source:* {self.options['source']}",
        ]
        box = nodes.container(
            "",
            *self.parse_text_to_nodes("\n".join(statement)),
            nodes.raw("", '<details class="proof"><summary>The proof</summary>', format="html"),
            *self.parse_text_to_nodes("\n".join(self.content)),
            nodes.raw("", "</details>", format="html"),
            *self.parse_text_to_nodes(f"*Exercise:* {self.options['exercise']}"),
            *(node for name, source in tests.items() for node in folded_test(name, source)),
            classes=["theorem"],
        )
        box["ids"].append(anchor(title))
        return [box]


class Theorems(SphinxDirective):
    """All of them, each with what it assumes and a link to its proof."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(DOCS / "index.md"))
        shown: list[nodes.Node] = []
        chapter = ""
        for theorem in theorems():
            if theorem.chapter != chapter:
                chapter = theorem.chapter
                self.env.note_dependency(str(DOCS / "chapters" / f"{chapter}.md"))
                shown += self.parse_text_to_nodes(f"From [](chapters/{chapter}.md):")
                shown.append(nodes.bullet_list("", classes=["theorems"]))
            shown[-1] += self._entry(theorem)
        return shown

    def _entry(self, theorem: Theorem) -> nodes.list_item:
        page = self.env.app.builder.get_relative_uri(
            self.env.docname, f"chapters/{theorem.chapter}"
        )
        link = nodes.reference("", theorem.title, internal=True, refuri=f"{page}#{theorem.anchor}")
        said = f"{theorem.states} *Assumed:* {theorem.assumes} *Source:* {theorem.source}"
        first, *others = self.parse_text_to_nodes(said)
        first[:0] = [nodes.strong("", "", link), nodes.Text(". ")]
        return nodes.list_item("", first, *others)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("proof", Proof)
    app.add_directive("theorems", Theorems)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
