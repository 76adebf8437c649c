"""Modular arithmetic: "58*77%10=" is answered by "6", the remainder of 58 · 77 = 4 466 divided by
10."""

from __future__ import annotations

from rlbook.checks import check
from rlbook.llm.tasks.expressions import OPERATORS
from rlbook.llm.tasks.task import Task, draw_numbers, integer_kind

COUNT = 16_384


class ModularTask(Task):
    """16 384 of the 3 · 90 · 90 sums, differences and products of two numbers from 10 to 99. The
    remainder is never negative.

    Args:
        modulus: what is divided by, 2 to 99. The last digits decide about 10 and 5; others need
            both digits, and are much harder to learn.
    """

    name = "modular"
    characters = "0123456789+-*%="

    def __init__(self, modulus: int = 10) -> None:
        check("modulus", modulus, integer_kind(2, 99))
        self.modulus = modulus
        super().__init__()

    def all_prompts(self) -> list[str]:
        return [
            f"{10 + i % 90}{'+-*'[i // 8100]}{10 + i // 90 % 90}%{self.modulus}="
            for i in draw_numbers(3 * 90 * 90, COUNT)
        ]

    def answer(self, prompt: str) -> str:
        text = prompt.partition("%")[0]
        return str(OPERATORS[text[2]](int(text[:2]), int(text[3:])) % self.modulus)
