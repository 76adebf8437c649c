r"""The GRPO notebook, end to end: a hundred problems, three rewards, LoRA, and the rewards before
and after.

    1  rows       problems whose worked solution ends in \boxed{an integer}; the integer modulo 1000 is the answer; the first hundred
                  are kept, 90 to learn from and 10 to be examined by, drawn with seed 42
    2  grpo       rewards by name: format (the tags), accuracy (the answer), levenshtein (what follows </think>)
    3  adapter    the trained adapter as files, read again from them, and the rewards of that

`rlbook recipe grpo_notebook` has the notebook's own settings, on SmolLM2;
`rlbook recipe grpo_notebook_small` the same stages on a model that is made in a minute. The
functions here are those that the recipes name. With `problems` the rows come from a file of the
user's, of rows with `problem` and `solution`, as in the data sets of mathematical olympiads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import rlbook
from rlbook.book.experiments.language_models.laptop import sample_answers, write_rows
from rlbook.checks import check, one_of, positive_int, unit_interval
from rlbook.data.text_files import read_rows
from rlbook.errors import RequestError
from rlbook.llm.rewards import last_boxed, number
from rlbook.llm.tasks import ReasoningTask
from rlbook.llm.tasks.task import integer_kind

MODULO = 1000
HELD_OUT = 0.1
TERMS = 4
"""The number of terms of the small model's sums."""


def answer_of(solution: str) -> int | None:
    r"""The whole number in the last \boxed{…} of a solution, modulo 1000; None if there is no such
    number.

    The notebook finds it with the regular expression `oxed{(.*?)}`, which ends at the first closing
    brace: of `\boxed{\frac{14}{2}}` it sees `\frac{14`, which is not a number.
    """
    inside = last_boxed(solution)
    value = None if inside is None else number(inside)
    return value.numerator % MODULO if value is not None and value.denominator == 1 else None


def write_problems(
    place: Path,
    *,
    seed: int,
    split: str = "train",
    kind: str = "words",
    problems: str | None = None,
    count: int = 100,
    split_seed: int = 42,
) -> dict[str, Any]:
    """Writes one of the two splits of the first `count` problems that have such an answer, as rows
    with a prompt and an answer.

    Args:
        place: of the rows.
        seed: of the made problems.
        split: "train", nine in ten, or "held_out", the others, at least one.
        kind: "words", short problems in words, or "sums", those of `Reasoning-v0`.
        problems: a file of rows with `problem` and `solution` instead.
        count: how many problems both splits have together.
        split_seed: decides which of them are held out.
    """
    check("split", split, one_of("train", "held_out"))
    check("kind", kind, one_of(*KINDS))
    check("count", count, integer_kind(2, 1_000_000))
    check("split_seed", split_seed, positive_int)
    source = KINDS[kind](seed) if problems is None else read_problems(Path(problems))
    kept = list(itertools.islice(answered_rows(source), count))
    if len(kept) < count:
        found = f"kind {kind}" if problems is None else f"problems: {problems}"
        raise RequestError(
            f"{found} has {len(kept)} with a whole number as their answer, but {count} are needed"
        )
    order = np.random.default_rng(split_seed).permutation(count)
    held = max(1, round(HELD_OUT * count))
    chosen = order[held:] if split == "train" else order[:held]
    return write_rows(place, [kept[int(index)] for index in chosen])


def read_problems(path: Path) -> Iterator[tuple[str, str]]:
    """Problem and solution of each row of a file."""
    for row in read_rows(path):
        problem, solution = row.get("problem"), row.get("solution")
        if not isinstance(problem, str) or not isinstance(solution, str):
            raise RequestError(
                f"problems: every row of {path} must have the texts problem and solution, got"
                f" {', '.join(map(str, row))}"
            )
        yield problem, solution


def answered_rows(problems: Iterable[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """The problems with an answer, as rows."""
    for problem, solution in problems:
        answer = answer_of(solution)
        if answer is not None:
            yield {"prompt": problem, "answer": str(answer), "solution": solution}


def word_problems(seed: int) -> Iterator[tuple[str, str]]:
    r"""An endless stream of small word problems. One answer in six is a fraction equal to a whole
    number, and one in six is not a whole number at all: the extraction has to tell them apart.
    """
    rng = np.random.default_rng(seed)
    while True:
        form, a, b = (int(value) for value in rng.integers([0, 1, 1], [6, 10, 10]))
        yield (
            (f"What is {a} + {b}?", rf"{a} + {b} = {a + b}, so it is \boxed{{{a + b}}}."),
            (
                f"Tom has {a} apples and gets {b} more. How many has he?",
                rf"{a} + {b} = \boxed{{{a + b}}}",
            ),
            (f"What is {a + b} - {a}?", rf"\boxed{{{b}}}"),
            (f"What is {a} times {b}?", rf"It is \boxed{{{a * b}}}"),
            (f"What is half of {2 * a}?", rf"\boxed{{\frac{{{2 * a}}}{{2}}}}"),
            (f"What is {a} divided by {2 * a + 1}?", rf"\boxed{{\frac{{{a}}}{{{2 * a + 1}}}}}"),
        )[form]


def sums(seed: int) -> Iterator[tuple[str, str]]:
    """Held-out prompts of `Reasoning-v0` with four terms, which the small model was never trained
    on."""
    task = ReasoningTask(TERMS)
    order = np.random.default_rng(seed).permutation(len(task.held_out))
    prompts = [task.held_out[int(index)] for index in order]
    return (
        (prompt, rf"{task.demonstration(prompt)} \boxed{{{task.answer(prompt)}}}")
        for prompt in prompts
    )


def write_demonstrations(place: Path, *, seed: int, share: float = 0.5) -> dict[str, Any]:
    """Writes the small model's training data: sums, of which a share is answered with written steps
    between the tags and the others directly.

    So it knows both ways to answer, as a model that has read everything does, and prefers neither.
    """
    check("share", share, unit_interval)
    task, rng = ReasoningTask(TERMS), np.random.default_rng(seed)
    stepwise = rng.random(len(task.train)) < share
    rows = [
        {
            "prompt": prompt,
            "completion": task.demonstration(prompt) if steps else task.answer(prompt),
        }
        for prompt, steps in zip(task.train, stepwise, strict=True)
    ]
    return write_rows(place, rows)


KINDS = {"words": word_problems, "sums": sums}


def write_reloaded(place: Path, *, seed: int, run: str, adapter: str) -> dict[str, Any]:
    """Loads an exported adapter with its base model, and writes its greedy answers to the held-out
    prompts.

    Args:
        place: of the rows.
        seed: has no effect, because the answers are greedy.
        run: folder of the run that trained it.
        adapter: folder of the adapter, in peft's format.

    Raises:
        RequestError: its answers differ from those of the run's own model.
    """
    from rlbook.llm.models.adapters import add_adapter  # torch
    from rlbook.llm.models.sources import folder_model

    trained = rlbook.load(run)
    rules: Any = trained.request.recipe.for_evaluation().make().unwrapped
    prompts = len(rules.rules.prompt_lengths)
    before = sample_answers(trained, prompts, seed, 0.0)
    policy: Any = trained.agent.policy  # type: ignore[attr-defined]
    policy.model = add_adapter(
        folder_model(trained.request.recipe.kwargs["model"]), adapter, np.random.default_rng(0)
    )
    after = sample_answers(trained, prompts, seed, 0.0)
    if before != after:
        raise RequestError(
            f"the adapter in {adapter} gives other outputs than the run that it came from"
        )
    return write_rows(place, after)
