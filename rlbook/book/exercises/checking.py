"""Checks answers to exercises: each runs in a separate process, and is compared with the library's
on the same cases.

A known mistake is another function: where an answer agrees with it and not with the right one, its
hint is shown.
"""

from __future__ import annotations

import ast
import inspect
import json
import signal
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlbook.book.exercises.exercise import CASES, Exercise, are_close, exercises, format_value
from rlbook.checks import did_you_mean
from rlbook.errors import RequestError
from rlbook.llm.rewards.code import ProgramOutcome, run_program

LONGEST = 100_000  # bytes of a file with an answer
NOT_HANDED_IN = {"site-packages", "__pycache__", "__MACOSX", "node_modules"}
SECONDS, MEMORY_MB = 10.0, 4_096
RUNNER = """
import io, json, sys
from types import ModuleType
import numpy as np

class NullStream(io.TextIOBase):
    def write(self, text):
        return len(text)

def argument(item):
    if not isinstance(item, list):
        return item
    array = np.asarray(item)
    array.flags.writeable = WRITEABLE
    return array

def answer(function, given):
    found = function(*map(argument, given))
    return None if found is None or found is NotImplemented else np.asarray(found, dtype=float).tolist()

def line_of(trace):
    line = None
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "answer.py" else line
        trace = trace.tb_next
    return f" (line {line})" if line else ""

def told(cases):
    module = sys.modules["answer"] = ModuleType("answer")
    names = vars(module)
    try:
        exec(compile(TEXT, "answer.py", "exec"), names)
        return {"answers": [answer(names[NAME], given) for given in cases]}
    except SystemExit as error:
        return {"error": "it calls exit()" + line_of(error.__traceback__)}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}" + line_of(error.__traceback__)}

output, cases = sys.stdout, json.load(sys.stdin)
sys.stdout = NullStream()
text = json.dumps(told(cases))
print(text, file=output, flush=True)
"""
"""The program that runs an answer; NAME, WRITEABLE and TEXT are placeholders."""
RIGHT, MISTAKEN, WRONG, FAILED, EMPTY = "right", "known mistake", "not right", "failed", "not begun"


@dataclass(frozen=True)
class Verdict:
    """The result of checking a file of answers."""

    exercise: str
    file: str
    right: bool
    said: str


class Judgement(NamedTuple):
    """The judgement of an answer, one of `RIGHT`, `MISTAKEN`, `WRONG`, `FAILED` and `EMPTY`, with a
    message."""

    mark: str
    said: str


def check_file(path: Path, *, isolate: bool = True) -> list[Verdict]:
    """Checks each exercise for which a file defines a function.

    Args:
        path: a Python file.
        isolate: in the sandbox: no files, no network, no other processes. Time and memory are
            limited anyway.

    Raises:
        RequestError: no such file, a file that is no Python, or one without an exercise's function.
    """
    text, names = functions_in(path)
    asked = [exercises()[name] for name in names if name in exercises()]
    if not asked:
        hint = next(filter(None, (did_you_mean(name, exercises()) for name in names)), "")
        raise RequestError(
            f"{path} defines no exercise's function{hint} (it has: {', '.join(names) or 'none'})"
        )
    found = [(item.name, check_answer(item, text, isolate=isolate)) for item in asked]
    return [Verdict(name, str(path), answer.mark == RIGHT, answer.said) for name, answer in found]


def functions_in(path: Path) -> tuple[str, list[str]]:
    """A file's text, and the functions that it defines.

    Raises:
        RequestError: no such file, or it is no Python.
    """
    text = text_of(path)
    try:
        with warnings.catch_warnings(action="ignore"):
            return text, [
                item.name for item in ast.parse(text).body if isinstance(item, ast.FunctionDef)
            ]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = (
            f"{error.msg} (line {error.lineno})"
            if isinstance(error, SyntaxError)
            else str(error) or type(error).__name__
        )
        raise RequestError(f"{path} cannot be read as Python: {said}") from error


def answers_in(folder: Path) -> list[Path]:
    """The Python files in a folder, those in fewer subfolders first, without hidden files and
    installed packages."""
    found = (
        path
        for path in folder.rglob("*.py")
        if not any(
            part.startswith(".") or part in NOT_HANDED_IN for part in path.relative_to(folder).parts
        )
        and path.is_file()
        and not path.is_symlink()
    )
    return sorted(found, key=lambda path: (len(path.parts), path))


