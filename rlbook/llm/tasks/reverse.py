"""Reversing six letters: "abcdef=" is answered by "fedcba"."""

from __future__ import annotations

from rlbook.llm.tasks.task import Task, draw_numbers
from rlbook.llm.tokenizers.tokenizer import CHARACTERS

LETTERS = "abcdefghij"
LENGTH = 6
COUNT = 8192


class ReverseTask(Task):
    """8 192 distinct words out of the 10⁶ with six of ten letters."""

    name = "reverse"
    characters = CHARACTERS

    def all_prompts(self) -> list[str]:
        return [_word(number) + "=" for number in draw_numbers(len(LETTERS) ** LENGTH, COUNT)]

    def answer(self, prompt: str) -> str:
        return prompt.rstrip("=")[::-1]


def _word(number: int) -> str:
    return "".join(
        LETTERS[(number // len(LETTERS) ** place) % len(LETTERS)] for place in range(LENGTH)
    )
