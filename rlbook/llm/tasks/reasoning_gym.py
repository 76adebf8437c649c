"""The generators of the package reasoning-gym, each as a task: problems with an answer, scored by
the generator.

Source: https://github.com/open-thought/reasoning-gym (Stojanovski et al. 2025, arXiv:2505.24760).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlbook.checks import Kind, check, did_you_mean
from rlbook.llm.tasks.task import HELD_OUT, SPLIT_SEED, Task

RUNS_WHAT_IS_WRITTEN = frozenset(
    {
        "binary_matrix",
        "countdown",
        "intermediate_integration",
        "n_queens",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
        "composite",
    }
)
"""Generators whose score calls Python's or sympy's `eval` on the completion; "composite" may
contain any of them."""
SIZE = Kind(
    f"an integer from {HELD_OUT + 1} to 100000",
    lambda value: type(value) is int and HELD_OUT < value <= 100_000,
)
SETTINGS = Kind(
    "a mapping of the generator's own settings", lambda value: isinstance(value, Mapping)
)


class ReasoningGymTask(Task):
    """A fixed set of problems of one generator, without duplicates and problems that have no
    answer.

    A score that fails on what was written is 0: the generators' scores expect an answer in their
    form.

    Args:
        dataset: the generator's name, such as "chain_sum".
        size: how many problems are drawn, of which 512 are held out.
        settings: the generator's own, such as {"min_terms": 2}.

    Raises:
        ValueError: no such generator, settings that it refuses, too few different problems, or a
            score that would run what a model wrote.
        ImportError: the package is missing.
    """

    def __init__(
        self, dataset: str, size: int = 2048, settings: Mapping[str, Any] | None = None
    ) -> None:
        from reasoning_gym.factory import DATASETS, create_dataset  # type: ignore[import-not-found]

        check("size", size, SIZE)
        check("settings", settings or {}, SETTINGS)
        if dataset not in DATASETS:
            hint = (
                did_you_mean(dataset, DATASETS) or f" (such as {', '.join(sorted(DATASETS)[:5])})"
            )
            raise ValueError(f"dataset: reasoning-gym has no generator {dataset!r}{hint}")
        if dataset in RUNS_WHAT_IS_WRITTEN:
            raise ValueError(
                f"dataset: the score of {dataset!r} would run a completion as Python code, so it "
                "is not offered"
            )
        try:
            self.data = create_dataset(dataset, size=size, seed=SPLIT_SEED, **settings or {})
        except (TypeError, ValueError, AssertionError) as error:
            raise ValueError(
                f"settings: {dataset!r} refuses them: {' '.join(str(error).split())}"
            ) from error
        self.name = f"reasoning-gym's {dataset}"
        found = (self.data[i] for i in range(size))
        self.entries: dict[str, dict[str, Any]] = {}
        for entry in found:
            if isinstance(entry["answer"], str) and entry["answer"].strip():
                self.entries.setdefault(entry["question"].strip() + "\n", entry)
        if len(self.entries) <= HELD_OUT:
            few = f"only {len(self.entries)} different problems among {size}"
            raise ValueError(
                f"dataset: {dataset!r} gives {few}, but {HELD_OUT} are held out; ask for a "
                "larger size"
            )
        super().__init__()

    def all_prompts(self) -> list[str]:
        return list(self.entries)

    def answer(self, prompt: str) -> str:
        return self.entries[prompt]["answer"].strip()

    def score(self, prompt: str, text: str) -> float:
        try:
            return float(self.data.score_answer(text, self.entries[prompt]))
        except Exception:  # whatever a generator's score makes of a text that is not an answer
            return 0.0
