"""Countdown: "2,3,7:13=" asks for an expression that uses 2, 3 and 7 once each and equals 13. Both
"2*3+7" and "7+3*2" are correct."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement, permutations, product

from rlbook.llm.tasks.expressions import parse
from rlbook.llm.tasks.task import Task

LARGEST = 15
TARGETS = range(1, 100)
SIGNS = "+-*/"


class CountdownTask(Task):
    """Three numbers from 1 to 15 in ascending order, and every target from 1 to 99 that + - * /
    reach with whole numbers as intermediate results.

    Several expressions are right. `answer` gives the shortest, the first in the order of the
    characters among equals; `score` takes any.
    """

    name = "countdown"
    characters = "0123456789+-*/(),:="

    def all_prompts(self) -> list[str]:
        return list(_solutions())

    def answer(self, prompt: str) -> str:
        return _solutions()[prompt]

    def score(self, prompt: str, text: str) -> float:
        return self.score_recorded(prompt, "", text)  # of other targets, too

    @staticmethod
    def score_recorded(prompt: str, answer: str, text: str) -> float:
        numbers, target = prompt.rstrip("=").split(":")
        found = parse(text)
        return float(
            found is not None
            and found.value == int(target)
            and sorted(found.numbers) == list(map(int, numbers.split(",")))
        )

    def judge_steps(self, prompt: str, text: str) -> list[tuple[int, float]]:
        """Each character is a step; it is right if a right expression begins so. Expressions with
        redundant parentheses are right only as a whole."""
        numbers, target = prompt.rstrip("=").split(":")
        right = _expressions_of(tuple(map(int, numbers.split(","))), int(target))
        found = [
            (end, float(any(one.startswith(text[:end]) for one in right)))
            for end in range(1, len(text) + 1)
        ]
        return [*found[:-1], (len(text), self.score(prompt, text))] if found else []


@cache
def _expressions_of(numbers: tuple[int, ...], target: int) -> frozenset[str]:
    """All expressions of three numbers that come to `target`, without redundant parentheses."""
    return frozenset(
        text
        for order in set(permutations(numbers))
        for value, text in _expressions(*order)
        if value == target
    )


@cache
def _solutions() -> dict[str, str]:
    """Every prompt with a solution."""
    best: dict[str, str] = {}
    for numbers in combinations_with_replacement(range(1, LARGEST + 1), 3):
        name = ",".join(map(str, numbers))
        for a, b, c in set(permutations(numbers)):
            for target, text in _expressions(a, b, c):
                prompt = f"{name}:{target}="
                known = best.get(prompt, text)
                best[prompt] = min(known, text, key=lambda one: (len(one), one))
    return best


def _expressions(a: int, b: int, c: int) -> Iterator[tuple[int, str]]:
    """The targets of expressions of a, b and c in this order, without redundant parentheses."""
    for first, second in product(SIGNS, SIGNS):
        left, right = _value(a, first, b), _value(b, second, c)
        products = first in "*/", second in "*/"
        left_to_right = None if left is None else _value(left, second, c)
        inner_last = None if right is None else _value(a, first, right)
        if left_to_right is not None and left_to_right in TARGETS:
            yield (
                left_to_right,
                f"({a}{first}{b}){second}{c}"
                if products == (False, True)
                else f"{a}{first}{b}{second}{c}",
            )
        if inner_last is not None and inner_last in TARGETS and products != (False, False):
            yield (
                inner_last,
                f"{a}{first}{b}{second}{c}"
                if products == (False, True)
                else f"{a}{first}({b}{second}{c})",
            )


def _value(left: int, sign: str, right: int) -> int | None:
    """The result of an operation on two whole numbers; None if it is not a whole number."""
    if sign == "/":
        return left // right if right and left % right == 0 else None
    return left + right if sign == "+" else left - right if sign == "-" else left * right
