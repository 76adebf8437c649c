"""Checkpoints: a `State` on disk, written atomically and validated when read.

    FOLDER/checkpoints/STEP/header.json          schema, library versions, the state as JSON, the arrays' size and sha256, its own sha256,
                                                 the sha256 of the config.yaml that it belongs to
    FOLDER/checkpoints/STEP/arrays.safetensors   the arrays
    FOLDER/checkpoints/SHA256.safetensors        arrays that training never changes, once for all checkpoints; a header names them
    FOLDER/checkpoints/best.json                 which step was the best so far

A checkpoint is written under a temporary name, flushed to disk and renamed, so that a power cut, a
full disk or kill -9 leaves the older ones as they were. Reading executes nothing, follows no link,
checks size and checksum before it parses, and refuses NaN.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import re
import stat
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rlbook.agent import State
from rlbook.checks import is_count, parse_json
from rlbook.errors import system_reason
from rlbook.runs.storage.array_files import MAX_HEADER, ArrayFile, Arrays, load_arrays
from rlbook.runs.storage.files import (
    CheckpointError,
    Pieces,
    check_no_link,
    digest,
    lock,
    open_directory,
    read,
    read_whole,
    refuse,
    remove,
    remove_leftovers,
    replace_file,
    write_directory,
)
from rlbook.runs.storage.state_encoding import StateError, decode, encode_apart

__all__ = [
    "CheckpointError",
    "CheckpointSeal",
    "checkpoint_path",
    "discard_after",
    "latest_seal",
    "latest_step",
    "list_checkpoints",
    "load_checkpoint",
    "lock",
    "mark_best",
    "read_best",
    "read_best_file",
    "save_checkpoint",
    "seal_with",
]

SCHEMA, READ = 3, (2, 3)  # what is written, what is read; 2 had no frozen parts
HEADER, BLOB, BEST = "header.json", "arrays.safetensors", "best.json"
KEPT = 2  # the last two checkpoints stay
_LIBRARIES = ("gymnasium", "numpy", "rlbook", "safetensors", "torch", "transformers")
_FROZEN = re.compile(r"[0-9a-f]{64}\.safetensors")
_STEP = re.compile(r"(0|[1-9]\d{0,17})(\.old)?")
_VERSION = re.compile(r"[\w.+!-]{1,40}")
_SEAL = re.compile(rb',\n"sha256":"([0-9a-f]{64})"\}\n')
_SEAL_SIZE = len(b',\n"sha256":""}\n') + 64


# Writing


def save_checkpoint(
    folder: str | Path,
    step: int,
    state: State,
    *,
    keep: int | None = None,
    config: str | None = None,
) -> Path:
    """Writes FOLDER/checkpoints/STEP and removes old checkpoints. Equal states give equal bytes;
    keys keep their order.

    Afterwards there are: this checkpoint, the last one before it, the best one (`mark_best`) and
    the one of step `keep`. Checkpoints of later steps belong to a future that was given up, and go.
    `config` is the seal of the run's config.yaml.

    Raises:
        CheckpointError: the disk is full, a limit is reached, or the state holds what is not data
            or not finite. The earlier ones stay.
    """
    directory = Path(folder) / "checkpoints"
    header, blob, frozen = _serialize(step, state, [] if config is None else [config])
    check_no_link(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        remove_leftovers(directory)
        for name, content in frozen.items():
            if not _is_file(directory / name, content.size):
                replace_file(directory / name, content)
        if not _is_identical(directory / str(step), header, blob):
            files: dict[str, Pieces] = {BLOB: blob, HEADER: [header]}
            write_directory(directory, str(step), files)
        _prune(directory, step, {step, keep, (read_best(folder) or (None,))[0]})
        _prune_frozen(directory, set(frozen))
    except OSError as error:
        earlier = "; the earlier ones are intact" if _steps(directory) else ""
        raise CheckpointError(
            f"The checkpoint {directory / str(step)} was not written ({system_reason(error)}){earlier}."
        ) from error
    return directory / str(step)


def mark_best(folder: str | Path, step: int, score: float) -> None:
    """Marks the checkpoint of `step` as the best one so far; `score` is its mean return."""
    directory = Path(folder) / "checkpoints"
    check_no_link(directory)
    try:
        replace_file(
            directory / BEST,
            json.dumps({"score": float(score), "step": int(step)}).encode() + b"\n",
        )
    except OSError as error:
        raise CheckpointError(f"The best step was not saved ({system_reason(error)}).") from error


def seal_with(folder: str | Path, configs: list[str]) -> None:
    """Makes every checkpoint valid with each config.yaml whose seal is given: the present one and
    its replacement.

    Whichever of the two a killed process leaves behind, it fits.
    """
    for step in list_checkpoints(folder):
        directory = _existing_directory(Path(folder) / "checkpoints", step)
        with open_directory(directory) as descriptor:
            header = _header(read(descriptor, HEADER, MAX_HEADER + _SEAL_SIZE), directory / HEADER)
        del header["sha256"]
        try:
            replace_file(directory / HEADER, _seal(header | {"config": configs}))
        except OSError as error:
            raise CheckpointError(
                f"The checkpoint of step {step} was not rewritten ({system_reason(error)})."
            ) from error


def discard_after(folder: str | Path, step: int) -> None:
    """Removes every checkpoint after `step`, because the run continues from there."""
    best = read_best(folder)
    directory = Path(folder) / "checkpoints"
    remove_leftovers(directory)
    if best is not None and best[0] > step:
        (directory / BEST).unlink(missing_ok=True)
    for later in list_checkpoints(folder):
        if later > step:
            remove(_existing_directory(directory, later))


def _serialize(
    step: int, state: State, configs: list[str]
) -> tuple[bytes, ArrayFile, dict[str, ArrayFile]]:
    """The header, the arrays, and the files of frozen arrays by name."""
    try:
        skeleton, arrays, parts = encode_apart(state)
        blob = ArrayFile.from_arrays(arrays)
        frozen = {
            f"{sha256}.safetensors": ArrayFile.from_arrays(part) for sha256, part in parts.items()
        }
        header = {
            "schema": SCHEMA,
            "step": int(step),
            "libraries": _versions(),
            "config": configs,
            "blobs": {BLOB: {"size": blob.size, "sha256": blob.sha256()}},
            "frozen": {name: content.size for name, content in frozen.items()},
            "state": skeleton,
        }
        sealed = _seal(header)
    except (StateError, ValueError) as error:
        raise CheckpointError(f"The checkpoint of step {step} was not written: {error}.") from error
    if len(sealed) > MAX_HEADER:
        raise CheckpointError(
            f"The checkpoint of step {step} was not written: its header would exceed {MAX_HEADER}"
            " bytes."
        )
    return sealed, blob, frozen


def _seal(header: dict[str, Any]) -> bytes:
    """The header as bytes, followed by its sha256."""
    body = json.dumps(header, separators=(",", ":"), allow_nan=False)[:-1].encode()
    return body + f',\n"sha256":"{hashlib.sha256(body).hexdigest()}"}}\n'.encode()


def _is_identical(directory: Path, header: bytes, blob: ArrayFile) -> bool:
    """Whether an identical checkpoint already exists, bit for bit."""
    try:
        with open_directory(directory) as descriptor:
            return (
                read(descriptor, HEADER, len(header)) == header
                and digest(descriptor, BLOB) == blob.sha256()
            )
    except CheckpointError:
        return False


def _is_file(path: Path, size: int) -> bool:
    """Whether a file of this size exists with no other hard link."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size == size


