"""Assignments: a solution, a rubric, and the hidden cases that decide the points.

rlbook course start my-course --assignments dqn_catch        the student's file, and its page
rlbook course key for-me --assignments dqn_catch --seed 7    the solution, and what is tested
rlbook course grade hand-ins --assignments dqn_catch --seed 7

The cases are drawn with the seed, which only the teacher needs to know. A criterion's right answers
are those of the solution on the same cases, or what is known of the environment.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from rlbook.checks import did_you_mean
from rlbook.errors import RequestError

NAMES = ("dqn_catch", "ppo_maze", "find_the_bug", "grpo_sums")
"""In the order of the weeks."""
KEY = Path(__file__).parent / "key"
BLOCK = re.compile(r"^( *)### BEGIN SOLUTION\n.*?### END SOLUTION\n", re.MULTILINE | re.DOTALL)
"""The part that a student writes, between nbgrader's markers."""
Case = dict[str, Any]


class Score(NamedTuple):
    """The score of a criterion: a share of its points in [0, 1], and the reason."""

    share: float
    said: str


Judge = Callable[[Sequence[Case], Sequence[Any], Sequence[Any]], Score]
"""Judges a student's answers from the cases and the solution's answers."""


@dataclass(frozen=True)
class RubricLine:
    """A line of the rubric."""

    name: str
    points: int
    asks: str
    """The requirement for the points, as stated on the student's page."""
    probe: str
    """A function of probes.py."""
    cases: Callable[[Generator], list[Case]]
    judge: Judge
    trains: bool = False
    """Whether it takes seconds to compute, in which case it runs in a separate process."""


class Bug(NamedTuple):
    """A line of a solution, and the wrong line that replaces it."""

    name: str
    right: str
    wrong: str


@dataclass(frozen=True)
class Assignment:
    """A whole agent to write."""

    name: str
    title: str
    week: int
    chapters: tuple[str, ...]
    """The pages of docs/chapters that explain it."""
    hours: int
    """The estimated hours for a student."""
    rubric: tuple[RubricLine, ...]
    bugs: tuple[Bug, ...] = ()
    """One of these is planted in a student's file, chosen by the seed; none if there is code to
    write."""
    seconds: float = 90.0
    """The limit for all of its training, in processor seconds."""

    @property
    def points(self) -> int:
        """The maximum number of points."""
        return sum(item.points for item in self.rubric)

    @property
    def solution(self) -> str:
        """The text of the teacher's file."""
        return (KEY / f"{self.name}.py").read_text(encoding="utf-8")

    def starter(self, seed: int = 0) -> str:
        """The student's file: the solution without the parts to write, or with a bug."""
        if self.bugs:
            bug = self.bug_of(seed)
            return plant(self.solution, bug)
        return BLOCK.sub(r'\1raise NotImplementedError("your code")\n', self.solution)

    def bug_of(self, seed: int) -> Bug:
        """The bug for a seed."""
        return self.bugs[int(np.random.default_rng(seed).integers(len(self.bugs)))]

    def draw_cases(self, criterion: RubricLine, seed: int) -> list[Case]:
        """The hidden cases of a criterion, the same for every student."""
        place = self.rubric.index(criterion)
        return criterion.cases(np.random.default_rng([seed, place]))


def plant(text: str, bug: Bug) -> str:
    """A file with a bug in it.

    Raises:
        ValueError: the file does not hold the right line, or holds it twice.
    """
    if text.count(bug.right) != 1:
        raise ValueError(f"{bug.name}: the line stands {text.count(bug.right)} times in the file")
    return text.replace(bug.right, bug.wrong)


@cache
def assignments() -> Mapping[str, Assignment]:
    """All assignments by name, in the order of the weeks."""
    return {
        name: importlib.import_module(f"rlbook.book.assignments.{name}").ASSIGNMENT
        for name in NAMES
    }


def select_assignments(text: str | None) -> list[Assignment]:
    """The assignments named by "dqn_catch,ppo_maze" or "all"; none for None.

    Raises:
        RequestError: there is no such assignment.
    """
    if text is None:
        return []
    if text == "all":
        return [*assignments().values()]
    asked = list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in asked:
        if name not in NAMES:
            hint = did_you_mean(name, NAMES)
            raise RequestError(
                f"there is no assignment {name!r}{hint} (known: {', '.join(NAMES)}, or all)"
            )
    return [assignments()[name] for name in NAMES if name in asked]


def matches_solution(hint: str) -> Judge:
    """Judges whether every answer equals the solution's, up to float32 rounding.

    Args:
        hint: what is probably wrong otherwise, a sentence.
    """

    def judge(cases: Sequence[Case], answers: Sequence[Any], right: Sequence[Any]) -> Score:
        for place, (answer, wanted) in enumerate(zip(answers, right, strict=True), start=1):
            if problem := find_difference(answer, wanted):
                return Score(0.0, f"{hint}: in case {place} of {len(cases)} {problem}")
        return Score(1.0, "right")

    return judge


