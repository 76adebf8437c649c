"""Directives for what the code can say itself, so that no page can be out of date.

{pseudocode} ppo         the pseudocode in the docstring of the algorithm's file
{quick-facts} ppo        a table; lines of the body come first, what the class says follows
{hyperparameters} ppo    the fields of the config, with the comments after them
{logged-numbers} ppo     the class's METRICS
{all-logged-numbers}     every logged number, with unit, healthy values and what others mean
{whole-file} ppo         the file, folded up
{environment} Maze-v0    the docstring of an environment
{measured} ppo_maze      results of docs/measure.py with their commands
{ablation} dqn_without   the same of `rlbook ablate`, variant by variant
{one-axis}               how soon tables and networks are near the best policy, by docs/measure.py one_axis
{exercises}              the functions to write, chapter by chapter
{exercises} planning     those of one chapter
{book-figures} 6         the figures of a chapter of Sutton & Barto's book, with their numbers
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from abc import abstractmethod
from pathlib import Path
from typing import Any

import gymnasium
import results
from docutils import nodes
from gymnasium.envs.registration import load_env_creator
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rlbook.agent import Agent, Planner
from rlbook.book.figures import FIGURES, figure_module
from rlbook.cli.explain import comments, default_text
from rlbook.diagnosis import glossary
from rlbook.registry import ALGORITHMS, ALIASES, agent_class

ROOT = Path(__file__).parents[2]
OBSERVATIONS = {
    "index": "one integer",
    "numbers": "one integer, or a vector of numbers",
    "vector": "a vector of numbers",
    "network": "an image, or a vector of numbers",
    "policy": "whatever its policy takes",
    "any": "any",
}
ACTIONS = {
    "discrete": "discrete",
    "discrete only": "discrete, and no continuous ones in bins",
    "any": "discrete or continuous",
    "scaled": "discrete, or a bounded box, scaled to [−1, 1]",
    "scaled box": "a bounded box, scaled to [−1, 1]",
}


def source_path(algorithm: str) -> str:
    """The algorithm's file, from the root of the repository."""
    return ALGORITHMS[algorithm].split(":")[0].replace(".", "/") + ".py"


def pseudocode(algorithm: str) -> str:
    """The longest indented block of the file's docstring."""
    text = inspect.getdoc(inspect.getmodule(agent_class(algorithm))) or ""
    blocks = [
        block
        for block in re.findall(r"(?:^    .*\n?|^\n(?=    ))+", text, flags=re.MULTILINE)
        if block.strip()
    ]
    return inspect.cleandoc(max(blocks, key=lambda block: len(block.splitlines())))


def quick_facts(algorithm: str) -> list[tuple[str, str]]:
    """What the class says about itself."""
    agent, path = agent_class(algorithm), source_path(algorithm)
    lines = (ROOT / path).read_text(encoding="utf-8").count("\n")
    return [
        ("Needs a model of the environment", "yes" if issubclass(agent, Planner) else "no"),
        ("Observations", OBSERVATIONS[agent.observations]),
        ("Actions", ACTIONS[agent.actions]),
        ("Environments side by side", _streams(agent)),
        ("File", f"`{path}`, {lines} lines"),
        ("In the terminal", f"`rlbook explain {algorithm}`"),
    ]


def _streams(agent: type[Agent]) -> str:
    return f"many, {agent.default_num_envs} by default" if agent.batched else "one"


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def environment_docstring(env_id: str) -> str:
    """A section with the docstring of an environment's class, its headings one level deeper."""
    entry_point = gymnasium.registry[f"rlbook/{env_id}"].entry_point
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    return f"## rlbook/{env_id}\n\n" + re.sub(
        r"^## ", "### ", inspect.getdoc(creator) or "", flags=re.MULTILINE
    )


def glossary_entry(name: str) -> str:
    """A section: what a logged number is, its unit, its healthy values, what others mean, and who
    logs it."""
    entry = glossary.GLOSSARY[name]
    rows = [
        ("unit", entry.unit),
        ("healthy", entry.healthy),
        ("otherwise", entry.otherwise),
        ("source", entry.source),
    ]
    said = [
        (", ".join(f"`{who}`" for who in algorithms), meaning)
        for meaning, algorithms in glossary.descriptions_of(name).items()
    ]
    shown = table(("", ""), [row for row in [*rows, *said] if row[1]])
    return (
        f"(metric-{name.replace('_', '-')})=\n###"
        f" {name}\n\n{entry.short[0].upper()}{entry.short[1:]}.\n\n{shown}"
    )


