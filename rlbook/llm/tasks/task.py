"""A task: a fixed list of prompts, split into training and held-out ones, with correct answers."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

import numpy as np

from rlbook.checks import Kind, check, one_of
from rlbook.llm.tokenizers.tokenizer import remove_words

T = TypeVar("T", bound="Task")
HELD_OUT = 512
SPLIT_SEED = 20_240_512


def integer_kind(low: int, high: int) -> Kind:
    """An integer from `low` to `high`, both included."""
    return Kind(
        f"an integer from {low} to {high}",
        lambda value: type(value) is int and low <= value <= high,
    )


def draw_numbers(total: int, count: int) -> list[int]:
    """`count` distinct numbers below `total`: always the same ones, in the same random order."""
    return np.random.default_rng(SPLIT_SEED).choice(total, count, replace=False).tolist()


class Task(ABC):
    """Prompts with an answer each.

    Where several completions are right, `score` says which; where the answer is best written after
    some steps, `demonstration` shows them. The split depends on the task alone, never on the seed
    of a run: a held-out prompt is held out for everyone.
    """

    name: str
    characters: str = ""
    """All characters that prompts, answers and completions may contain: the vocabulary. Empty:
    those of the prompts and the demonstrations."""
    words: tuple[str, ...] = ()
    """Sequences of several characters that are one token, such as "<think>"."""
    shared: bool = False
    """Whether `build_task` shares the instance, so that it must not be changed."""

    def __init__(self) -> None:
        rng = np.random.default_rng(SPLIT_SEED)
        prompts = self.all_prompts()
        if not self.characters:
            texts = (prompt + self.demonstration(prompt) for prompt in prompts)
            self.characters = "".join(
                sorted(set().union(*(remove_words(self.words, text) for text in texts)))
            )
        order = rng.permutation(len(prompts))
        self.held_out = tuple(prompts[i] for i in order[:HELD_OUT])
        self.train = tuple(prompts[i] for i in order[HELD_OUT:])

    @abstractmethod
    def all_prompts(self) -> list[str]:
        """Every prompt once, in a fixed order."""

    @abstractmethod
    def answer(self, prompt: str) -> str:
        """A correct answer to `prompt`, without EOS; the only correct one unless `score` is
        overridden."""

    def demonstration(self, prompt: str) -> str:
        """A completion for supervised learning, without EOS: the answer, preceded by intermediate
        steps if there are any."""
        return self.answer(prompt)

    def score(self, prompt: str, text: str) -> float:
        """The score of a completion, from 0 to 1 for a correct one; `text` is without EOS."""
        return self.score_recorded(prompt, self.answer(prompt), text)

    @staticmethod
    def score_recorded(prompt: str, answer: str, text: str) -> float:
        """The score when only the prompt and a correct answer of the task are available, as in a
        file of rows.
        """
        return float(text == answer)

    def judge_steps(self, prompt: str, text: str) -> list[tuple[int, float]]:
        """The steps of a completion: where each ends, in characters of `text`, and 1 if it is right
        or 0; none of an empty text.

        Raises:
            ValueError: a text of this task has no steps.
        """
        raise ValueError(f"task {self.name!r} has no reasoning steps to judge")

    def columns(self, prompt: str) -> Mapping[str, object]:
        """Further metadata of `prompt` for rewards, by name."""
        return {}

    def prompts(self, split: str) -> tuple[str, ...]:
        """The prompts of "train" or "held_out"."""
        check("split", split, one_of("train", "held_out"))
        return self.train if split == "train" else self.held_out


def build_task(kind: type[T], *arguments: Any, **named: int | str) -> T:
    """A task with these arguments. Tasks are immutable, so all environments of a process share one
    instance."""
    try:
        return _build_task(kind, *arguments, **named)
    except TypeError:  # a list is not a key; the task says what it wants instead
        return kind(*arguments, **named)


@functools.lru_cache(maxsize=32, typed=True)
def _build_task(kind: type[T], *arguments: Hashable, **named: int | str) -> T:
    task = kind(*arguments, **named)
    task.shared = True
    return task