def check_answer(
    item: Exercise, text: str, *, isolate: bool = True, seconds: float | None = None
) -> Judgement:
    """Runs an answer in a separate process and compares its results.

    Args:
        item: what is asked.
        text: a program that defines it.
        isolate: in the sandbox: no files, no network, no other processes.
        seconds: of the processor that it may take; `SECONDS` if None.
    """
    cases, limit = item.draw_cases(), SECONDS if seconds is None else seconds
    writeable = repr(not item.keeps_arguments)
    program = RUNNER.replace("NAME", repr(item.name)).replace("WRITEABLE", writeable)
    program = program.replace("TEXT", repr(text))
    given = json.dumps([[_as_list(value) for value in case] for case in cases])
    outcome = run_program(
        program, given, seconds=limit, memory_mb=MEMORY_MB, isolate=isolate, modules=("numpy",)
    )
    return compare_answers(item, cases, _answers_of(outcome, limit))


def compare_answers(
    item: Exercise, cases: list[tuple[Any, ...]], answers: list[Any] | str
) -> Judgement:
    """Whether answers are right, and a message; a string is the error that prevented them."""
    if isinstance(answers, str):
        return Judgement(FAILED, answers)
    if all(answer is None for answer in answers):
        return Judgement(EMPTY, "not yet: it returns nothing")
    if None in answers:
        call = _call(item, cases[answers.index(None)])
        return Judgement(WRONG, f"not right: {call} returns nothing")
    try:
        found = [np.asarray(answer, dtype=np.float64) for answer in answers]
    except (TypeError, ValueError, OverflowError):
        return Judgement(FAILED, "it failed: an answer is neither a number nor an array of numbers")
    exact = [np.asarray(item.function(*case), dtype=np.float64) for case in cases]
    place = next(
        (
            place
            for place, pair in enumerate(zip(found, exact, strict=True))
            if not are_close(*pair)
        ),
        None,
    )
    if place is None:
        return Judgement(RIGHT, "right")
    for hint, mistake in item.mistakes.items():
        if all(
            are_close(answer, mistake(*case)) for answer, case in zip(found, cases, strict=True)
        ):
            return Judgement(MISTAKEN, f"not right: {hint}")
    if found[place].shape != exact[place].shape:
        given, wanted = (list(array.shape) for array in (found[place], exact[place]))
        return Judgement(WRONG, f"not right: the answer has shape {given} and should have {wanted}")
    call, right = _call(item, cases[place]), format_value(exact[place])
    return Judgement(WRONG, f"not right: {call} is {right}, and not {format_value(found[place])}")


def _call(item: Exercise, case: tuple[Any, ...]) -> str:
    """The call of a case as Python source."""
    names = inspect.signature(item.function).parameters
    given = (f"{name}={format_value(value)}" for name, value in zip(names, case, strict=True))
    return f"{item.name}({', '.join(given)})"


def last_line(outcome: ProgramOutcome, seconds: float) -> tuple[Any, str]:
    """The last line of a finished program as JSON, None if it is not JSON, and an error if it
    cannot be used. The program may have printed anything."""
    if outcome.exit_code in (None, -signal.SIGXCPU):
        return None, f"it did not end within {seconds:g} seconds"
    if outcome.exit_code == -signal.SIGKILL:
        return (
            None,
            "the system killed it: it needs more memory than is free, or ignores the limits",
        )
    complaint = f"it ended with exit code {outcome.exit_code} and without an answer"
    try:
        return json.loads(outcome.output.strip().splitlines()[-1]), complaint
    except (ValueError, LookupError, RecursionError):
        return None, complaint


def _answers_of(outcome: ProgramOutcome, seconds: float) -> list[Any] | str:
    """The answers of a finished program, or an error."""
    line, complaint = last_line(outcome, seconds)
    told = line if isinstance(line, dict) else {}
    if isinstance(told.get("error"), str):
        return f"it failed: {printable(told['error'])}"
    answers = told.get("answers")
    return answers if isinstance(answers, list) and len(answers) == CASES else complaint


def printable(text: str, most: int = 300) -> str:
    """Untrusted text on one line, without terminal control characters."""
    line = " ".join(text[:most].split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def text_of(path: Path) -> str:
    """The text of a file of at most `LONGEST` bytes. Raises RequestError if it cannot be read."""
    try:
        if path.stat().st_size > LONGEST:
            raise RequestError(f"{path} is larger than {LONGEST:,} bytes, which no answer is")
        with tokenize.open(path) as file:  # in the encoding that it declares
            return file.read()
    except (OSError, UnicodeError, SyntaxError, LookupError) as error:
        raise RequestError(f"cannot read {path}: {error}") from error


def _as_list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
