"""The package's plan, measured in its source: which way imports go, how much a signature says, and
that a page of code can be read.

The limits only ever go down.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import rlbook
from rlbook.registry import ALGORITHMS

PACKAGE = Path(rlbook.__file__).parent
ANY_SHARE = 0.014  # of parameters whose type is a bare `Any`
TOP_FLOOR = 25  # modules and rooms
SHOWN = ("algorithms", "functional", "networks")
FLOORS = (
    ("cli",),
    ("book", "plots"),
    ("recipes", "diagnosis"),
    ("evaluation",),
    ("training",),
    ("runs",),
    ("registry",),
    ("algorithms", "llm", "fast"),
    ("networks", "data", "interaction", "sandbox"),
    ("agent", "hyperparameters"),
    ("checks",),
    ("functional", "envs"),
    ("seeding", "errors", "fast_forms", "ascii_signs"),
)
"""From the top floor to the ground. A module imports from its own floor and from those below."""


@cache
def trees() -> dict[str, ast.Module]:
    """Module name → syntax tree, of the whole package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(("rlbook", *path.relative_to(PACKAGE).with_suffix("").parts))
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(name: str) -> Iterator[str]:
    """The package's modules that a module imports, at once, later in a function, or for its
    annotations."""
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in trees())
        elif isinstance(node, ast.ImportFrom) and node.module in trees():
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from {module if module in trees() else node.module for module in inner}


def circle_from(name: str, way: tuple[str, ...], done: set[str]) -> tuple[str, ...]:
    """The modules of a circle that can be reached from here, or ()."""
    if name in way:
        return way[way.index(name) :]
    if name in done:
        return ()
    for other in sorted(set(imports(name)) - {name}):
        if circle := circle_from(other, (*way, name), done):
            return circle
    done.add(name)
    return ()


def test_no_module_imports_itself_by_a_detour() -> None:
    done: set[str] = set()
    assert [circle for name in trees() if (circle := circle_from(name, (), done))] == []


def test_imports_go_down() -> None:
    floor = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
    rooms = {name: name.split(".")[1] for name in trees() if name.count(".")}
    # they hand names on, and compute nothing
    faces = {f"rlbook.{room}" for room in floor if (PACKAGE / room).is_dir()}
    up = [
        f"{name} -> {other}"
        for name, room in rooms.items()
        if room in floor and name not in faces
        for other in imports(name)
        if other in rooms and floor[rooms[other]] < floor[room]
    ]
    assert up == [], "\n".join(up)


def test_every_room_has_its_floor_and_there_are_not_many() -> None:
    rooms = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    named = [room for rooms in FLOORS for room in rooms]
    assert sorted(rooms - {"__init__", "__main__"}) == sorted(named)
    assert len(named) <= TOP_FLOOR


def test_a_parameters_type_says_what_it_is() -> None:
    bare = total = 0
    for tree in trees().values():
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            arguments = [
                *node.args.posonlyargs,
                *node.args.args,
                *node.args.kwonlyargs,
                node.args.vararg,
                node.args.kwarg,
            ]
            annotations = [
                argument.annotation
                for argument in arguments
                if argument is not None and argument.arg not in ("self", "cls")
            ]
            total += len(annotations)
            bare += sum(
                isinstance(annotation, ast.Name) and annotation.id == "Any"
                for annotation in annotations
            )
    assert bare / total <= ANY_SHARE, f"{bare} of {total} parameters are Any, {bare / total:.1%}"


def test_each_algorithm_begins_with_its_update() -> None:
    """The lines that a reader came for stand first, as a function: the config and the agent after
    them."""
    for name, place in ALGORITHMS.items():
        path = PACKAGE.parent / (place.split(":")[0].replace(".", "/") + ".py")
        defined = [
            item
            for item in ast.parse(path.read_text()).body
            if isinstance(item, ast.FunctionDef | ast.ClassDef)
        ]
        assert isinstance(defined[0], ast.FunctionDef), f"{name} begins with {defined[0].name}"


def test_no_algorithm_is_spread_over_more_than_a_few_screens() -> None:
    files = sorted((PACKAGE / "algorithms").rglob("*.py"))
    lines = {str(path): len(path.read_text().splitlines()) for path in files}
    assert len(lines) > 100 and not {path: n for path, n in lines.items() if n > 250}


def test_lines_that_the_site_shows_can_be_read_without_scrolling() -> None:
    files = [path for room in SHOWN for path in sorted((PACKAGE / room).rglob("*.py"))]
    long = [
        f"{path}:{number}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 100
    ]
    assert not long


