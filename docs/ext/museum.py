"""The pages of the bug museum, drawn from its exhibits.

{bugs}                    every exhibit, by its symptom
{bug} sarsa-with-q-learnings-target          the symptom, the curves, the question; folded, the answer

python docs/ext/museum.py              writes docs/bugs/NAME.md for each exhibit
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rlbook.book.museum.charts import as_svg, legend_texts
from rlbook.book.museum.curves import RECORDED, WITH, WITHOUT, load_curves
from rlbook.book.museum.exhibit import FOLDER, PARTS, Exhibit, exhibits

PAGES = Path(__file__).parents[1] / "bugs"
HEADINGS = {
    "tables": "In tables",
    "networks": "With networks",
    "language models": "With language models",
}


def page(exhibit: Exhibit) -> str:
    """What docs/bugs/NAME.md holds."""
    return f"# {exhibit.bug}\n\n*{exhibit.title}.*\n\n```{{bug}} {exhibit.name}\n```\n"


class Bug(SphinxDirective):
    """An exhibit's name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        exhibit = exhibits()[name]
        folder = FOLDER / exhibit.part.replace(" ", "_")
        for file in (folder / f"{name}.yaml", RECORDED):
            self.env.note_dependency(str(file))
        curves = load_curves(exhibit)
        words = legend_texts(curves)
        legend = [
            f'<span class="{kind}">{words[side]}</span>'
            for side, kind in ((WITHOUT, "without"), (WITH, "planted"))
        ]
        if exhibit.shown.known is not None:
            legend.append(
                f'<span class="known">{exhibit.shown.known:.4g}: {exhibit.shown.known_is}</span>'
            )
        scale = ", on a logarithmic axis" if exhibit.shown.log else ""
        count = (
            "one seed"
            if exhibit.shown.seeds == 1
            else f"{exhibit.shown.seeds} seeds (thin) and their mean"
        )
        picture = f"{as_svg(exhibit, curves)}<p class='exhibit-legend'>{'; '.join(legend)}</p>"
        caption = f"The {exhibit.shown.unit}{scale}: {count}."
        asked = f"**The question.** {exhibit.question}"
        run = (
            f"```sh\n{exhibit.command}\nrlbook bug run {name}     # without the bug and with"
            " it\n```"
        )
        return [
            *self.parse_text_to_nodes(exhibit.symptom),
            nodes.raw("", picture, format="html"),
            *self.parse_text_to_nodes("\n\n".join([caption, asked, run])),
            nodes.raw("", "<details><summary>The answer</summary>", format="html"),
            *self.parse_text_to_nodes(answer(exhibit)),
            nodes.raw("", "</details>", format="html"),
        ]


def answer(exhibit: Exhibit) -> str:
    """The line, why it does that, how it is noticed and where it was met, as Markdown."""
    changed = (
        f"`{exhibit.file}`, line {exhibit.number}:\n\n```diff\n- {exhibit.old}\n+"
        f" {exhibit.new}\n```"
    )
    test = (
        f"```sh\npython -m rlbook.book.museum.planted {exhibit.name} pytest"
        f" {shlex.quote(exhibit.test)}\n```"
    )
    parts = {
        "Why.": exhibit.why,
        "How to notice.": exhibit.notice,
        "Where it was met.": exhibit.seen,
    }
    return "\n\n".join(
        [
            changed,
            *(f"**{name}** {text}" for name, text in parts.items()),
            f"The test that fails with it:\n\n{test}",
        ]
    )


class Bugs(SphinxDirective):
    """All exhibits, part by part."""

    def run(self) -> list[nodes.Node]:
        parts = []
        for part in PARTS:
            rows = [
                f"| [{item.bug}]({item.name}.md) | {item.title} |"
                for item in exhibits().values()
                if item.part == part
            ]
            parts.append(
                "\n".join(
                    [f"**{HEADINGS[part]}**", "", "| the bug | what you see |", "|---|---|", *rows]
                )
            )
        return self.parse_text_to_nodes("\n\n".join(parts))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("bug", Bug)
    app.add_directive("bugs", Bugs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    for item in exhibits().values():
        (PAGES / f"{item.name}.md").write_text(page(item), encoding="utf-8")
