"""A run's folder: whether it is free, which process writes to it, and the errors when the disk
fails."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from rlbook.checks import nearest_name
from rlbook.errors import RequestError, TrainingError, system_reason
from rlbook.runs.storage.checkpoints import latest_step
from rlbook.runs.storage.files import CheckpointError, lock, read_file, replace_file
from rlbook.runs.storage.log import read_metrics

CONFIG, CONFIG_LIMIT = "config.yaml", 1_000_000  # its name, and its bytes at most
ROWS = "data.jsonl"
"""The file of the rows that a run was given in memory."""
SHOWN = 3  # run folders that an error names


def check_free(folder: Path) -> None:
    """Raises RequestError if the folder already holds a run or cannot be read.

    A run that was killed between its first checkpoint and its config has not begun; its folder is
    free.
    """
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is a file; a run needs a folder of its own")
    try:
        begun = os.path.lexists(folder / CONFIG) or latest_step(folder) not in (None, 0)
        taken = begun or any(line for line in read_metrics(folder))
    except (OSError, ValueError) as error:
        raise RequestError(
            f"cannot read {folder}: {system_reason(error) if isinstance(error, OSError) else error}"
        ) from error
    except CheckpointError as error:
        raise RequestError(str(error).removesuffix(".")) from error
    if taken:
        raise RequestError(
            f"{folder} already holds a run; continue it with --resume (resume=True), or choose"
            " another folder"
        )


def seed_folder(folder: Path, seed: int) -> Path:
    """The folder of one seed's run among several."""
    return folder / f"seed-{seed}"


def run_folders(folder: Path) -> list[Path]:
    """The run folders inside a folder of several seeds, sorted by seed; for a single run, the
    folder itself."""
    if os.path.lexists(folder / CONFIG):
        return [folder]
    seeds = [
        found for path in folder.glob("seed-*") if (found := re.fullmatch(r"seed-(\d+)", path.name))
    ]
    inside = [folder / item[0] for item in sorted(seeds, key=lambda item: int(item[1]))]
    return [path for path in inside if os.path.lexists(path / CONFIG)] or [folder]


def write_config(folder: Path, text: str) -> str:
    """Writes config.yaml atomically. Returns its seal."""
    replace_file(folder / CONFIG, text.encode())
    return seal(text.encode())


def read_config(folder: Path) -> tuple[str, str]:
    """The text of config.yaml and its seal.

    Raises:
        RequestError: there is none.
        CheckpointError: it is a link or no regular file, or has more than `CONFIG_LIMIT` bytes.
    """
    try:
        data = read_file(folder / CONFIG, CONFIG_LIMIT)
    except FileNotFoundError:
        unbegun = (
            " and was stopped before it began: train anew, without --resume (resume=True)"
            if latest_step(folder) == 0
            else ""
        )
        raise RequestError(
            f"{folder} is not a run folder: {_describe_contents(folder)}{unbegun}"
        ) from None
    return data.decode(errors="replace"), seal(data)


def _describe_contents(folder: Path) -> str:
    """What is in place of a run folder, and where a run is nearby."""
    if folder.is_dir():
        inside = _runs_inside(folder)
        named = ", ".join(str(folder / name) for name in inside[:SHOWN])
        more = ", …" if len(inside) > SHOWN else ""
        return "it has no config.yaml" + (f"; the runs in it are {named}{more}" if inside else "")
    if os.path.islink(folder) and not folder.exists():
        return f"it is a link to {os.readlink(folder)}, which does not exist"
    if os.path.lexists(folder):
        return "it is a file"
    near = nearest_name(folder.name, _runs_inside(folder.parent)) if folder.name else None
    return "it does not exist" + (f"; did you mean {str(folder.parent / near)!r}?" if near else "")


def _runs_inside(folder: Path) -> list[str]:
    """The names of the run folders in a folder; none if it cannot be read."""
    try:
        return sorted(entry.name for entry in folder.iterdir() if (entry / CONFIG).is_file())
    except OSError:
        return []


def seal(config: bytes) -> str:
    """The sha256 of a config.yaml, to which its checkpoints refer. Windows line ends, which git and
    archives may have introduced, are treated as Unix ones."""
    return hashlib.sha256(config.replace(b"\r\n", b"\n")).hexdigest()


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Locks the folder for this process; raises RequestError if another process holds it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock(folder))
        except CheckpointError as error:
            raise RequestError(str(error).removesuffix(".")) from error
        yield


@contextlib.contextmanager
def report_disk_errors(folder: Path | None) -> Iterator[None]:
    """Turns disk errors during training into one sentence."""
    try:
        yield
    except OSError as error:
        raise TrainingError(f"cannot write to {folder}: {system_reason(error)}") from error
    except CheckpointError as error:
        raise TrainingError(str(error).removesuffix(".")) from error
