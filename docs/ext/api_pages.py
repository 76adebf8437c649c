"""The API reference: a page a module, written from signatures and docstrings before every build.

The docstrings are Markdown with `Args:`, `Returns:` and `Raises:` sections, so each entry is a
directive of Sphinx's Python domain with the docstring as its body. A dataclass field is described
by the comment after it, as everywhere in the library.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ForwardRef

import rlbook

SECTION = re.compile(r"^(Args|Returns|Raises):[ \t]*$", re.MULTILINE)
LEFT_OUT = {"rlbook.__main__"}

FACES = {
    "Everyday use": "rlbook",
    "Environments": "rlbook.envs",
    "Data": "rlbook.data",
    "Plots": "rlbook.plots",
}
"""Packages whose `__all__` says what is public."""
PUBLIC = {
    "Everyday use": ("rlbook.agent", "rlbook.errors"),
    "The equations": ("rlbook.functional",),
    "Algorithms": ("rlbook.algorithms",),
    "Policies": ("rlbook.networks",),
    "Environments": (),
    "Data": (),
    "Plots": (),
    "Rewards of language models": ("rlbook.llm.rewards",),
}
"""Packages and modules in which every name without an underscore is public."""
INTERNAL = (
    "Used inside the library. It is described because the book shows its code; it may change"
    " without notice."
)
INTRODUCTION = """\
Generated from the code: signatures, docstrings, and the comments after hyper-parameters. `import rlbook` is enough for everyday use; it
loads torch and transformers only when something needs them. What stands on this page is public, and changes only with a line in the
changelog. Everything else is on [a page of its own](internals.md)."""


def module_names() -> list[str]:
    """Every public module of the package, packages first."""
    found = ["rlbook"]
    for info in pkgutil.walk_packages(rlbook.__path__, "rlbook."):
        if (
            not any(part.startswith("_") for part in info.name.split("."))
            and info.name not in LEFT_OUT
        ):
            found.append(info.name)
    return found


def module_page(name: str) -> str:
    """The Markdown of one module's page."""
    module = importlib.import_module(name)
    parts = [
        f"# {name}",
        f"```{{py:module}} {name}\n```",
        as_markdown(inspect.getdoc(module) or ""),
    ]
    if name == "rlbook":
        parts.append(_table_of_names())
    members = own_members(module)
    public = [item for item in members if is_public(item)]
    parts += [_described(item) for item in public]
    inside = [_described(item) for item in members if item not in public]
    parts += [*(["## Internals"] if public else []), INTERNAL, *inside] if inside else []
    return "\n\n".join(part for part in parts if part) + "\n"


def _described(item: Any) -> str:
    return _entry(item, "function" if inspect.isfunction(item) else "class")


@cache
def reexports() -> set[tuple[str, str]]:
    """(module, name) of what the faces of the package hand on."""
    items = [item for face in FACES.values() for _, item in names_of(face)]
    return {(item.__module__, item.__qualname__) for item in items}


def names_of(face: str) -> list[tuple[str, Any]]:
    """What a package's `__all__` names, modules and plain values left out."""
    module = importlib.import_module(face)
    found = [(name, getattr(module, name)) for name in module.__all__]
    return [
        (name, item) for name, item in found if inspect.isclass(item) or inspect.isfunction(item)
    ]


def is_public(item: Any) -> bool:
    """Whether a class or a function is one of those that users are meant to call."""
    return wholly_public(item.__module__) or (item.__module__, item.__qualname__) in reexports()


def wholly_public(module: str) -> bool:
    """Whether every name of a module is public."""
    return any(
        f"{module}.".startswith(f"{package}.")
        for packages in PUBLIC.values()
        for package in packages
    )


def own_members(module: ModuleType) -> list[Any]:
    """The classes and functions that a module defines under a public name, in the order of the
    file."""
    named = [_plain(item) for name, item in vars(module).items() if not name.startswith("_")]
    own = [item for item in named if getattr(item, "__module__", None) == module.__name__]
    return [item for item in own if inspect.isclass(item) or inspect.isfunction(item)]


def has_content(module: ModuleType) -> bool:
    """False for a package that only holds modules."""
    return bool(module.__doc__) or bool(own_members(module))


