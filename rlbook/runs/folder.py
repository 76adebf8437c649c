"""The folder of a run: whether it is free, who writes it, and what is said when the disk fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rlbook.errors import RequestError, TrainingError
from rlbook.runs.checkpoints import latest
from rlbook.runs.files import CheckpointError, lock, write_file


def check_free(folder: Path) -> None:
    """Raises RequestError where the folder holds a run, or cannot be looked into."""
    try:
        taken = (folder / "config.yaml").exists() or latest(folder) is not None
    except OSError as error:
        raise RequestError(f"cannot read {folder}: {error.strerror}") from error
    if taken:
        raise RequestError(f"{folder} already holds a run; continue it with --resume (resume=True), or choose another folder")


def write_config(folder: Path, text: str) -> None:
    """All of it or nothing."""
    write_file(folder / ".tmp-config.yaml", text.encode())
    os.replace(folder / ".tmp-config.yaml", folder / "config.yaml")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder for this process; RequestError where another one does."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock(folder))
        except CheckpointError as error:
            raise RequestError(str(error).removesuffix(".")) from error
        yield


@contextlib.contextmanager
def told(folder: Path | None) -> Iterator[None]:
    """What goes wrong with the disk ends the training with one sentence."""
    try:
        yield
    except OSError as error:
        raise TrainingError(f"cannot write to {folder}: {error.strerror or error}") from error
    except CheckpointError as error:
        raise TrainingError(str(error).removesuffix(".")) from error
