"""The source of some functions with everything from this package that they use, as one Python file.

Each name that a piece of code reads is looked up in the module where the code stands. A function, a
class or a constant of rlbook joins the file with its own source, and is read in turn; a module of
rlbook is copied beside it; what belongs to another library is imported. Where two modules use one
name for two things, the second thing gets another name.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

OWN = "rlbook"
OF_EVERY_MODULE = ("__file__", "__name__", "__doc__")
"""Names that Python gives to any file, the exported one too."""
Piece = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


class SourceFile:
    """Collects pieces of source in an order in which Python can run them.

    Attributes:
        modules: name of a copied file → its text.
    """

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}
        self._imports: set[str] = set()
        self._pieces: list[str] = []
        self._names: dict[str, str] = {}  # "module.name" → the name in this file

    def add(self, function: Callable[..., Any] | type, name: str | None = None) -> str:
        """Adds a function or a class with everything that it uses.

        Args:
            function: of a module whose source can be read.
            name: what it is called in the file; None for its own name.

        Returns:
            The name that it has in the file: a number is appended where `name` is taken.
        """
        source = textwrap.dedent(inspect.getsource(function))
        if "." in function.__qualname__:  # a static method becomes a function
            source = source.replace("@staticmethod\n", "", 1)
        home = sys.modules[function.__module__]
        return self._add_piece(function.__qualname__, name or function.__name__, source, home)

    def imports(self, *lines: str) -> None:
        """Adds import statements."""
        self._imports.update(lines)

    def text(self, head: str, tail: str = "") -> str:
        """The file: a docstring, the imports, the pieces, and further lines."""
        lines = f'"""{head}"""\n\nfrom __future__ import annotations\n\n' + self._import_lines()
        parts = [lines, *(piece.strip() for piece in self._pieces), tail.strip()]
        return "\n\n\n".join(part for part in parts if part) + "\n"

    def _import_lines(self) -> str:
        whole = sorted(line for line in self._imports if line.startswith("import"))
        parts: dict[str, list[str]] = {}
        for line in sorted(self._imports - {*whole}):
            module, _, name = line.removeprefix("from ").partition(" import ")
            parts.setdefault(module, []).append(name)
        return "\n".join(
            [*whole, *(f"from {module} import {', '.join(parts[module])}" for module in parts)]
        )

    def _add_piece(self, key: str, base_name: str, source: str, home: ModuleType) -> str:
        place = f"{home.__name__}.{key}"
        if place in self._names:
            return self._names[place]
        name, number = base_name, 2
        while name in self._names.values():
            name, number = f"{base_name}_{number}", number + 1
        self._names[place] = name
        tree = ast.parse(source).body[0]
        assert isinstance(tree, Piece)
        new = {used: self._add_name(used, home) for used in _names_read(tree)}
        own = key.rpartition(".")[2]
        source = _rename(source, tree, new | {own: name})
        self._pieces.append(source)
        return name

    def _add_name(self, name: str, home: ModuleType) -> str:
        """Adds the object that a name refers to in a module, and returns its name in the file."""
        if name in OF_EVERY_MODULE:
            return name
        source = _import_of(name, home)
        if name in vars(home) and isinstance(vars(home)[name], ModuleType):
            self._add_module(name, vars(home)[name])
            return name
        if source is None:
            if name in vars(home):
                return self._add_own(name, home)
            assert hasattr(builtins, name), (name, home)
            return name
        module = source.split()[1]
        if not module.startswith(OWN):
            self._imports.add(source)
            return name
        return self._add_name(source.split()[3], importlib.import_module(module))

    def _add_module(self, name: str, module: ModuleType) -> None:
        if not module.__name__.startswith(OWN):
            alias = "" if module.__name__ == name else f" as {name}"
            self._imports.add(f"import {module.__name__}{alias}")
            return
        stem = module.__name__.rpartition(".")[2]
        self.modules[f"{stem}.py"] = Path(str(module.__file__)).read_text(encoding="utf-8")
        self._imports.add(f"import {stem}" + ("" if stem == name else f" as {name}"))

    def _add_own(self, name: str, home: ModuleType) -> str:
        """Adds a function, a class or a constant that a module defines."""
        text = inspect.getsource(home)
        for statement in ast.parse(text).body:
            if name in _targets_of(statement):
                start = min(
                    [
                        statement.lineno,
                        *(d.lineno for d in getattr(statement, "decorator_list", [])),
                    ]
                )
                lines = text.splitlines()[start - 1 : statement.end_lineno]
                defined = _targets_of(statement)
                made = self._add_piece(defined[0], defined[0], "\n".join(lines), home)
                for other in defined[1:]:  # of one assignment to several names
                    self._names[f"{home.__name__}.{other}"] = other
                return made if name == defined[0] else name
        raise ValueError(f"{home.__name__} has no source for {name!r}")


def _targets_of(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = (
        statement.targets
        if isinstance(statement, ast.Assign)
        else [statement.target]
        if isinstance(statement, ast.AnnAssign)
        else []
    )
    nodes = [node for target in targets for node in ast.walk(target)]
    return [node.id for node in nodes if isinstance(node, ast.Name)]


def _names_read(tree: Piece) -> list[str]:
    """The names of its module that a piece of code reads, each once, in the order of the text."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    local: set[str] = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    local |= {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    local |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    local |= {str(node.name) for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)}
    nodes.sort(key=lambda node: (node.lineno, node.col_offset))
    own = getattr(tree, "name", None)
    return [name for name in dict.fromkeys(n.id for n in nodes) if name not in (*local, own)]


def _rename(source: str, tree: Piece, new: dict[str, str]) -> str:
    """The source with some names replaced."""
    if all(name == other for name, other in new.items()):
        return source
    lines = source.encode().splitlines()
    places = [
        (node.lineno, node.col_offset, node.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
    ]
    for line, column, name in sorted(places, reverse=True):
        if new.get(name, name) != name:
            text = lines[line - 1]
            rest = text[column + len(name.encode()) :]
            lines[line - 1] = text[:column] + new[name].encode() + rest
    source = b"\n".join(lines).decode()
    own = getattr(tree, "name", None)
    if own is not None and new.get(own, own) != own:
        for word in ("def", "class"):
            source = source.replace(f"{word} {own}", f"{word} {new[own]}", 1)
    return source


@functools.cache
def _imports_of(home: ModuleType) -> dict[str, str]:
    """Name → the statement that imports it, and nothing else, into a module from another."""
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(home))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for item in node.names:
                alias = f" as {item.asname}" if item.asname else ""
                line = f"from {node.module} import {item.name}{alias}"
                found.setdefault(item.asname or item.name, line)
    return found


def _import_of(name: str, home: ModuleType) -> str | None:
    return _imports_of(home).get(name)