def _plain(item: Any) -> Any:
    """The Python function behind one that numba has compiled or that remembers its results."""
    item = getattr(item, "py_func", item)
    return inspect.unwrap(item) if callable(item) else item


def _table_of_names() -> str:
    """What `rlbook.NAME` is, for the names that load on first use."""
    rows = ["| name | what it is |", "|---|---|"]
    for name in rlbook.__all__:
        item = getattr(rlbook, name)
        if not isinstance(item, str):
            home = (
                item.__name__
                if inspect.ismodule(item)
                else f"{item.__module__}.{item.__qualname__}"
            )
            rows.append(f"| {{py:obj}}`rlbook.{name} <{home}>` | {_summary(item)} |")
    return "\n".join(rows)


def _summary(item: Any) -> str:
    """The first sentence of a docstring, or of the module's where that is referred to."""
    text = inspect.getdoc(item) or ""
    if "see the module docstring" in text:
        text = inspect.getdoc(inspect.getmodule(item)) or ""
    text = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`]\.) ", text)[0].replace("|", "\\|")


def _entry(item: Any, kind: str, depth: int = 0) -> str:
    """One directive, with those of a class's members in it."""
    fence = "`" * (6 - depth)
    body = [as_markdown(inspect.getdoc(item) or "") if _documented(item) else ""]
    if kind == "class":
        body += _fields(item)
        body += [_entry(member, member_kind, 1) for member, member_kind in _class_members(item)]
    text = "\n\n".join(part for part in body if part)
    return f"{fence}{{py:{kind}}} {_signature(item, kind)}\n{text}\n{fence}"


def _documented(item: Any) -> bool:
    """False where the docstring is inherited from a library, or the one that `dataclass` makes
    up."""
    if not inspect.isclass(item):
        return True
    own = item.__doc__ or ""
    return bool(own) and not own.startswith(f"{item.__name__}(")


def _class_members(cls: type) -> Iterator[tuple[Any, str]]:
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod | staticmethod):
            yield (
                member.__func__,
                "classmethod" if isinstance(member, classmethod) else "staticmethod",
            )
        elif isinstance(member, property):
            yield member.fget, "property"
        elif inspect.isfunction(member):
            yield member, "method"


def _fields(cls: type) -> Iterator[str]:
    """The fields of a dataclass, or those that a named tuple declares."""
    from rlbook.cli.explain import class_comments, comments, default_text

    if dataclasses.is_dataclass(cls):
        meaning = comments(cls)
        for item in dataclasses.fields(cls):
            has_default = (
                item.default is not dataclasses.MISSING
                or item.default_factory is not dataclasses.MISSING
            ) and not inspect.isfunction(item.default)  # a lambda, whose address says nothing
            default = f"\n:value: {default_text(item)}" if has_default else ""
            yield (
                f"````{{py:attribute}} {item.name}\n:type:"
                f" {item.type}{default}\n\n{as_markdown(meaning[item.name])}\n````"
            )
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        kinds = vars(cls).get("__annotations__", {})  # none where `namedtuple` made the class
        meaning = class_comments(cls) if kinds else {}
        for name in cls._fields:
            kind = f":type: {_annotation(kinds[name])}\n" if name in kinds else ""
            told = as_markdown(meaning.get(name, ""))
            yield f"````{{py:attribute}} {name}\n{kind}\n{told}\n````"


def _signature(item: Any, kind: str) -> str:
    name = item.__name__
    if kind == "property":
        returns = item.__annotations__.get("return")
        return f"{name}\n:type: {returns}\n" if returns else name
    if kind == "class" and (
        issubclass(item, enum.Enum | Exception | tuple) or dataclasses.is_dataclass(item)
    ):
        return name
    try:
        signature = inspect.signature(item)
    except ValueError:
        return name
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    returns = (
        ""
        if kind == "class" or signature.return_annotation is signature.empty
        else f" -> {_annotation(signature.return_annotation)}"
    )
    return f"{name}({', '.join(_with_markers(parameters))}){returns}"