IRREGULAR = frozenset(
    "told shown drawn written kept made found seen sent held built left taken given known lost met paid said sold"
    " spent thought understood won gone done begun beaten bound bought brought caught chosen driven eaten fallen"
    " felt forgotten frozen hidden laid led meant spoken stolen stuck struck taught thrown torn worn worth whole"
    " alone alike likely same other rest together of at by per into on below after before under over within without"
    " beyond like up off out apart next".split()
)
ALONE = frozenset(  # says nothing without the noun that it belongs to
    "through inside outside across around above behind beside between here there now then further nothing none"
    " nobody early latest newest oldest nearest longest shortest worst smallest most least many few several each either"
    " both only once again real right wrong ordinary short long active fresh typeable affordable repeatable readable"
    " unanimous tell drew".split()
)
BEGINNINGS = frozenset(  # of a phrase, not of a name: `of_rows`, `in_numbers`, `why_not`
    "of in by at through inside outside within behind around between beyond beside under about after before"
    " where why what how".split()
)
NO_PARTICIPLES = frozenset(
    "flatten shorten whiten testbed seed unseed reseed feed need speed embed exceed proceed token open"
    " listen screen green children between when then down".split()
)
FIRST_WORDS = frozenset(  # verbs, and what a number or a question begins with
    "as back build can check choose count decode detach draw encode evaluate from grow has index is"
    " last load look mark nth num prune read refuse repr reset save score select show strip take to"
    " train trains upper where write".split()
)
NAMED_FROM_OUTSIDE = {  # function → why its name stays
    "allowed": "a property of a search's table, an attribute of its simulators",
    "shutdown": "a method of uvicorn's Server",
    "boxed": "a reward, by its name in --env.reward",
    "tagged": "a reward, by its name in --env.reward",
    "judged": "a reward, by its name in --env.reward",
    "at_least": "a bound, read in the annotation of a field",
    "after_cloning": "an exercise, by its name in `rlbook exercise start`",
    "at_temperature": "an exercise, by its name in `rlbook exercise start`",
    "where_ipo_stops": "an exercise, by its name in `rlbook exercise start`",
}


def is_bare_participle(name: str) -> bool:
    """Whether a name says only how something is, and neither what a function does nor what it
    returns: `told`, `whole`, `walks_needed`, `inside`, `of_rows`; not `check_saved`,
    `counted_model`."""
    words = name.strip("_").split("_")
    last = words[-1]
    if words[0] in BEGINNINGS or (len(words) == 1 and last in ALONE):
        return True
    ending = len(last) > 3 and last.endswith(("ed", "en", "wn")) and last not in NO_PARTICIPLES
    if len(words) == 1:
        return ending or last in IRREGULAR
    prepositions = (
        "of at by per into on below after before under over within without like up off out".split()
    )
    return (ending or (last in IRREGULAR and last not in prepositions)) and words[
        0
    ] not in FIRST_WORDS


def test_functions_are_verbs_or_nouns() -> None:
    named = {
        f"{module}.{node.name}"
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("__")
        and node.name not in NAMED_FROM_OUTSIDE
        and is_bare_participle(node.name)
    }
    assert sorted(named) == []


ADJECTIVES = frozenset(  # and a determiner and a participle or two that functions do not have
    "sure ready full empty plain raw good bad big small new old lot such any all own uniform"
    " constant exponential inverse categorical ahead running acting forgiving remembers".split()
)
CLASSES_NAMED_FROM_OUTSIDE = {  # class → why its name stays
    "Categorical": "the distribution, as in torch.distributions",
    "Constant": "a schedule, as `constant(0.1)` is written in an option",
    "Exponential": "a schedule, as `exponential(1, 0.1)` is written in an option",
    "Inverse": "a schedule, as `inverse(1)` is written in an option",
    "Interrupted": "an exception, which a traceback shows with its signal",
}


def is_bare_adjective(name: str) -> bool:
    """Whether a class's name says how something is, and not what it is: `Searched`, `Sure`,
    `_Left`, `Each`, `InABox`, `Restorable`; not `ClippedEnv`."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name)]
    last = words[-1]
    if last in ("bound", "countdown"):
        return False
    return (
        words[0] in BEGINNINGS | {"with", "without"}
        or last in ADJECTIVES | ALONE | IRREGULAR
        or (last.endswith("able") and not last.endswith("table"))
        or (len(last) > 3 and last.endswith(("ed", "en", "wn")) and last not in NO_PARTICIPLES)
    )


def test_classes_are_nouns() -> None:
    named = {
        f"{module}.{node.name}"
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and node.name not in CLASSES_NAMED_FROM_OUTSIDE
        and is_bare_adjective(node.name)
    }
    assert sorted(named) == []


SAYS_NOTHING = frozenset(  # as the name of a parameter: participles, and words that point
    "asked found given judged known met said told wanted each every here such that these this those".split()
)


def public_functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a module and the methods of its classes without a leading underscore."""
    for child in ast.iter_child_nodes(node):
        name = getattr(child, "name", "_")
        if name.startswith("_") and not name.endswith("__"):
            continue
        if isinstance(child, ast.ClassDef):
            yield from public_functions(child)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child


def test_parameters_of_public_functions_are_nouns() -> None:
    named = {
        f"{module}.{function.name}({argument.arg})"
        for module, tree in trees().items()
        for function in public_functions(tree)
        for argument in ast.walk(function.args)
        if isinstance(argument, ast.arg) and argument.arg in SAYS_NOTHING
    }
    assert sorted(named) == []


def test_a_class_name_means_one_class() -> None:
    homes: dict[str, list[str]] = {}
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