def _prune_frozen(directory: Path, named: set[str]) -> None:
    """Removes the frozen arrays that no checkpoint refers to; `named` are those of the checkpoint
    just written."""
    others = {name for name in os.listdir(directory) if _FROZEN.fullmatch(name)} - named
    if not others:
        return
    for step in _steps(directory):
        with open_directory(_existing_directory(directory, step)) as descriptor:
            others -= _header(
                read(descriptor, HEADER, MAX_HEADER + _SEAL_SIZE), directory / str(step) / HEADER
            )["frozen"].keys()
    for name in others:
        remove(directory / name)


def _prune(directory: Path, step: int, named: set[int | None]) -> None:
    steps = _steps(directory)
    kept = named | set(sorted(earlier for earlier in steps if earlier <= step)[-KEPT:])
    for other in steps - kept:
        remove(_existing_directory(directory, other))


@functools.cache
def _versions() -> dict[str, str]:
    return {name: _version(name) for name in _LIBRARIES}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


# Reading


def load_checkpoint(
    path: str | Path, step: int | Literal["best"] | None = None, *, config: str | None = None
) -> tuple[int, State]:
    """The step and the state of a checkpoint.

    Args:
        path: a run folder, or one checkpoint's own directory.
        step: which checkpoint of a run folder: a step, "best", or None for the latest.
        config: the seal of the config.yaml that it must belong to; None where that does not matter.

    Raises:
        CheckpointError: there is none, or it is damaged, not ours, a link, or holds values that are
            not finite.
    """
    directory = checkpoint_path(path, step)
    with open_directory(directory) as descriptor:
        header = _header(read(descriptor, HEADER, MAX_HEADER + _SEAL_SIZE), directory / HEADER)
        description = header["blobs"][BLOB]
        blob = read_whole(descriptor, BLOB, description["size"])
    if (
        len(blob) != description["size"]
        or hashlib.sha256(blob).hexdigest() != description["sha256"]
    ):
        refuse(directory / BLOB, "it is damaged, its bytes do not match their checksum")
    if directory.name.isdigit() and int(directory.name) != header["step"]:
        refuse(directory, f"it holds step {header['step']}")
    if config is not None and config not in header["config"]:
        refuse(
            directory,
            "it belongs to another config.yaml than the one beside it, which was changed or"
            " damaged",
        )

    def load_frozen(sha256: str) -> Arrays:
        return _load_frozen(directory.parent, sha256, header["frozen"])

    try:
        return header["step"], decode(
            header["state"], load_arrays(blob, directory / BLOB), load_frozen
        )
    except StateError as error:
        raise CheckpointError(f"{directory} was not loaded: {error}.") from error


