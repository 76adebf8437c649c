"""Grades an assignment's file: it runs in a sandbox, and its answers are judged outside of it."""

from __future__ import annotations

import importlib
import json
import secrets
import threading
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlbook.book.assignments import probes
from rlbook.book.assignments.assignment import Assignment, Case, RubricLine, assignments
from rlbook.book.exercises.checking import (
    EMPTY,
    FAILED,
    RIGHT,
    WRONG,
    Verdict,
    last_line,
    printable,
    text_of,
)
from rlbook.llm.rewards.code import run_program

MODULES = ("numpy", "torch", "torch._dynamo", "torch._subclasses.schema_check_mode")
"""The modules that a student's file may import; torch's optimisers import the third when they are
created, and a tensor the last one when it is printed."""
MEMORY_MB, SECONDS = 8_192, 30.0
SLACK = 1e-9
ONE_AT_A_TIME = threading.Lock()
"""Solutions draw from torch's generator, of which a process has only one, and probes replace parts
of them."""


class Award(NamedTuple):
    """A criterion's line in the grade."""

    criterion: str
    mark: str
    """RIGHT if all points are earned; FAILED if it did not run; EMPTY if it is not started."""
    points: int
    of: int
    said: str


def judge(
    item: Assignment,
    text: str,
    *,
    seed: int = 0,
    seconds: float | None = None,
    isolate: bool = True,
) -> list[Award]:
    """The points of a student's file, criterion by criterion.

    Args:
        item: what was asked.
        text: the file.
        seed: of the hidden cases.
        seconds: of the processor, for the training; the assignment's own if None.
        isolate: in the sandbox: no files, no network, no other processes. Time and memory are
            limited anyway.
    """
    limit = item.seconds if seconds is None else seconds
    awards: dict[str, Award] = {}
    for group, most in ((False, min(SECONDS, limit)), (True, limit)):
        asked = [criterion for criterion in item.rubric if criterion.trains == group]
        cases = [item.draw_cases(criterion, seed) for criterion in asked]
        told = _run(text, asked, cases, most, isolate)
        for criterion, drawn, answer in zip(asked, cases, told, strict=True):
            awards[criterion.name] = award(item, criterion, drawn, answer)
    return [awards[criterion.name] for criterion in item.rubric]


def check_assignment(path: Path, *, isolate: bool = True) -> list[Verdict]:
    """Grades a file named after an assignment, for the student who writes it: criterion by
    criterion, on the cases of seed 0.

    Raises:
        RequestError: no such file.
    """
    item = assignments()[path.stem]
    return [
        Verdict(
            f"{item.name}, {found.criterion}",
            str(path),
            found.mark == RIGHT,
            f"{found.points} of {found.of} points: {found.said}",
        )
        for found in judge(item, text_of(path), isolate=isolate)
    ]


def award(item: Assignment, criterion: RubricLine, cases: list[Case], report: object) -> Award:
    """The points for what a probe reported about a student's file; the report may contain
    anything."""

    def line(share: float, said: str, failed: str = WRONG) -> Award:
        # down to whole points; a third of 3 must not fall to 0 by rounding
        points = int(criterion.points * share + SLACK)
        mark = RIGHT if points == criterion.points else failed
        return Award(criterion.name, mark, points, criterion.points, printable(said))

    if not isinstance(report, dict) or isinstance(report.get("error"), str):
        error = report["error"] if isinstance(report, dict) else "it returned something else"
        if error == "not yet":
            return line(0.0, error, EMPTY)
        return line(0.0, f"it failed: {error}", FAILED)
    answers = report.get("answers")
    if not isinstance(answers, list) or len(answers) != len(cases):
        return line(0.0, "it returned something else than asked")
    right = [] if criterion.trains else right_answers(item, criterion, cases)
    try:
        with np.errstate(all="ignore"):
            score = criterion.judge(cases, answers, right)
    except (TypeError, ValueError, IndexError, OverflowError):
        return line(0.0, "it failed: an answer has another shape or type than asked")
    return line(score.share, score.said)


def right_answers(item: Assignment, criterion: RubricLine, cases: list[Case]) -> list[Any]:
    """The solution's answers, computed once for a whole class, whose cases are the same."""
    with ONE_AT_A_TIME:
        return json.loads(_right_answers(item.name, criterion.probe, json.dumps(cases)))


@lru_cache(maxsize=64)
def _right_answers(name: str, probe: str, cases: str) -> str:
    solution = importlib.import_module(f"rlbook.book.assignments.key.{name}")
    answers = [probes.as_lists(probes.PROBES[probe](solution, case)) for case in json.loads(cases)]
    return json.dumps(answers)


@cache
def _program() -> str:
    return Path(probes.__file__).read_text(encoding="utf-8")


def _run(
    text: str, lines: list[RubricLine], cases: list[list[Case]], seconds: float, isolate: bool
) -> list[Any]:
    """The reports of the probes of some criteria, from one process."""
    given = [(criterion.probe, drawn) for criterion, drawn in zip(lines, cases, strict=True)]
    token = secrets.token_hex(16)
    outcome = run_program(
        _program(),
        json.dumps({"text": text, "asked": given, "token": token}),
        seconds=seconds,
        memory_mb=MEMORY_MB,
        isolate=isolate,
        modules=MODULES,
    )
    line, complaint = last_line(outcome, seconds)
    told = line.get("told") if isinstance(line, dict) and line.get("token") == token else None
    if isinstance(told, list) and len(told) == len(lines):
        return told
    return [{"error": complaint}] * len(lines)
