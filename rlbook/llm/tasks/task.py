"""A task is a list of prompts, split once and for all into train and held-out, and the answer to each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from rlbook.checks import check, one_of

HELD_OUT = 512
SPLIT_SEED = 20_240_512


class Task(ABC):
    """Prompts with one right answer each.

    The split depends on the task alone, never on the seed of a run: a held-out prompt is held out for everyone.
    """

    name: ClassVar[str]
    characters: str = ""
    """All that prompts, answers and completions may be written with: the vocabulary. Empty: those of the prompts and the answers."""

    def __init__(self) -> None:
        rng = np.random.default_rng(SPLIT_SEED)
        prompts = self.all_prompts()
        if not self.characters:
            self.characters = "".join(sorted({character for prompt in prompts for character in prompt + self.answer(prompt)}))
        order = rng.permutation(len(prompts))
        self.held_out = tuple(prompts[i] for i in order[:HELD_OUT])
        self.train = tuple(prompts[i] for i in order[HELD_OUT:])

    @abstractmethod
    def all_prompts(self) -> list[str]:
        """Every prompt, each once, in an order that never changes."""

    @abstractmethod
    def answer(self, prompt: str) -> str:
        """The one right completion of `prompt`, without EOS."""

    def columns(self, prompt: str) -> Mapping[str, object]:
        """What else rewards are told about `prompt`, by name."""
        return {}

    def prompts(self, split: str) -> tuple[str, ...]:
        """The prompts of "train" or "held_out"."""
        check("split", split, one_of("train", "held_out"))
        return self.train if split == "train" else self.held_out