def _load_frozen(directory: Path, sha256: str, sizes: dict[str, int]) -> Arrays:
    """The frozen arrays with this sha256. Raises CheckpointError if they are missing or have
    changed."""
    name = f"{sha256}.safetensors"
    if name not in sizes or not _FROZEN.fullmatch(name):
        raise StateError(f"the frozen part {sha256[:12]} is not one of its files")
    with open_directory(directory) as descriptor:
        blob = read_whole(descriptor, name, sizes[name])
    if hashlib.sha256(blob).hexdigest() != sha256:
        refuse(
            directory / name, "it has been changed, its bytes do not match the sha256 in its name"
        )
    return load_arrays(blob, directory / name)


def checkpoint_path(path: str | Path, step: int | Literal["best"] | None = None) -> Path:
    """The path of a checkpoint. Raises CheckpointError if it does not exist."""
    path = Path(path)
    if step is None and os.path.lexists(path / HEADER):
        return path
    steps = list_checkpoints(path)
    if not steps:
        refuse(path, "it has no checkpoint")
    if step == "best":
        best = read_best(path)
        if best is None:
            refuse(path, f"no best checkpoint is known; the latest is {steps[-1]}")
        step = best[0]
    if step is not None and step not in steps:
        refuse(path, f"it has no checkpoint of step {step}; there are {', '.join(map(str, steps))}")
    return _existing_directory(path / "checkpoints", steps[-1] if step is None else int(step))


def list_checkpoints(folder: str | Path) -> list[int]:
    """The steps of a run folder's checkpoints, in order. Raises CheckpointError if `checkpoints` is
    a symbolic link."""
    check_no_link(Path(folder) / "checkpoints")
    return sorted(_steps(Path(folder) / "checkpoints"))


def latest_step(folder: str | Path) -> int | None:
    """The step of the latest checkpoint, or None."""
    return max(list_checkpoints(folder), default=None)


class CheckpointSeal(NamedTuple):
    """The digests of the run's other files that a checkpoint stores."""

    step: int
    configs: list[str]
    """The sha256 of each config.yaml for which it is valid."""
    lengths: dict[str, int]
    """The sizes of the log's files when it was written, in bytes."""
    digests: dict[str, str]
    """The sha256 of that many bytes; empty in older checkpoints."""
    best: tuple[int, float] | None
    """Step and score of the best evaluation so far."""


