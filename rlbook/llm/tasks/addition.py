"""Sums of two two-digit numbers: "12+34=" is answered by "46"."""

from __future__ import annotations

from rlbook.llm.tasks.task import Task
from rlbook.llm.tokenizer import CHARACTERS


class AdditionTask(Task):
    """All 90 · 90 = 8 100 ordered pairs from 10 to 99."""

    name = "addition"
    characters = CHARACTERS

    def all_prompts(self) -> list[str]:
        return [f"{left}+{right}=" for left in range(10, 100) for right in range(10, 100)]

    def answer(self, prompt: str) -> str:
        left, right = prompt.rstrip("=").split("+")
        return str(int(left) + int(right))