def has_properties(*properties: tuple[bool, str]) -> Judge:
    """Judges answers that state for each property whether it holds.

    Args:
        properties: for each property whether it should hold, and what to say otherwise, a sentence.
    """

    def judge(cases: Sequence[Case], answers: Sequence[Any], right: Sequence[Any]) -> Score:
        del right
        for place, told in enumerate(answers, start=1):
            for found, (holds, said) in zip(told, properties, strict=True):
                if found is not holds:
                    return Score(0.0, f"{said} (case {place} of {len(cases)})")
        return Score(1.0, "right")

    return judge


def find_difference(answer: object, expected: object) -> str:
    """How an answer differs from the solution's; empty if it does not."""
    if answer is None:
        return "nothing is returned"
    try:
        found, exact = (np.asarray(item, dtype=np.float64) for item in (answer, expected))
    except (TypeError, ValueError, OverflowError):
        return "the answer is not a numeric array of the right shape"
    if found.shape != exact.shape:
        return f"the shape is {list(found.shape)} and should be {list(exact.shape)}"
    # float32 keeps 7 digits; three are left for the order of sums and for the optimiser's roots
    off = ~(np.abs(found - exact) <= 1e-4 * (1 + np.abs(exact)))
    if not off.any():
        return ""
    place = tuple(int(index) for index in np.argwhere(off)[0])
    where = f"entry {list(place)} is" if place else "it is"
    return f"{where} {found[place]:.4g} and should be {exact[place]:.4g}"


def has_frequencies(hint: str, expected: Callable[[Case], np.ndarray]) -> Judge:
    """Judges the frequencies of the actions drawn.

    Args:
        hint: what is probably wrong otherwise, a sentence.
        expected: a case's probabilities, [A].
    """

    def judge(cases: Sequence[Case], answers: Sequence[Any], right: Sequence[Any]) -> Score:
        del right
        for case, answer in zip(cases, answers, strict=True):
            wanted = expected(case)
            found = np.asarray(answer, dtype=np.float64)
            if not match_frequencies(found, wanted, case["draws"]):
                return Score(
                    0.0,
                    f"{hint}: the actions' shares are {_format_numbers(found)}, not {_format_numbers(wanted)}",
                )
        return Score(1.0, "right")

    return judge


def match_frequencies(shares: object, probs: np.ndarray, draws: int) -> bool:
    """Whether the frequencies among so many draws are within five standard errors of the
    probabilities [A], which a correct answer misses once in 10^6 times."""
    found, error = np.asarray(shares, dtype=np.float64), 5 * np.sqrt(probs * (1 - probs) / draws)
    return found.shape == probs.shape and bool((np.abs(found - probs) <= error + 1e-9).all())


def _format_numbers(numbers: np.ndarray) -> str:
    return ", ".join(f"{item:.2f}" for item in numbers.reshape(-1))


def reaches(
    target: float, best: float, what: str, outcome: Callable[[Case, np.ndarray], float]
) -> Judge:
    """Judges the share of runs that reach a result.

    Args:
        target: what a run must reach.
        best: what is possible.
        what: the name of the number.
        outcome: a case and a run's answer → the number.
    """

    def judge(cases: Sequence[Case], answers: Sequence[Any], right: Sequence[Any]) -> Score:
        del right
        found = [
            outcome(case, np.asarray(answer, dtype=np.float64))
            for case, answer in zip(cases, answers, strict=True)
        ]
        good = sum(number >= target for number in found)
        numbers = ", ".join(f"{number:.2f}" for number in found)
        return Score(
            good / len(found),
            f"{good} of {len(found)} runs reach {what} {target:g}: {numbers} (the best is {best:g})",
        )

    return judge


def is_off_by_at_most(
    most: float, hint: str, exact: Callable[[Case], tuple[np.ndarray, tuple[slice | int, ...]]]
) -> Judge:
    """Judges the largest error of what was learned.

    Args:
        most: the error that is allowed.
        hint: what is probably wrong otherwise, a sentence.
        exact: a case → the right numbers, and where they stand in the answer.
    """

    def judge(cases: Sequence[Case], answers: Sequence[Any], right: Sequence[Any]) -> Score:
        del right
        for case, answer in zip(cases, answers, strict=True):
            wanted, place = exact(case)
            found = np.asarray(answer, dtype=np.float64)[place]
            if found.shape != wanted.shape:
                return Score(0.0, f"{hint}: the learned values have the wrong shape")
            off = float(np.abs(found - wanted).max())
            if not off <= most:
                return Score(0.0, f"{hint}: the learned values are off by {off:.2f}")
        return Score(1.0, "right")

    return judge
