"""Exercises: the question, the right answer, and the known mistakes.

    rlbook exercise start returns            writes returns.py: what is asked, and a function to fill in
    rlbook exercise check returns.py         runs it in a sandbox, and compares with the library's answer

A known mistake is another function: where an answer agrees with it and not with the right one, its
hint is shown.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from rlbook.checks import did_you_mean
from rlbook.errors import RequestError, system_reason

PARTS = (
    "part_one",
    "part_one_learning",
    "part_two",
    "part_two_memory",
    "part_two_pixels",
    "part_three_models",
    "part_three",
    "of_algorithms",
    "of_algorithms_of_values",
    "of_algorithms_that_plan",
    "of_algorithms_with_models",
    "of_algorithms_with_networks",
    "of_algorithms_on_data",
    "of_algorithms_on_tables",
    "of_algorithms_on_features",
    "of_algorithms_that_imitate",
)
CASES, SEED, TOLERANCE = 24, 20, 1e-6
SENTENCE_END = re.compile(r"(?<=\.)\s+(?=[A-Z])")


@dataclass(frozen=True)
class Exercise:
    """A function to write."""

    function: Callable[..., Any]
    """The right answer; its docstring is the question."""
    chapter: str
    """A file of docs/chapters, without its extension."""
    cases: Callable[[Generator], tuple[Any, ...]]
    """The arguments of one case."""
    mistakes: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Hint → a function that makes the mistake."""
    page: str = ""
    """Its number on an algorithm's page, such as "dpo 3"; empty for an exercise of the course."""
    keeps_arguments: bool = False
    """Whether a new array is asked for, so that the arguments cannot be written to."""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def title(self) -> str:
        """The first sentence of the question."""
        paragraph = str(inspect.getdoc(self.function)).split("\n\n")[0]
        return SENTENCE_END.split(" ".join(paragraph.split()))[0]

    @property
    def place(self) -> str:
        """The page on which it appears, a file of docs/ without its extension."""
        return f"algorithms/{self.page.split()[0]}" if self.page else f"chapters/{self.chapter}"

    def telling_case(self) -> tuple[Any, ...]:
        """The first case that separates the most known mistakes from the right answer."""

        def num_mistakes_seen(case: tuple[Any, ...]) -> int:
            right = self.function(*case)
            return sum(not are_close(mistake(*case), right) for mistake in self.mistakes.values())

        return max(self.draw_cases(), key=num_mistakes_seen)

    def draw_cases(self, seed: int = SEED) -> list[tuple[Any, ...]]:
        """The arguments on which the function is tested."""
        rng = np.random.default_rng(seed)
        return [self.cases(rng) for _ in range(CASES)]


def exercise(
    chapter: str,
    cases: Callable[[Generator], tuple[Any, ...]],
    mistakes: Mapping[str, Callable[..., Any]] | None = None,
    page: str = "",
    keeps_arguments: bool = False,
) -> Callable[[Callable[..., Any]], Exercise]:
    """Turns a function into an exercise."""
    return lambda function: Exercise(
        function, chapter, cases, dict(mistakes or {}), page, keeps_arguments
    )


@cache
def exercises() -> Mapping[str, Exercise]:
    """All exercises, in the book's order."""
    found: dict[str, Exercise] = {}
    for part in PARTS:
        module = importlib.import_module(f"rlbook.book.exercises.{part}")
        found |= {item.name: item for item in vars(module).values() if isinstance(item, Exercise)}
    return found


def find_exercise(name: str) -> Exercise:
    """The exercise with this name. Raises RequestError if there is none."""
    known = exercises()
    if name not in known:
        hint = did_you_mean(name, known)
        raise RequestError(
            f"there is no exercise {name!r}{hint} (rlbook exercise list shows all {len(known)})"
        )
    return known[name]


def starter(item: Exercise, file: str | None = None) -> str:
    """The file that a learner starts with: the signature, the question, and one case with its
    answer; `file` is its name (default: NAME.py)."""
    definition: Any = ast.parse(textwrap.dedent(inspect.getsource(item.function))).body[0]
    arguments, returns = (
        ast.unparse(item).replace("Array", "np.ndarray")
        for item in (definition.args, definition.returns)
    )
    case = item.telling_case()
    given = [
        f"{name}={format_value(value)}"
        for name, value in zip(inspect.signature(item.function).parameters, case, strict=True)
    ]
    call = f"{item.name}({', '.join(given)})"
    if len(call) > 110:
        call = f"{item.name}(\n        " + ",\n        ".join(given) + ",\n    )"
    example = f"Example:\n    {call}\n    is {format_value(item.function(*case))}"
    told = textwrap.indent(f"{inspect.getdoc(item.function)}\n\n{example}", "    ")
    return (
        f"# Exercise {item.name}, {item.place}. Check it: rlbook exercise check"
        f" {shlex.quote(file or f'{item.name}.py')}\n"
        f"import numpy as np\n\n\ndef {item.name}({arguments}) -> {returns}:\n"
        f'    """{told.strip()}\n    """\n    return NotImplemented\n'
    )


def start(name: str, path: Path) -> None:
    """Writes the starter file of an exercise.

    Raises:
        RequestError: no such exercise, or the file is there already.
    """
    text = starter(find_exercise(name), path.name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        if isinstance(error, FileExistsError) and path.exists():  # not a link to nothing
            raise RequestError(
                f"{path} exists already, and may hold your work; choose another --out"
            ) from None
        raise RequestError(f"cannot write {path}: {system_reason(error)}") from error


def are_close(one: ArrayLike, other: ArrayLike) -> bool:
    """Whether two answers are equal numbers or arrays, up to rounding."""
    found, right = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    return found.shape == right.shape and bool(
        np.allclose(found, right, rtol=TOLERANCE, atol=TOLERANCE)
    )


def format_value(value: Any) -> str:
    """A value as Python source on one line."""
    if isinstance(value, np.ndarray) and value.ndim:
        return (
            "np.array("
            + np.array2string(value, separator=", ", precision=4, max_line_width=10_000).replace(
                "\n", ""
            )
            + ")"
        )
    if isinstance(value, np.ndarray | np.generic | float):
        return (
            f"{float(value):.6g}"
            if not isinstance(value, np.bool_ | np.integer)
            else repr(value.item())
        )
    return repr(value)
