"""Copying in a given format: "ab<cde>fg=" is answered by "[CDE]", the word between the tags in
capital letters and brackets."""

from __future__ import annotations

import numpy as np

from rlbook.llm.tasks.task import SPLIT_SEED, Task

LETTERS = "abcdefghij"
COUNT = 8192


class TaggedCopyTask(Task):
    """8 192 distinct sequences of eight of ten letters, with a word of one to five letters between
    the tags."""

    name = "tagged_copy"
    characters = f"{LETTERS}{LETTERS.upper()}<>[]="

    def all_prompts(self) -> list[str]:
        rng = np.random.default_rng(SPLIT_SEED)
        prompts: dict[str, None] = {}
        while len(prompts) < COUNT:
            row = "".join(LETTERS[i] for i in rng.integers(len(LETTERS), size=8))
            length = int(rng.integers(1, 6))
            start = int(rng.integers(0, 9 - length))
            prompts[f"{row[:start]}<{row[start : start + length]}>{row[start + length :]}="] = None
        return list(prompts)

    def answer(self, prompt: str) -> str:
        return f"[{prompt.partition('<')[2].partition('>')[0].upper()}]"
