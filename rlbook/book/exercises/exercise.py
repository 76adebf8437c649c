"""Exercises, and how an answer is checked.

    rlbook exercise start returns            writes returns.py: what is asked, and a function to fill in
    rlbook exercise check returns.py         runs it in a sandbox on cases that are drawn anew, and compares with the library's answer

A known mistake is another function: where an answer agrees with it and not with the right one, its hint is shown.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from rlbook.checks import nearest
from rlbook.errors import RequestError
from rlbook.llm.rewards.code import Outcome, run_program

PARTS = ("part_one", "part_two", "part_three")
CASES, TOLERANCE, SEED = 24, 1e-6, 20
LONGEST = 100_000                            # bytes of a file with an answer
SECONDS, MEMORY_MB = 10.0, 4_096
RUNNER = """
import json as _json, sys as _sys, numpy as _np

def _answer(given):
    answer = {name}(*[_np.asarray(item) if isinstance(item, list) else item for item in given])
    return None if answer is None or answer is NotImplemented else _np.asarray(answer, dtype=float).tolist()

try:
    _told = {"answers": [_answer(given) for given in _json.loads(_sys.stdin.read())]}
except Exception as _error:
    _told = {"error": f"{type(_error).__name__}: {_error}"}
print("\\n" + _json.dumps(_told))
"""


@dataclass(frozen=True)
class Exercise:
    """A function to write."""

    function: Callable[..., Any]
    """The right answer; its docstring is what is asked."""
    chapter: str
    """A file of docs/chapters, without its ending."""
    cases: Callable[[Generator], tuple[Any, ...]]
    """The arguments of one case."""
    mistakes: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Hint → a function that makes the mistake."""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def title(self) -> str:
        """The first line of what is asked."""
        return str(inspect.getdoc(self.function)).splitlines()[0]

    def drawn(self, seed: int = SEED) -> list[tuple[Any, ...]]:
        """Arguments to try the function on."""
        rng = np.random.default_rng(seed)
        return [self.cases(rng) for _ in range(CASES)]


def exercise(
    chapter: str, cases: Callable[[Generator], tuple[Any, ...]], mistakes: Mapping[str, Callable[..., Any]] | None = None
) -> Callable[[Callable[..., Any]], Exercise]:
    """Makes an exercise of a function."""
    return lambda function: Exercise(function, chapter, cases, dict(mistakes or {}))


@cache
def exercises() -> Mapping[str, Exercise]:
    """All of them, in the book's order."""
    found: dict[str, Exercise] = {}
    for part in PARTS:
        module = importlib.import_module(f"rlbook.book.exercises.{part}")
        found |= {item.name: item for item in vars(module).values() if isinstance(item, Exercise)}
    return found


def named(name: str) -> Exercise:
    """Raises RequestError: no such exercise."""
    known = exercises()
    if name not in known:
        match = nearest(name, known)
        hint = f"; did you mean {match!r}?" if match else ""
        raise RequestError(f"there is no exercise {name!r}{hint} (rlbook exercise list shows all {len(known)})")
    return known[name]


def starter(item: Exercise) -> str:
    """The file that a learner begins with: the signature, what is asked, and one case with its answer."""
    definition: Any = ast.parse(textwrap.dedent(inspect.getsource(item.function))).body[0]
    arguments, returns = (ast.unparse(item).replace("Array", "np.ndarray") for item in (definition.args, definition.returns))
    case = item.drawn()[0]
    shown = ", ".join(f"{name}={_shown(value)}" for name, value in zip(inspect.signature(item.function).parameters, case, strict=True))
    example = f"Example:\n    {item.name}({shown})\n    is {_shown(item.function(*case))}"
    told = textwrap.indent(f"{inspect.getdoc(item.function)}\n\n{example}", "    ")
    return (
        f"# Exercise {item.name}, chapter {item.chapter}. Check it: rlbook exercise check {item.name}.py\n"
        f"import numpy as np\n\n\ndef {item.name}({arguments}) -> {returns}:\n"
        f'    """{told.strip()}\n    """\n    return NotImplemented\n'
    )


def start(name: str, path: Path) -> None:
    """Writes an exercise's file.

    Raises:
        RequestError: no such exercise, or the file is there already.
    """
    text = starter(named(name))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RequestError(f"{path} exists already, and may hold your work; choose another --out") from None
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror}") from error


