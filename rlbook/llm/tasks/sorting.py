"""Sorting eight digits in ascending order: "72905314=" is answered by "01234579"."""

from __future__ import annotations

from rlbook.llm.tasks.task import Task, draw_numbers
from rlbook.llm.tokenizers.tokenizer import CHARACTERS

LENGTH = 8
COUNT = 8192


class SortingTask(Task):
    """8 192 distinct sequences of eight digits, out of 10⁸."""

    name = "sorting"
    characters = CHARACTERS

    def all_prompts(self) -> list[str]:
        return [f"{number:0{LENGTH}d}=" for number in draw_numbers(10**LENGTH, COUNT)]

    def answer(self, prompt: str) -> str:
        return "".join(sorted(prompt.rstrip("=")))
