"""A mixture of tasks: each prompt comes from one of them, and is scored by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlbook.checks import check, one_of, optional
from rlbook.llm.tasks.task import Task


class MixtureTask(Task):
    """The prompts of several tasks, sampled equally often; rewards receive the name of a prompt's
    task in the column "task".

    Args:
        tasks: name → task, or pairs of both. No two of them have a prompt in common.
        only: the one whose prompts are shown; the vocabulary and the limits stay those of all. None
            shows all.
    """

    name = "mixture"

    def __init__(
        self, tasks: Mapping[str, Task] | Iterable[tuple[str, Task]], only: str | None = None
    ) -> None:
        tasks = self.tasks = dict(tasks)
        if len(tasks) < 2:
            raise ValueError(f"a mixture has at least two tasks, got {list(tasks)}")
        check("only", only, optional(one_of(*tasks)))
        self.shown = list(tasks) if only is None else [only]
        self.characters = "".join(
            dict.fromkeys("".join(task.characters for task in tasks.values()))
        )
        self.words = tuple(dict.fromkeys(word for task in tasks.values() for word in task.words))
        self.held_out, self.train = (
            self._join_prompts(split, tasks) for split in ("held_out", "train")
        )
        self.of = {
            prompt: name for name, task in tasks.items() for prompt in (*task.train, *task.held_out)
        }
        if len(self.of) < len(self.train) + len(self.held_out):
            raise ValueError(f"the tasks {' and '.join(tasks)} have prompts in common")

    def all_prompts(self) -> list[str]:
        return [*self.train, *self.held_out]

    def prompts(self, split: str) -> tuple[str, ...]:
        check("split", split, one_of("train", "held_out"))
        return self._join_prompts(split, self.shown)

    def _join_prompts(self, split: str, names: Mapping[str, Task] | list[str]) -> tuple[str, ...]:
        return tuple(prompt for name in names for prompt in self.tasks[name].prompts(split))

    def answer(self, prompt: str) -> str:
        return self.tasks[self.of[prompt]].answer(prompt)

    def demonstration(self, prompt: str) -> str:
        return self.tasks[self.of[prompt]].demonstration(prompt)

    def score(self, prompt: str, text: str) -> float:
        return self.tasks[self.of[prompt]].score(prompt, text)

    def columns(self, prompt: str) -> Mapping[str, object]:
        return {**self.tasks[self.of[prompt]].columns(prompt), "task": self.of[prompt]}
