"""Explains an algorithm from its own file: the idea, the hyper-parameters with their comments, the
metrics, the source."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.util
import inspect
import io
import itertools
import re
import textwrap
import tokenize
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rlbook.ascii_signs import printable
from rlbook.checks import did_you_mean
from rlbook.cli.output import Result, width
from rlbook.diagnosis.glossary import GLOSSARY, descriptions_of, entry_of
from rlbook.errors import RequestError
from rlbook.evaluation.catalogue import example_of
from rlbook.hyperparameters import field_names
from rlbook.registry import (
    ALGORITHMS,
    ALIASES,
    VARIANTS,
    agent_class,
    algorithms,
    list_names,
)

_FOR_TOOLS = re.compile(r"#\s*(type: ignore|pyright:|noqa)")
"""Comments for type checkers and linters, which the help leaves out."""


def summary(algorithm: str) -> str:
    """The first sentence of an algorithm's file, read without importing it."""
    algorithm = ALIASES.get(algorithm, algorithm)
    module = ALGORITHMS.get(algorithm, algorithm).split(":")[0]
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def comments(config: type) -> dict[str, str]:
    """Field name → the comment after or above it, for a dataclass with one field per line."""
    found: dict[str, str] = {}
    for cls in reversed(config.__mro__[:-1]):
        found |= class_comments(cls)
    return {name: found.get(name, "") for name in field_names(config)}


@functools.cache
def class_comments(cls: type) -> dict[str, str]:
    """As `comments`, of the lines of one class alone."""
    return _comments_in(textwrap.dedent(inspect.getsource(cls)))


def _comments_in(source: str) -> dict[str, str]:
    """First name of each line → the comment after it, or else the comment lines right above it."""
    found, first, above = {}, None, []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and _FOR_TOOLS.match(token.string):
            continue
        if token.type == tokenize.COMMENT and first is None:
            above.append(token.string.lstrip("# "))
        elif token.type == tokenize.COMMENT:
            found.setdefault(first, token.string.lstrip("# "))
        elif token.type in (tokenize.NEWLINE, tokenize.NL):
            if above and first is not None:
                found.setdefault(first, " ".join(above))
            above = above if token.line.lstrip().startswith("#") else []
            first = None
        elif token.type == tokenize.NAME and first is None:
            first = token.string
    return found


def explain_name(name: str, *, allow_import: bool = False) -> Result:
    """The explanation of an algorithm or a logged metric; of an algorithm of your own, by
    module:Name, where it may be imported.

    Raises:
        RequestError: neither has this name; the nearest one is given.
    """
    name = entry_of(name)
    if name in GLOSSARY:
        facts = {"number": name, **GLOSSARY[name]._asdict(), "logged_by": descriptions_of(name)}
        return facts, _number_as_text(name, width())
    known = (*ALGORITHMS, *ALIASES, *GLOSSARY)
    if name not in known and ":" not in name:
        hint = (
            _as_hyperparameter(name.replace("-", "_"))
            or did_you_mean(name.lower().replace("-", "_"), known)
            or "; rlbook list algorithms shows the algorithms"
        )
        raise RequestError(f"there is no algorithm and no logged number {name!r}{hint}")
    facts = explanation(name, allow_import=allow_import)
    return facts, as_text(facts, width())


def _as_hyperparameter(name: str) -> str:
    """The ending of an error message about the name of a hyper-parameter; "" for any other name."""
    having = [
        algorithm
        for algorithm, agent in algorithms().items()
        if name in {item.name for item in dataclasses.fields(agent.Config)}
    ]
    if not having:
        return ""
    shown = "ppo" if "ppo" in having else having[0]
    return f"; it is a hyper-parameter of {list_names(having)}: rlbook explain {shown}"


def _number_as_text(name: str, width: int) -> str:
    entry = GLOSSARY[name]
    rows = [
        ("unit", "", entry.unit),
        ("healthy", "", entry.healthy),
        ("otherwise", "", entry.otherwise),
        ("source", "", entry.source),
    ]
    lines = [
        f"{name}: {entry.short}",
        "=" * (len(name) + 1),
        "",
        *_rows([row for row in rows if row[2]], width),
        "",
        "Logged by",
    ]
    for meaning, having in descriptions_of(name).items():
        lines += textwrap.wrap(
            ", ".join(having), width, initial_indent="  ", subsequent_indent="  "
        )
        lines += textwrap.wrap(meaning, width, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(
        [*lines, "", "See it:    FOLDER/metrics.jsonl", "Judge it:  rlbook doctor FOLDER"]
    )


def explanation(algorithm: str, *, allow_import: bool = False) -> dict[str, Any]:
    """Everything that `rlbook explain` shows, as plain JSON types.

    Raises:
        RequestError: no such algorithm.
    """
    agent = agent_class(algorithm, allow_import=allow_import)
    module = inspect.getmodule(agent)
    text, variant = comments(agent.Config), VARIANTS.get(algorithm, {})
    fields = {item.name: item for item in dataclasses.fields(agent.Config)}
    return {
        "algorithm": algorithm,
        "class": f"{agent.__module__}.{agent.__name__}",
        "idea": inspect.getdoc(module) or "",
        "hyperparameters": [
            {"name": name, "default": default_text(fields[name], variant), "meaning": text[name]}
            for name in text
        ],
        "metrics": dict(agent.METRICS),
        "file": inspect.getsourcefile(agent) or "",
    }


def default_text(
    item: dataclasses.Field[Any], variant: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """A field's default, or the value that a variant sets, as typed on the command line."""
    value = (
        item.default_factory() if item.default_factory is not dataclasses.MISSING else item.default
    )
    value = variant.get(item.name, value)
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple | list):
        return " ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def as_text(facts: dict[str, Any], width: int = 100) -> str:
    """An explanation laid out for a terminal."""
    hyperparameters = [
        (item["name"], item["default"], item["meaning"]) for item in facts["hyperparameters"]
    ]
    metrics = [(name, "", meaning) for name, meaning in facts["metrics"].items()]
    name = facts["algorithm"]
    return "\n".join(
        [
            f"{name}  ({facts['class']})",
            "=" * len(name),
            "",
            "\n".join(_fit(facts["idea"], width)),
            "",
            "Hyper-parameters (name, default, meaning)",
            *_rows(hyperparameters, width),
            "",
            "Logged numbers",
            *_rows(metrics, width),
            "",
            f"Read it:  {facts['file']}",
            f"Try it:   rlbook train {example_of(name)}",
        ]
    )


def _fit(idea: str, width: int) -> list[str]:
    """The lines of an idea, with paragraphs wrapped to the terminal's width; an indented line is a
    formula or pseudocode, and is kept."""
    lines: list[str] = []
    for is_prose, block in itertools.groupby(
        idea.splitlines(), lambda line: line[:1] not in ("", " ")
    ):
        told = list(block)
        wide = is_prose and max(map(len, told)) > width
        lines += textwrap.wrap(" ".join(told), width, break_on_hyphens=False) if wide else told
    return lines


def _rows(rows: list[tuple[str, str, str]], width: int) -> list[str]:
    names = max((len(row[0]) for row in rows), default=0)
    defaults = max((len(row[1]) for row in rows), default=0)
    lines: list[str] = []
    for name, default, meaning in rows:
        head = f"  {name:<{names}}  " + (f"{default:<{defaults}}  " if defaults else "")
        shown = printable(meaning)
        lines += textwrap.wrap(
            shown, width, initial_indent=head, subsequent_indent=" " * len(head)
        ) or [head.rstrip()]
    return lines
