"""Sums of two numbers: "12+34=" is answered by "46"."""

from __future__ import annotations

from rlbook.checks import check
from rlbook.llm.tasks.task import Task, draw_numbers, integer_kind
from rlbook.llm.tokenizers.tokenizer import CHARACTERS

COUNT = 16_384


class AdditionTask(Task):
    """Two digits: all 90 · 90 = 8 100 ordered pairs from 10 to 99. Three or four digits: 16 384
    distinct pairs.

    Args:
        digits: how many each of the two numbers has, 2 to 4.
    """

    name = "addition"
    characters = CHARACTERS

    def __init__(self, digits: int = 2) -> None:
        check("digits", digits, integer_kind(2, 4))
        self.digits = digits
        if digits > 2:
            self.name = f"addition of {digits} digits"
        super().__init__()

    def all_prompts(self) -> list[str]:
        least, size = 10 ** (self.digits - 1), 9 * 10 ** (self.digits - 1)
        pairs = range(size**2) if self.digits == 2 else draw_numbers(size**2, COUNT)
        return [f"{least + pair // size}+{least + pair % size}=" for pair in pairs]

    def answer(self, prompt: str) -> str:
        left, right = prompt.rstrip("=").split("+")
        return str(int(left) + int(right))
