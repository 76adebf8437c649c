"""RUN/tokens.jsonl: an `Inspector`'s result at each report of a run, one JSON object per line after
a header line.

The file is not part of the run: its bytes, its checkpoints and its random numbers are the same with
it and without. A resumed run cuts off what was written after its checkpoint, and continues.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rlbook.checks import is_count
from rlbook.runs.inspection import Inspector, Moment
from rlbook.runs.storage.files import CheckpointError, open_to_append, read_file, replace_file

if TYPE_CHECKING:
    from rlbook.agent import Agent
    from rlbook.runs.request import Request

FILE, LIMIT = "tokens.jsonl", 2**30


@dataclass(frozen=True)
class TokenRecord:
    """The content of a run's tokens.jsonl."""

    head: dict[str, Any]
    """`algorithm`, `env`, `seed`, `prompts`, `samples`, `meaning` and `absent` of the
    quantities."""
    moments: list[Moment]
    """In the order of their steps."""


class TokenRecorder:
    """Appends one moment at a time to the run's file.

    Args:
        folder: of the run.
        inspector: looks at its agent.
        head: the first line.
        step: of training, where the run stands: later moments belong to a future that was given up.

    Raises:
        CheckpointError: the file is damaged.
        OSError: it cannot be written.
    """

    def __init__(self, folder: Path, inspector: Inspector, head: dict[str, Any], step: int) -> None:
        self.inspector, path = inspector, folder / FILE
        found = read_record(folder)
        moments = (
            []
            if found is None or found.head != head
            else [moment for moment in found.moments if moment["step"] <= step]
        )
        if found is None or found.head != head or len(moments) < len(found.moments):
            replace_file(path, (_line(item) for item in [head, *moments]))
        self.last = moments[-1] if moments else None
        self._file: BinaryIO = open_to_append(path)

    def record(self, step: int) -> None:
        """Inspects the agent now, and records the result if an update has changed the agent since
        the last record."""
        moment = self.inspector.moment(step, self.last)
        if self.last is None or self.last["episodes"] != moment["episodes"]:
            self.last = moment
            self._file.write(_line(moment))

    def __enter__(self) -> TokenRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def recorder_of(
    agent: Agent, request: Request, folder: Path, step: int, load: Callable[[Path], Agent]
) -> TokenRecorder | None:
    """The recorder of a run that is to be inspected, or that was inspected before it was
    interrupted; None otherwise."""
    found = read_record(folder)
    prompts = request.options.inspect or (None if found is None else len(found.head["prompts"]))
    if prompts is None:
        return None
    inspector = Inspector(agent, request, prompts, load)
    return TokenRecorder(folder, inspector, head_of(request, inspector), step)


def head_of(request: Request, inspector: Inspector) -> dict[str, Any]:
    """The header line of the file."""
    return {
        "algorithm": request.algorithm,
        "env": request.recipe.name,
        "seed": request.seed,
        "samples": inspector.samples,
        "prompts": inspector.prompts(),
        "meaning": inspector.quantities.meaning,
        "absent": inspector.quantities.absent,
    }


def read_record(folder: Path) -> TokenRecord | None:
    """The content of the run's file; an incomplete last line is skipped. None if there is no file.

    Raises:
        CheckpointError: a link, too large a file, or a line that no run writes.
    """
    try:
        lines = read_file(folder / FILE, LIMIT).split(b"\n")[:-1]
    except FileNotFoundError:
        return None
    try:
        head, *moments = map(json.loads, lines)
        whole = (
            isinstance(head["prompts"], list)
            and isinstance(head["meaning"], dict)
            and is_count(head["samples"])
        )
        rows = len(head["prompts"]) * head["samples"]
        whole = whole and all(
            is_count(moment["step"]) and len(moment["episodes"]) == rows for moment in moments
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise CheckpointError(
            f"{folder / FILE} is not in the format that a run writes; remove it to continue without"
            " it."
        )
    return TokenRecord(head, moments)


def _line(item: dict[str, Any]) -> bytes:
    return (
        json.dumps(item, allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode()
        + b"\n"
    )
