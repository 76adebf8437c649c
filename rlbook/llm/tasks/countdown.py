"""Countdown: "2,3,7:13=" asks for an expression that uses 2, 3 and 7 once each and equals 13. Both
"2*3+7" and "7+3*2" are correct."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
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
        """Each character is a step; it is right if the target can still be reached, by any
        continuation of whatever length. The last one is right if the whole text is."""
        ends, right = range(1, len(text)), 0
        while right < len(ends) and _can_be_completed(prompt, text[: right + 1]):
            right += 1  # no continuation of a wrong beginning is right
        found = [(end, float(end <= right)) for end in ends]
        return [*found, (len(text), self.score(prompt, text))] if text else []


@lru_cache(maxsize=2**16)
def _can_be_completed(prompt: str, beginning: str) -> bool:
    """Whether a correct expression begins with this text."""
    numbers = list(map(int, prompt.split(":")[0].split(",")))
    found = _continuations(beginning, numbers)
    return any(CountdownTask.score_recorded(prompt, "", text) for text in found)


def _continuations(beginning: str, numbers: list[int]) -> Iterator[str]:
    """Texts that begin so and use each number once. A correct expression is among them if there is
    one: without redundant parentheses after the beginning, it is still correct. Not all texts are
    valid."""
    before = beginning.rstrip("0123456789")
    unfinished = beginning.removeprefix(before)
    left = numbers.copy()
    for used in map(int, re.findall(r"\d+", before)):
        if used not in left:
            return
        left.remove(used)
    depth = before.count("(") - before.count(")")
    if unfinished:
        for number in {one for one in left if str(one).startswith(unfinished)}:
            yield from _continue_after_number(f"{before}{number}", _remove(left, number), depth)
    elif before.endswith(")"):
        yield from _continue_after_number(before, left, depth)
    else:
        yield from _continue_with_number(before, left, depth)


def _continue_with_number(text: str, left: list[int], depth: int) -> Iterator[str]:
    """The continuations with a number next, after as many parentheses as can be necessary."""
    for opened in range(len(left)):
        for number in set(left):
            after = f"{text}{'(' * opened}{number}"
            yield from _continue_after_number(after, _remove(left, number), depth + opened)


def _continue_after_number(text: str, left: list[int], depth: int) -> Iterator[str]:
    """The continuations in which some of the `depth` open parentheses are closed, followed by a
    sign or the end."""
    if not left:
        yield text + ")" * depth
        return
    for closed, sign in product(range(depth + 1), SIGNS):
        yield from _continue_with_number(f"{text}{')' * closed}{sign}", left, depth - closed)


def _remove(numbers: list[int], used: int) -> list[int]:
    place = numbers.index(used)
    return numbers[:place] + numbers[place + 1 :]


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
