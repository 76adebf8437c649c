"""A run's two growing files: metrics.jsonl, one JSON object per report, and episodes.csv, one line
per training episode.

Both are append-only and flushed line by line, so that kill -9 costs at most half a line, which
readers skip. Their lengths are part of a checkpoint: a resumed run cuts both back to where the
checkpoint saw them, and ends with the bytes of an uninterrupted one. So is the sha256 of that many
bytes, which every reader compares. Lines that no checkpoint has seen yet have none.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, SupportsFloat, SupportsInt, TypeVar

from rlbook.agent import State
from rlbook.checks import is_count, parse_json
from rlbook.runs.storage.checkpoints import latest_seal
from rlbook.runs.storage.files import CheckpointError, open_to_append, read_file

METRICS, EPISODES = "metrics.jsonl", "episodes.csv"
UNLIKE = "its bytes do not match their checksum"
LIMIT = 2**30  # bytes that are read of either
_COLUMNS = b"step,return,length\n"


class MetricsLog:
    """Appends to both files of a run folder. Close it, or use it as a context manager."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._files: dict[str, BinaryIO] = {}
        self._hashed = {name: hashlib.sha256() for name in (METRICS, EPISODES)}
        try:
            for name in (METRICS, EPISODES):
                self._files[name] = open_to_append(self.folder / name)
                self._hashed[name].update(read_file(self.folder / name, LIMIT))
        except (OSError, CheckpointError):
            self.close()
            raise
        if self._size(EPISODES) == 0:
            self._append(EPISODES, _COLUMNS)

    def report(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Appends a line to metrics.jsonl: the step and numbers, Python's or NumPy's; non-finite
        numbers become null."""
        line = {"step": int(step)} | {name: _json_number(value) for name, value in metrics.items()}
        self._append(METRICS, json.dumps(line, allow_nan=False).encode() + b"\n")

    def episode(self, step: int, episode_return: SupportsFloat, length: SupportsInt) -> None:
        """Appends a line to episodes.csv: the step at which the episode ended, its return in reward
        units, its length in environment steps."""
        self._append(EPISODES, f"{int(step)},{float(episode_return)!r},{int(length)}\n".encode())

    def position(self) -> State:
        """The sizes of both files in bytes; store them in the checkpoint."""
        return {name: self._size(name) for name in self._files}

    def digests(self) -> dict[str, str]:
        """The sha256 of both files; store them in the checkpoint."""
        return {name: hashed.hexdigest() for name, hashed in self._hashed.items()}

    def truncate(self, position: State, digests: Mapping[str, str] | None = None) -> None:
        """Truncates both files to `position`.

        Raises:
            ValueError: a file is shorter than that, or has been changed; it stays as it is.
        """
        for name in self._files:
            if not is_count(position.get(name)):
                raise ValueError(f"the checkpoint does not record the length of {name}.")
            if self._size(name) < position[name]:
                raise ValueError(
                    f"{self.folder / name} has {self._size(name)} bytes, but had "
                    f"{position[name]} when the checkpoint was written."
                )
        hashed = {}
        for name in self._files:
            data = read_file(self.folder / name, LIMIT)[: position[name]]
            hashed[name] = hashlib.sha256(data)
            if digests and digests.get(name) != hashed[name].hexdigest():
                raise ValueError(f"{self.folder / name} has been changed: {UNLIKE}.")
        for name, file in self._files.items():
            file.truncate(position[name])
        self._hashed = hashed

    def flush(self) -> None:
        """Flushes both files to disk; call it before writing a checkpoint that stores their
        position."""
        for file in self._files.values():
            os.fsync(file.fileno())

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _size(self, name: str) -> int:
        return os.fstat(self._files[name].fileno()).st_size

    def _append(self, name: str, line: bytes) -> None:
        """Appends a whole line or nothing: if the disk is full, a partial line is removed again."""
        size, file = self._size(name), self._files[name]
        try:
            written = file.write(line)
            if written != len(line):
                file.write(line[written:])  # raises the error that cut the first write short
        except OSError:
            file.truncate(size)
            raise
        self._hashed[name].update(line)


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The reports of a run, in order. An incomplete last line is skipped; a missing file gives
    none.

    Raises:
        ValueError: a line that is not a report, or not what the last checkpoint saw; one sentence.
        CheckpointError: a link, something else than a regular file, or a file of more than 1 GiB.
    """
    return _read_lines(Path(folder), METRICS, _report)


def read_episodes(folder: str | Path) -> list[tuple[int, float, int]]:
    """(step, return, length) of each training episode, in order. Raises the same errors as
    `read_metrics`."""
    return _read_lines(Path(folder), EPISODES, _episode, after=1)


Item = TypeVar("Item")


def _parse_line(name: str, number: int, line: bytes, parse: Callable[[bytes], Item]) -> Item:
    try:
        return parse(line)
    except (ValueError, RecursionError):
        raise ValueError(
            f"line {number} of {name} is not in the format that a run writes"
        ) from None


def _report(line: bytes) -> dict[str, Any]:
    report = parse_json(line)
    if not isinstance(report, dict) or not is_count(report.get("step")):
        raise ValueError
    if not all(value is None or type(value) in (int, float) for value in report.values()):
        raise ValueError
    return report


def _episode(line: bytes) -> tuple[int, float, int]:
    step, episode_return, length = line.decode().split(",")
    return int(step), float(episode_return), int(length)


def _read_lines(
    folder: Path, name: str, parse: Callable[[bytes], Item], *, after: int = 0
) -> list[Item]:
    """The complete lines after the first `after`, parsed."""
    sealed = latest_seal(folder)  # first, as a run in training appends to the file
    try:
        data = read_file(folder / name, LIMIT)
    except FileNotFoundError:
        return []
    lines = data.split(b"\n")[after:-1]
    items = [_parse_line(name, number, line, parse) for number, line in enumerate(lines, after + 1)]
    if sealed is not None and name in sealed.digests and is_count(sealed.lengths.get(name)):
        seen = data[: sealed.lengths[name]]
        if hashlib.sha256(seen).hexdigest() != sealed.digests[name]:
            since = f"the checkpoint of step {sealed.step}"
            raise ValueError(f"{name} has been changed since {since}: {UNLIKE}")
    return items


class Scalar(Protocol):
    """A NumPy or torch number."""

    def item(self) -> float: ...


def _json_number(value: float | Scalar | None) -> float | None:
    """A number for JSON: integers stay integers, and non-finite numbers become null."""
    number = value if value is None or isinstance(value, int | float) else value.item()
    if isinstance(number, float) and not math.isfinite(number):
        return None
    return number