def latest_seal(folder: str | Path) -> CheckpointSeal | None:
    """The digests stored in the newest valid checkpoint; None without one.

    Raises:
        CheckpointError: `checkpoints` is a link.
    """
    for step in reversed(list_checkpoints(folder)):
        directory = _existing_directory(Path(folder) / "checkpoints", step)
        try:
            with open_directory(directory) as descriptor:
                data = read(descriptor, HEADER, MAX_HEADER + _SEAL_SIZE)
            header = _header(data, directory / HEADER)
        except CheckpointError:  # `load_checkpoint` and `rlbook doctor` say more
            continue
        report = header["state"].get("report") if isinstance(header["state"], dict) else None
        report = report if isinstance(report, dict) else {}
        lengths, digests, best = report.get("log"), report.get("log_sha256"), report.get("best")
        at, score = best if isinstance(best, list) and len(best) == 2 else (None, None)
        found = (at, score) if type(at) is int and at >= 0 and type(score) is float else None
        return CheckpointSeal(
            header["step"],
            header["config"],
            lengths if isinstance(lengths, dict) else {},
            digests if isinstance(digests, dict) else {},
            found,
        )
    return None


def read_best(folder: str | Path) -> tuple[int, float] | None:
    """(step, score) of the best checkpoint so far, or None if none was marked.

    A checkpoint of a run knows it, and best.json repeats it for people. Where they differ, a killed
    process or a damaged disk left the file behind.

    Raises:
        CheckpointError: no checkpoint knows it, and best.json is damaged.
    """
    sealed = latest_seal(folder)
    return read_best_file(folder) if sealed is None or sealed.best is None else sealed.best


def read_best_file(folder: str | Path) -> tuple[int, float] | None:
    """The content of best.json, or None if it does not exist. Raises CheckpointError if it is
    damaged."""
    directory = Path(folder) / "checkpoints"
    if not os.path.lexists(directory / BEST):
        return None
    with open_directory(directory) as descriptor:
        data = read(descriptor, BEST, 1000)
    try:
        content = parse_json(data)
        step, score = content["step"], content["score"]
        if is_count(step) and type(score) is float:
            return step, score
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise CheckpointError(f"{directory / BEST} is damaged.")


def _steps(directory: Path) -> set[int]:
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return set()
    return {int(match[1]) for match in map(_STEP.fullmatch, names) if match}


def _existing_directory(directory: Path, step: int) -> Path:
    path = directory / str(step)
    return path if os.path.lexists(path) else directory / f"{step}.old"


def _header(data: bytes, path: Path) -> dict[str, Any]:
    seal = _SEAL.fullmatch(data[-_SEAL_SIZE:])
    if seal is None:
        refuse(path, "it is not a checkpoint header, or it was cut short")
    if hashlib.sha256(data[:-_SEAL_SIZE]).hexdigest().encode() != seal[1]:
        refuse(path, "it is damaged, its bytes do not match their checksum")
    try:
        header = parse_json(data)
    except RecursionError:
        refuse(path, "it is nested too deeply")
    except ValueError:
        refuse(path, "it is not JSON")
    found = header.get("schema") if isinstance(header, dict) else None
    if type(found) is not int or found not in READ:
        this = f"this version of rlbook, {_version('rlbook')},"
        refuse(
            path,
            f"its schema is {str(found)[:40]}{_writer(header)}, and {this} reads"
            f" {' and '.join(map(str, READ))}",
        )
    if found == 2:
        header["frozen"] = {}
    if not _is_well_formed(header):
        refuse(path, "it lacks a part, or has one of the wrong type")
    return header


def _writer(header: Any) -> str:
    """The rlbook version that a checkpoint names as its writer; empty if it names none."""
    libraries = header.get("libraries") if isinstance(header, dict) else None
    version = libraries.get("rlbook") if isinstance(libraries, dict) else None
    return (
        f", which rlbook {version} made"
        if isinstance(version, str) and _VERSION.fullmatch(version)
        else ""
    )


def _is_well_formed(header: dict[str, Any]) -> bool:
    blobs = header.get("blobs")
    blob = blobs.get(BLOB) if isinstance(blobs, dict) and set(blobs) == {BLOB} else None
    if not isinstance(blob, dict) or not isinstance(blob.get("sha256"), str):
        return False
    configs, frozen = header.get("config"), header.get("frozen")
    if not isinstance(frozen, dict) or not all(map(is_count, frozen.values())):
        return False
    named = isinstance(configs, list) and all(isinstance(config, str) for config in configs)
    return (
        "state" in header and named and is_count(header.get("step")) and is_count(blob.get("size"))
    )
