"""The sources of a chat environment's examples: a built-in task, a function or a file of rows; and
their two splits.

The split is fixed: it depends on the rows alone, never on the seed of a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlbook.checks import check, import_object, one_of
from rlbook.data.schemas import Example, example_of
from rlbook.data.splits import split_rows
from rlbook.data.text_files import ComputedItems, TextFile, read_rows
from rlbook.errors import RequestError
from rlbook.llm.tasks import TASKS
from rlbook.llm.tasks.task import SPLIT_SEED, Task

SPLITS = ("train", "held_out")
Source = Callable[[str], Iterable["Example | Mapping[str, Any]"]]
"""The name of a split → its examples, or rows in any known schema."""


class Examples(NamedTuple):
    """The examples of one split."""

    items: Sequence[Example]
    where: Callable[[int], str]  # which one that is, for a message
    digest: str  # of a file's content; "" where there is no file


def task_examples(task: Task) -> dict[str, Examples]:
    """A task's prompts as examples."""

    def example(prompt: str) -> Example:
        return Example(
            prompt, task.answer(prompt), task.columns(prompt), task.demonstration(prompt)
        )

    def split_examples(split: str) -> Examples:
        prompts = task.prompts(split)
        items = ComputedItems(len(prompts), lambda i: example(prompts[i]))
        return Examples(items, lambda i: f"task {task.name!r}, prompt {prompts[i]!r}", "")

    return {split: split_examples(split) for split in SPLITS}


def named_task(name: object) -> Task:
    """A built-in task. Raises ValueError if the name is unknown."""
    check("task", name, one_of(*TASKS))
    return TASKS[str(name)]()


def function_examples(function: str | Source, *, allow_import: bool) -> dict[str, Examples]:
    """The examples that a function returns for "train" and "held_out".

    Args:
        function: it, or "module:function".
        allow_import: let that module be imported.

    Raises:
        ValueError: it may not be or cannot be imported, fails, or says something else than
            examples.
    """
    if callable(function):
        return {
            split: _call_source(function, getattr(function, "__name__", "function"), split)
            for split in SPLITS
        }
    source: Any = _import_function(function, allow_import)
    return {split: _call_source(source, function, split) for split in SPLITS}


def _import_function(name: object, allow_import: bool) -> Any:
    if not isinstance(name, str) or name.count(":") != 1:
        raise ValueError(
            f"function must be a function or of the form 'module:function', got {name!r}"
        )
    found: Any = import_object("function", name, allow_import=allow_import)
    if not callable(found):
        raise ValueError(f"function {name!r} must be a function, got {type(found).__name__}")
    return found


def _call_source(source: Source, name: str, split: str) -> Examples:
    try:
        rows = list(source(split))
    except Exception as error:  # whatever the user's function does
        raise ValueError(
            f"function {name!r} failed on the split {split!r} ({_error_text(error)})"
        ) from error
    items: list[Example] = []
    for number, row in enumerate(rows, start=1):
        try:
            items.append(row if isinstance(row, Example) else example_of(dict(row)))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"function {name!r}, split {split!r}, example {number}: {_error_text(error)}"
            ) from None
    return Examples(items, lambda i: f"function {name!r}, split {split!r}, example {i + 1}", "")


def _error_text(error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    return said if isinstance(error, ValueError) else f"{type(error).__name__}: {said}"


def file_examples(path: str, held_out_path: str | None, held_out: float) -> dict[str, Examples]:
    """The rows of one file or folder, with a share held out; or those of two.

    Args:
        path: see `rlbook.data.text_files.read_rows`.
        held_out_path: where the held-out rows are; None takes them out of the first file.
        held_out: their share of it, in (0, 1); at least one row, and at least one stays. Rows with
            the same prompt are all held out, or none.

    Raises:
        RequestError: it cannot be read, or has too few rows; one sentence.
    """
    rows = _rows(path)
    if held_out_path is not None:
        other = _rows(held_out_path)
        return {
            "train": _examples_of_rows(rows, np.arange(len(rows))),
            "held_out": _examples_of_rows(other, np.arange(len(other))),
        }
    if len(rows) < 2:
        raise RequestError(
            f"data: {path} has only one row, but one must be held out; name another file as "
            "held_out_data"
        )
    count = min(max(1, round(held_out * len(rows))), len(rows) - 1)
    rng = np.random.default_rng(SPLIT_SEED)
    held, train = split_rows(len(rows), count, rng, partial(_prompt_key, rows))
    return {"train": _examples_of_rows(rows, train), "held_out": _examples_of_rows(rows, held)}


def _prompt_key(rows: TextFile, index: int) -> Hashable:
    """What equal prompts have in common. A row that cannot be read stands for itself; it is refused
    where it is used."""
    try:
        return hashlib.sha256(repr(example_of(rows[index]).prompt).encode()).digest()
    except ValueError:
        return index


def _rows(path: str) -> TextFile:
    if not Path(path).exists():
        raise RequestError(f"data: {path} does not exist")
    rows = read_rows(Path(path))
    if not len(rows):
        raise RequestError(f"data: {path} has no rows")
    return rows


def _examples_of_rows(rows: TextFile, chosen: np.ndarray) -> Examples:
    def example(i: int) -> Example:
        index = int(chosen[i])
        try:
            return example_of(rows[index])
        except RequestError:
            raise
        except ValueError as error:
            raise RequestError(f"{rows.location(index)}: {error}") from None

    return Examples(
        ComputedItems(len(chosen), example), lambda i: rows.location(int(chosen[i])), rows.digest
    )
