"""An equation beside the lines that compute it, and below them the tests that hold one to the
other.

    {beside} rlbook/algorithms/tabular/q_learning.py q_learning_update
    :from: target = reward                      the first line begins so; without it, the whole function
    :to: row[action] +=                            the last line begins so; without it, one line
    :tests: tests/unit/algorithms/tabular/test_q_learning.py::test_the_scripted_updates_give_the_recorded_table
                                                one or more
    The equation, and a sentence about it.

And what turns one function into another, below the equation that changes with it:

    {difference} rlbook/book/experiments/ladder.py a2c ppo
    :tests: tests/unit/book/test_ladder.py::test_each_rung_is_the_librarys_update
    The equation, and a sentence about it.
"""

from __future__ import annotations

import html
from typing import Any, ClassVar

import excerpts
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Beside(SphinxDirective):
    """A file and a function."""

    required_arguments = 2
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "from": directives.unchanged_required,
        "to": directives.unchanged_required,
        "tests": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        path, name = self.arguments
        try:
            code = excerpts.excerpt(path, name, self.options.get("from"), self.options.get("to"))
            tests = {
                reference: excerpts.source_of_test(reference)
                for reference in self.options["tests"].split()
            }
        except (ValueError, KeyError) as error:
            raise self.error(f"beside: {error}") from None
        for file in (path, *(reference.split("::")[0] for reference in tests)):
            self.env.note_dependency(str(excerpts.ROOT / file))
        equation = nodes.container(
            "", *self.parse_text_to_nodes("\n".join(self.content)), classes=["beside-equation"]
        )
        caption = nodes.raw(
            "",
            f'<p class="beside-where"><code>{path}</code>, <code>{name}</code></p>',
            format="html",
        )
        right = nodes.container(
            "", nodes.literal_block(code, code, language="python"), caption, classes=["beside-code"]
        )
        folded = [
            node for reference, source in tests.items() for node in folded_test(reference, source)
        ]
        return [nodes.container("", equation, right, classes=["beside"]), *folded]


class Difference(SphinxDirective):
    """A file and two functions."""

    required_arguments = 3
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"tests": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        path, old, new = self.arguments
        try:
            lines = excerpts.difference(path, old, new)
            tests = {
                reference: excerpts.source_of_test(reference)
                for reference in self.options["tests"].split()
            }
        except (ValueError, KeyError) as error:
            raise self.error(f"difference: {error}") from None
        for file in (path, *(reference.split("::")[0] for reference in tests)):
            self.env.note_dependency(str(excerpts.ROOT / file))
        equation = nodes.container(
            "", *self.parse_text_to_nodes("\n".join(self.content)), classes=["beside-equation"]
        )
        where = (
            f"<code>{path}</code>, from <code>{old}</code> to <code>{new}</code>:"
            f" {excerpts.changes(lines)} lines"
        )
        caption = nodes.raw("", f'<p class="beside-where">{where}</p>', format="html")
        code = "\n".join(lines)
        right = nodes.container(
            "", nodes.literal_block(code, code, language="diff"), caption, classes=["beside-code"]
        )
        folded = [
            node for reference, source in tests.items() for node in folded_test(reference, source)
        ]
        return [nodes.container("", equation, right, classes=["beside", "difference"]), *folded]


def folded_test(reference: str, source: str) -> list[nodes.Node]:
    """A test, folded up under the sentence that its name is."""
    path, name = reference.split("::")
    words = html.escape(name.removeprefix("test_").replace("_", " "))
    summary = f'<details class="verified"><summary>Verified: {words}. <code>{path}</code></summary>'
    code = nodes.literal_block(source, source, language="python")
    return [nodes.raw("", summary, format="html"), code, nodes.raw("", "</details>", format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("beside", Beside)
    app.add_directive("difference", Difference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
