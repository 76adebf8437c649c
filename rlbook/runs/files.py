"""Files that are written whole or not at all, and read with suspicion: no link is followed, no size is believed before it is checked."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or must not be loaded; the message is one sentence."""


@contextlib.contextmanager
def lock(folder: str | Path) -> Iterator[None]:
    """Holds FOLDER for this process alone. The operating system lets go when the process ends, however it ends.

    Raises:
        CheckpointError: another process holds it.
    """
    path = Path(folder) / ".lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be opened ({reason(error)}).") from error
    try:
        _hold(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _hold(descriptor: int, folder: str | Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CheckpointError(f"{folder} is being written by another process.") from error


def write_directory(directory: Path, name: str, files: dict[str, bytes]) -> None:
    """Creates or replaces DIRECTORY/NAME with these files, flushed to the disk before the name appears. An error leaves the old one."""
    temporary, target, aside = directory / f".tmp-{name}", directory / name, directory / f"{name}.old"
    try:
        temporary.mkdir()
        for file, data in files.items():
            write_file(temporary / file, data)
        sync(temporary)
        if os.path.lexists(target):
            os.rename(target, aside)         # a reader that finds no STEP takes STEP.old
        os.rename(temporary, target)
        sync(directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if os.path.lexists(aside) and not os.path.lexists(target):
            os.rename(aside, target)
        raise
    if os.path.lexists(aside):
        remove(aside)


def write_file(path: Path, data: bytes) -> None:
    """Writes and flushes to the disk; any OSError surfaces."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(directory: Path) -> None:
    """Flushes the names in a directory to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Takes the name away first, so that nobody ever finds half a checkpoint under it."""
    doomed = path.with_name(f".tmp-{path.name}.removed")
    os.rename(path, doomed)
    _delete(doomed)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers(directory: Path) -> None:
    """Removes what a killed process left: temporary names, and directories already replaced."""
    for entry in directory.iterdir():
        replaced = entry.name.endswith(".old") and os.path.lexists(entry.with_suffix(""))
        if replaced or entry.name.startswith(".tmp-"):
            _delete(entry)


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int]:
    """A descriptor of the directory: its files are opened through it, so nobody can swap the directory in between."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        refuse(directory, "it is a link" if directory.is_symlink() else reason(error))
    try:
        yield descriptor
    except FileNotFoundError as error:
        refuse(directory, f"{error.filename} is missing")
    except OSError as error:
        refuse(directory / str(error.filename), "it is a link" if error.errno == errno.ELOOP else reason(error))
    finally:
        os.close(descriptor)


def read(directory: int, name: str, limit: int) -> bytes:
    """The bytes of a regular file, once; at most `limit` of them."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
        os.close(descriptor)
        size = f"it has {status.st_size} bytes where at most {limit} are expected"
        raise OSError(errno.EINVAL, size if stat.S_ISREG(status.st_mode) else "it is not a regular file", name)
    with open(descriptor, "rb") as file:
        return file.read(limit)


def refuse(path: Path, reason: str) -> NoReturn:
    """Raises the CheckpointError that says so."""
    raise CheckpointError(f"{path} was not loaded: {reason}.") from None


def reason(error: OSError) -> str:
    """What the operating system said, in a sentence's lower case."""
    return (error.strerror or str(error)).lower()