def own_settings(algorithm: str) -> str:
    """What `rlbook train` starts from on the environments that have settings of their own."""
    known = {env: settings for env, settings in agent_class(algorithm).presets.items() if settings}
    if not known:
        return ""
    rows = [
        (env, ", ".join(f"`{name}` {value}" for name, value in settings.items()))
        for env, settings in known.items()
    ]
    return (
        "\n\nOn some environments `rlbook train` starts from other settings; whatever you give goes"
        " first.\n\n" + table(("environment", "settings"), rows)
    )


class Page(SphinxDirective):
    """One argument; produces Markdown."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        for path in (inspect.getsourcefile(type(self)), str(ROOT / "docs" / "results.json")):
            self.env.note_dependency(str(path))
        if self.arguments[0] in ALGORITHMS:
            for suffix in (".py", ".yaml"):
                self.env.note_dependency(
                    str((ROOT / source_path(self.arguments[0])).with_suffix(suffix))
                )
        return self.parse_text_to_nodes(
            self.markdown(self.arguments[0]), allow_section_headings=True
        )

    @abstractmethod
    def markdown(self, argument: str) -> str:
        """What stands there instead of the directive."""


class Pseudocode(Page):
    def markdown(self, argument: str) -> str:
        return f"```text\n{pseudocode(argument)}\n```"


class QuickFacts(Page):
    """And entries of the index, so that the search finds the page by the names that commands take
    and by its title as it is typed."""

    def run(self) -> list[nodes.Node]:
        algorithm = self.arguments[0]
        title = next(self.state.document.findall(nodes.title)).astext()
        aliases = (alias for alias, name in ALIASES.items() if name == algorithm)
        shown = title.replace("'", "’").lower()  # that, the search finds without an entry
        names = [name for name in (algorithm, title, *aliases) if name.lower() != shown]
        anchor = nodes.make_id(f"algorithm-{algorithm}")
        target = nodes.target("", "", ids=[anchor])
        entries = [("single", name, anchor, "main", None) for name in names]
        return [addnodes.index(entries=entries), target, *super().run()]

    def markdown(self, argument: str) -> str:
        own = [
            tuple(part.strip() for part in line.split(":", 1))
            for line in self.content
            if line.strip()
        ]
        return table(("", ""), [*own, *quick_facts(argument)])


class Hyperparameters(Page):
    def markdown(self, argument: str) -> str:
        config = agent_class(argument).Config
        meaning = comments(config)
        rows = [
            (f"`{item.name}`", f"`{default_text(item)}`", meaning[item.name])
            for item in dataclasses.fields(config)
        ]
        return table(("name", "default", "meaning"), rows) + own_settings(argument)


class LoggedNumbers(Page):
    def markdown(self, argument: str) -> str:
        return table(
            ("name", "meaning"),
            [(f"`{name}`", meaning) for name, meaning in agent_class(argument).METRICS.items()],
        )


class Glossary(SphinxDirective):
    """All entries, each with an anchor of its own."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(glossary.ENTRIES))
        text = "\n\n".join(glossary_entry(name) for name in glossary.GLOSSARY)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Exercises(SphinxDirective):
    """What there is to write, with the chapter it belongs to; with a chapter's name, what there is
    to write in it."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        from rlbook.book.exercises.exercise import exercises

        known = exercises().values()
        if not self.arguments:
            rows = [
                f"| `{item.name}` | {item.title} | [](chapters/{item.chapter}.md) |"
                for item in known
                if not item.page
            ]
            rows += [
                f"| `{item.name}` | {item.title} | [](algorithms/{name}.md), {number} |"
                for item in known
                if item.page
                for name, number in [item.page.split()]
            ]
            return self.parse_text_to_nodes(
                "\n".join(["| name | what to write | page |", "|---|---|---|", *rows])
            )
        rows = [
            f"| `{item.name}` | {item.title} |"
            for item in known
            if item.chapter == self.arguments[0]
        ]
        if not rows:
            raise self.error(f"exercises: there are none of the chapter {self.arguments[0]!r}")
        how = " ([how](../exercises.md))" if "exercises" in self.env.found_docs else ""  # on paper
        told = (
            "Functions to write. `rlbook exercise start NAME` writes a file with the question, and"
            f" `rlbook exercise check NAME.py` compares your function with the library's{how}:"
        )
        return self.parse_text_to_nodes(
            "\n".join([told, "", "| name | what to write |", "|---|---|", *rows])
        )


class Course(SphinxDirective):
    """The syllabus, a section a week."""

    def run(self) -> list[nodes.Node]:
        from rlbook.book.assignments.assignment import assignments
        from rlbook.book.course.syllabus import weeks

        self.env.note_dependency(str(ROOT / "rlbook" / "book" / "course" / "syllabus.yaml"))
        tasks = {
            item.week: f"- [Assignment](teach.md#assignments): {item.title}\n"
            for item in assignments().values()
        }
        text = "\n\n".join(
            f"## Week {week.number}: {week.title}\n\n"
            f"- Read: {', '.join(f'[]({page}.md)' for page in week.read)}\n"
            f"- Run: {', '.join(f'[](notebooks/{name}.ipynb)' for name in week.notebooks)}\n"
            f"- Write: {', '.join(f'`{name}`' for name in week.write)}\n"
            f"{tasks.get(week.number, '')}"
            f"- In the lecture: {_as_code(week.show)}\n"
            f"- Read on: {week.further}"
            for week in weeks()
        )
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Assignments(SphinxDirective):
    """Each assignment with its rubric."""

    def run(self) -> list[nodes.Node]:
        from rlbook.book.assignments.assignment import assignments
        from rlbook.book.assignments.hand_out import rubric_table

        text = "\n\n".join(
            f"**`{item.name}`: {item.title}.** Week {item.week}, about {item.hours} hours,"
            f" {item.points} points.\n\n" + "\n".join(rubric_table(item))
            for item in assignments().values()
        )
        return self.parse_text_to_nodes(text)


def _as_code(text: str) -> str:
    """The commands in a sentence as code."""
    return re.sub(r"rlbook [^,]*", lambda found: f"`{found[0]}`", text)


class Environment(Page):
    def markdown(self, argument: str) -> str:
        return environment_docstring(argument)


class Measured(Page):
    """One or more names."""

    optional_arguments = 20
    final_argument_whitespace = False

    def markdown(self, argument: str) -> str:
        missing = [name for name in self.arguments if name not in results.read()]
        if missing:
            raise self.error(f"not measured yet: python docs/measure.py {' '.join(missing)}")
        return results.as_markdown([*self.arguments])


class Ablation(Page):
    def markdown(self, argument: str) -> str:
        if argument not in results.read():
            raise self.error(f"not measured yet: python docs/measure.py {argument}")
        return results.ablation_as_markdown(argument)


class OneAxis(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(results.PATH))
        return self.parse_text_to_nodes(results.one_axis_as_markdown())


class BookFigures(Page):
    """A chapter's number."""

    def markdown(self, argument: str) -> str:
        numbers = [number for number in FIGURES if number.split(".")[0] == argument]
        missing = [number for number in numbers if number not in results.read_figures()]
        if missing or not numbers:
            raise self.error(f"not drawn yet: python docs/measure.py figure_{argument}")
        self.env.note_dependency(str(results.FIGURES))
        return "\n\n".join(self._figure(number) for number in numbers)

    def _figure(self, number: str) -> str:
        text = inspect.getdoc(figure_module(number)) or ""
        self.env.note_dependency(str(inspect.getsourcefile(figure_module(number))))
        return f"## {FIGURES[number]}\n\n{text}\n\n{results.figure_as_markdown(number)}"


