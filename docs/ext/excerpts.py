"""Lines of the code and of the tests, found by what they say and not by their numbers, so that a
page cannot show the wrong ones."""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIFFERENCE = re.compile(
    r"^```\{difference\} (\S+) (\S+) (\S+)\n((?::\w+: [^\n]*\n)+)(.*?)^```$",
    flags=re.MULTILINE | re.DOTALL,
)
BESIDE = re.compile(
    r"^```\{beside\} (\S+) (\S+)\n((?::\w+: [^\n]*\n)+)(.*?)^```$", flags=re.MULTILINE | re.DOTALL
)


def lines_of(path: str, name: str) -> list[str]:
    """The lines of a function, or of a method as "Class.method", dedented.

    Args:
        path: from the root of the repository.
        name: of the function.

    Raises:
        ValueError: there is none of this name.
    """
    source = (ROOT / path).read_text(encoding="utf-8")
    node: ast.AST = ast.parse(source)
    for part in name.split("."):
        inner = [item for item in ast.iter_child_nodes(node) if getattr(item, "name", None) == part]
        if len(inner) != 1:
            raise ValueError(f"{path} has no {name}")
        node = inner[0]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return textwrap.dedent("\n".join(source.splitlines()[first - 1 : node.end_lineno])).splitlines()


def excerpt(path: str, name: str, first: str | None = None, last: str | None = None) -> str:
    """The lines from the one that begins with `first` to the next one that begins with `last`, both
    included; None: from or to the end.

    Raises:
        ValueError: there is no such function, or no such line in it.
    """
    lines = lines_of(path, name)
    where = f"{path}, {name}"
    begin = _find(lines, first, 0, where) if first else 0
    end = begin + 1 if first else len(lines)
    if last:
        end = _find(lines, last, begin, where) + 1
    return textwrap.dedent("\n".join(lines[begin:end]))


def body(path: str, name: str) -> list[str]:
    """The lines of a function after its signature and its docstring, dedented."""
    lines = lines_of(path, name)
    definition: ast.AST = ast.parse("\n".join(lines)).body[0]
    assert isinstance(definition, ast.FunctionDef)
    first = definition.body[1 if ast.get_docstring(definition) is not None else 0]
    return textwrap.dedent("\n".join(lines[first.lineno - 1 :])).splitlines()


def difference(path: str, old: str, new: str) -> list[str]:
    """What turns the body of one function into that of another: all lines, each after " ", "-" or
    "+"."""
    whole = difflib.unified_diff(body(path, old), body(path, new), n=10_000, lineterm="")
    return list(whole)[3:]  # after the three lines of a patch's head


def changes(lines: list[str]) -> int:
    """How many lines of a difference go or come."""
    return sum(line[0] in "-+" for line in lines)


def _find(lines: list[str], beginning: str, start: int, where: str) -> int:
    for number in range(start, len(lines)):
        if lines[number].strip().startswith(beginning):
            return number
    raise ValueError(f"no line of {where} begins with {beginning!r}")


def source_of_test(reference: str) -> str:
    """The test that `tests/unit/test_x.py::test_name` names. ValueError where there is none."""
    path, _, name = reference.partition("::")
    if not path.startswith("tests/") or not (ROOT / path).exists():
        raise ValueError(f"there is no file {path}")
    return "\n".join(lines_of(path, name))


def besides(page: str) -> list[tuple[str, str, dict[str, str], str]]:
    """(path, name, options, text) of each equation that stands beside its code on a page of
    Markdown."""
    return [
        (path, name, dict(re.findall(r"^:(\w+): (.*)$", options, flags=re.MULTILINE)), text)
        for path, name, options, text in BESIDE.findall(page)
    ]


def differences(page: str) -> list[tuple[str, str, str, dict[str, str], str]]:
    """(path, old name, new name, options, text) of each difference on a page of Markdown."""
    return [
        (path, old, new, dict(re.findall(r"^:(\w+): (.*)$", options, flags=re.MULTILINE)), text)
        for path, old, new, options, text in DIFFERENCE.findall(page)
    ]