def _with_markers(parameters: list[inspect.Parameter]) -> Iterator[str]:
    keyword_only = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            keyword_only = True
        elif parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            yield "*"
        yield _parameter(parameter)


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = getattr(parameter.default, "__name__", None) or repr(parameter.default)
        text += f" = {default}" if parameter.annotation is not parameter.empty else f"={default}"
    return text


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):  # of a named tuple's field
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def as_markdown(docstring: str) -> str:
    """A docstring of the house as MyST: headings become bold lines, `Args:` and its sisters field
    lists, `Source:` a paragraph."""
    docstring = re.sub(r"^#+ (.*)$", r"**\1**", docstring, flags=re.MULTILINE)
    # no formulas here
    docstring = re.sub(
        r"(`[^`]*`|^    .*$)|\$", lambda match: match[1] or r"\$", docstring, flags=re.MULTILINE
    )
    docstring = docstring.replace("](", "]\\(")  # nor links
    docstring = re.sub(
        r"^(?=\[[^]\n]*\]:)", r"\\", docstring, flags=re.MULTILINE
    )  # nor their targets
    pieces = SECTION.split(docstring)
    text = [pieces[0].rstrip()]
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        inside, after = _indented(body)
        text.append(_field_list(name, inside))
        text.append(after)
    return "\n\n".join(part for part in text if part.strip())


def _indented(body: str) -> tuple[str, str]:
    """The indented lines that a section begins with, and the rest."""
    lines = body.strip("\n").split("\n")
    count = next(
        (i for i, line in enumerate(lines) if line and not line.startswith(" ")), len(lines)
    )
    return textwrap.dedent("\n".join(lines[:count])).strip(), "\n".join(lines[count:]).strip()


def _field_list(section: str, text: str) -> str:
    if section == "Returns":
        return f":returns: {' '.join(text.split())}"
    items = re.split(r"\n(?=\S)", text)
    found = []
    for item in items:
        name, _, meaning = (" ".join(item.split())).partition(": ")
        names = name.split(", ") if section == "Args" else [name]
        field = "param" if section == "Args" else "raises"
        found += [f":{field} {one}: {meaning}" for one in names]
    return "\n".join(found)


def index_page(names: list[str]) -> str:
    """Public names by group; after them, out of sight, the order of their pages."""
    parts, rest = ["# API reference", INTRODUCTION], [name for name in names if has_public(name)]
    for title, packages in PUBLIC.items():
        rows = [
            f"| {{py:obj}}`{FACES[title]}.{name} <{_defining_path(item)}>` | {_summary(item)} |"
            for name, item in _named(title)
        ]
        modules = [
            name
            for name in rest
            if any(f"{name}.".startswith(f"{package}.") for package in packages)
        ]
        rows += [_module_row(name) for name in modules]
        parts.append("\n".join([f"## {title}", "", "| name | what it is |", "|---|---|", *rows]))
    return "\n\n".join([*parts, _toctree([*rest, "internals"])]) + "\n"


def internals_page(names: list[str]) -> str:
    """The modules in which no name is public."""
    rest = [name for name in names if not has_public(name)]
    rows = [_module_row(name) for name in rest]
    return (
        "\n\n".join(
            [
                "# Internals",
                INTERNAL,
                "\n".join(["| module | what it is |", "|---|---|", *rows]),
                _toctree(rest),
            ]
        )
        + "\n"
    )


def has_public(name: str) -> bool:
    """Whether a module is public, or defines something that is."""
    return (
        name in FACES.values()
        or wholly_public(name)
        or any(map(is_public, own_members(importlib.import_module(name))))
    )


def _named(title: str) -> list[tuple[str, Any]]:
    return names_of(FACES[title]) if title in FACES else []


def _defining_path(item: Any) -> str:
    return f"{item.__module__}.{item.__qualname__}"


def _module_row(name: str) -> str:
    return f"| {{doc}}`{name} <{name}>` | {_summary(importlib.import_module(name))} |"


def _toctree(names: list[str]) -> str:
    return "\n".join(
        [
            "```{toctree}",
            ":hidden:",
            "",
            *(f"{name.removeprefix('rlbook.')} <{name}>" for name in names),
            "```",
        ]
    )


def write_pages(folder: Path) -> None:
    """Writes a page for every module into `folder`, and one that lists them. A page that has not
    changed is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in module_names() if has_content(importlib.import_module(name))]
    pages = {"index": index_page(names), "internals": internals_page(names)} | {
        name: module_page(name) for name in names
    }
    for path in folder.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "api" / "generated"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