class FigureGallery(SphinxDirective):
    """All figures, small, each with a link to its page."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(results.FIGURES))
        known = results.read_figures()
        entries = []
        for number, title in FIGURES.items():
            page = f"chapter-{number.split('.')[0]}.md"
            picture = f"![{title}](/figures/{known[number]['written']})"
            entries.append(f"{picture} [{title}]({page})")
        gallery = nodes.container(
            "", *self.parse_text_to_nodes("\n\n".join(entries)), classes=["gallery"]
        )
        return [gallery]


class WholeFile(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = source_path(self.arguments[0])
        self.env.note_dependency(str(ROOT / path))
        code = nodes.literal_block("", (ROOT / path).read_text(encoding="utf-8"), language="python")
        summary = f"<details><summary>The whole file, <code>{path}</code></summary>"
        return [
            nodes.raw("", summary, format="html"),
            code,
            nodes.raw("", "</details>", format="html"),
        ]


def setup(app: Sphinx) -> dict[str, Any]:
    directives = {
        "pseudocode": Pseudocode,
        "quick-facts": QuickFacts,
        "hyperparameters": Hyperparameters,
        "logged-numbers": LoggedNumbers,
        "environment": Environment,
        "measured": Measured,
        "ablation": Ablation,
        "one-axis": OneAxis,
        "book-figures": BookFigures,
        "figure-gallery": FigureGallery,
        "whole-file": WholeFile,
        "all-logged-numbers": Glossary,
        "exercises": Exercises,
        "course": Course,
        "assignments": Assignments,
    }
    for name, directive in directives.items():
        app.add_directive(name, directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