@dataclass(frozen=True)
class Verdict:
    """What came of a file with answers."""

    exercise: str
    file: str
    right: bool
    said: str


def checked(path: Path, *, isolate: bool = True) -> list[Verdict]:
    """Checks each exercise for which a file has a function.

    Args:
        path: a Python file.
        isolate: in the sandbox: no files, no network, no other processes. Time and memory are limited anyway.

    Raises:
        RequestError: no such file, a file that is no Python, or one without an exercise's function.
    """
    text = _text_of(path)
    try:
        names = [item.name for item in ast.parse(text).body if isinstance(item, ast.FunctionDef)]
    except (SyntaxError, ValueError) as error:
        raise RequestError(f"{path} cannot be read as Python: {error}") from error
    asked = [exercises()[name] for name in names if name in exercises()]
    if not asked:
        match = next((found for name in names if (found := nearest(name, exercises()))), None)
        hint = f"; did you mean {match!r}?" if match else ""
        raise RequestError(f"{path} defines no exercise's function{hint} (it has: {', '.join(names) or 'none'})")
    return [Verdict(item.name, str(path), *_judged(item, text, isolate)) for item in asked]


def answers_in(folder: Path) -> Iterator[Path]:
    """The files of a folder, and of its folders, in order."""
    yield from sorted(path for path in folder.rglob("*.py") if path.is_file() and not path.is_symlink())


def _judged(item: Exercise, text: str, isolate: bool) -> tuple[bool, str]:
    cases = item.drawn()
    program = f"{text}\n{RUNNER.replace('{name}', item.name)}"
    given = json.dumps([[_listed(value) for value in case] for case in cases])
    outcome = run_program(program, given, seconds=SECONDS, memory_mb=MEMORY_MB, isolate=isolate, modules=("numpy",))
    return compared(item, cases, _answers_of(outcome))


def compared(item: Exercise, cases: list[tuple[Any, ...]], answers: list[Any] | str) -> tuple[bool, str]:
    """Whether answers are right, and what to say of them; a string is what went wrong on the way to them."""
    if isinstance(answers, str):
        return False, answers
    if any(answer is None for answer in answers):
        return False, "not yet: it returns nothing"
    exact = [np.asarray(item.function(*case), dtype=np.float64) for case in cases]
    found = [np.asarray(answer, dtype=np.float64) for answer in answers]
    place = next((place for place, pair in enumerate(zip(found, exact, strict=True)) if not _agree(*pair)), None)
    if place is None:
        return True, "right"
    for hint, mistake in item.mistakes.items():
        if all(_agree(answer, np.asarray(mistake(*case), dtype=np.float64)) for answer, case in zip(found, cases, strict=True)):
            return False, f"not right: {hint}"
    names = inspect.signature(item.function).parameters
    case = ", ".join(f"{name}={_shown(value)}" for name, value in zip(names, cases[place], strict=True))
    if found[place].shape != exact[place].shape:
        return False, f"not right: the answer has shape {list(found[place].shape)} and should have {list(exact[place].shape)}"
    return False, f"not right: {item.name}({case}) is {_shown(exact[place])}, and not {_shown(found[place])}"


def _agree(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE))


def _answers_of(outcome: Outcome) -> list[Any] | str:
    """The answers of a finished program, or what went wrong."""
    if outcome.exit_code is None:
        return f"it did not end within {SECONDS:g} seconds"
    try:
        told = json.loads(outcome.output.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return f"it ended with exit code {outcome.exit_code} and without an answer"
    return f"it failed: {told['error']}" if "error" in told else told["answers"]


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > LONGEST:
            raise RequestError(f"{path} is larger than {LONGEST:,} bytes, which no answer is")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read {path}: {error}") from error


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _shown(value: Any) -> str:
    """A value in a line of Python."""
    if isinstance(value, np.ndarray) and value.ndim:
        return "np.array(" + np.array2string(value, separator=", ", precision=4, max_line_width=10_000).replace("\n", "") + ")"
    if isinstance(value, np.ndarray | np.generic | float):
        return f"{float(value):.6g}" if not isinstance(value, np.bool_ | np.integer) else repr(value.item())
    return repr(value)
