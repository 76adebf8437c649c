"""Files written atomically and read defensively: symbolic links are not followed, and sizes are
checked before use."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

from rlbook.checks import machine_memory
from rlbook.errors import ShortTraceback, system_reason

Pieces = Iterable[bytes | memoryview]
"""The content of a file, in order."""


class CheckpointError(ShortTraceback, RuntimeError):
    """A checkpoint cannot be written or must not be loaded; the message is one sentence."""


@contextlib.contextmanager
def lock(folder: str | Path) -> Iterator[None]:
    """Locks FOLDER for this process. The operating system releases the lock when the process ends,
    however it ends.

    Raises:
        CheckpointError: another process holds it.
    """
    path = Path(folder) / ".lock"
    try:
        descriptor = _regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be opened ({system_reason(error)}).") from error
    try:
        _lock_descriptor(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock_descriptor(descriptor: int, folder: str | Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CheckpointError(f"{folder} is being written by another process.") from error


def write_directory(directory: Path, name: str, files: Mapping[str, Pieces]) -> None:
    """Creates or replaces DIRECTORY/NAME with these files, flushed to disk before the name appears.
    On an error the old directory remains."""
    temporary, target, aside = (
        directory / f".tmp-{name}",
        directory / name,
        directory / f"{name}.old",
    )
    try:
        temporary.mkdir()
        for file, data in files.items():
            write_file(temporary / file, data)
        sync(temporary)
        if os.path.lexists(target):
            os.rename(target, aside)  # a reader that finds no STEP takes STEP.old
        os.rename(temporary, target)
        sync(directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if os.path.lexists(aside) and not os.path.lexists(target):
            os.rename(aside, target)
        raise
    if os.path.lexists(aside):
        remove(aside)


def write_file(path: Path, data: bytes | Pieces) -> None:
    """Writes a new file and flushes it to disk; an existing file of that name is removed first, not
    overwritten. Any OSError propagates."""
    path.unlink(missing_ok=True)  # a killed process left it, or somebody laid a link there
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb"
    ) as file:
        for piece in [data] if isinstance(data, bytes) else data:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes | Pieces) -> None:
    """Replaces a file's content atomically: whenever the process is killed, the file holds either
    all of `data` or its old content."""
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        write_file(temporary, data)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def open_to_append(path: Path) -> BinaryIO:
    """Opens a regular file for appending, creating it if necessary. Raises OSError if the name is a
    link, a pipe or a device."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    return cast(BinaryIO, open(_regular(path, flags), "ab", buffering=0))


def sync(directory: Path) -> None:
    """Flushes a directory's entries to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Renames a directory before removing it, so that no reader finds a partial checkpoint under
    its name."""
    doomed = path.with_name(f".tmp-{path.name}.removed")
    os.rename(path, doomed)
    _delete(doomed)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers(directory: Path) -> None:
    """Removes what a killed process left: temporary files, and directories that were already
    replaced."""
    for entry in directory.iterdir():
        replaced = entry.name.endswith(".old") and os.path.lexists(entry.with_suffix(""))
        if replaced or entry.name.startswith(".tmp-"):
            _delete(entry)


@contextlib.contextmanager
def open_directory(directory: Path) -> Iterator[int]:
    """A descriptor of the directory: files are opened relative to it, so that the directory cannot
    be swapped in between."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        refuse(directory, "it is a link" if directory.is_symlink() else system_reason(error))
    try:
        yield descriptor
    except FileNotFoundError as error:
        refuse(directory, f"{error.filename} is missing")
    except OSError as error:
        refuse(directory / str(error.filename), system_reason(error))
    finally:
        os.close(descriptor)


def read(directory: int, name: str, limit: int) -> bytes:
    """The content of a regular file, at most `limit` bytes."""
    return _bytes(_regular(name, os.O_RDONLY | os.O_NOFOLLOW, directory), name, limit)


def read_whole(directory: int, name: str, limit: int) -> bytearray:
    """As `read`, but into writable memory on which arrays can be laid out."""
    with open(_regular(name, os.O_RDONLY | os.O_NOFOLLOW, directory), "rb") as file:
        size = _size(file, name, limit)
        if size > machine_memory():  # a file may be sparse
            raise OSError(
                errno.EFBIG, f"it has {size} bytes, more than this machine has memory", name
            )
        content = bytearray(size)
        del content[file.readinto(content) :]
    return content


def digest(directory: int, name: str) -> str:
    """The sha256 of a regular file."""
    with open(_regular(name, os.O_RDONLY | os.O_NOFOLLOW, directory), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_file(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """The content of a regular file. A file that the user names may be a symbolic link (`follow`),
    one inside a run's folder may not.

    Raises:
        FileNotFoundError: there is none.
        CheckpointError: a link, a pipe, a device, a folder, or more than `limit` bytes.
    """
    try:
        return _bytes(
            _regular(path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW)), str(path), limit
        )
    except NotADirectoryError as error:
        raise FileNotFoundError(errno.ENOENT, "it does not exist", str(path)) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        refuse(path, system_reason(error))


def check_no_link(directory: Path) -> None:
    """Raises CheckpointError if a folder inside a run's folder is a symbolic link or not a
    folder."""
    if directory.is_symlink():
        raise CheckpointError(f"{directory} is a link, which is not followed.")
    if directory.exists() and not directory.is_dir():
        raise CheckpointError(f"{directory} is not a folder.")


def _regular(path: str | Path, flags: int, directory: int | None = None) -> int:
    """A descriptor of a regular file; for writing, one without other hard links. Opening a pipe
    does not block."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666, dir_fd=directory)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, f"{Path(path).name or path} is a link", str(path)) from None
    status, name = os.fstat(descriptor), Path(path).name or path
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{name} is not a regular file", str(path))
    if flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink != 1:
        os.close(descriptor)
        raise OSError(
            errno.EINVAL,
            f"{name} is a hard link: writing to it would change another file too",
            str(path),
        )
    return descriptor


def _bytes(descriptor: int, name: str, limit: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read(_size(file, name, limit))  # room for `limit` bytes would be taken at once


def _size(file: BinaryIO, name: str, limit: int) -> int:
    """The size of a file in bytes. Raises OSError if it exceeds `limit`."""
    size = os.fstat(file.fileno()).st_size
    if size > limit:
        raise OSError(errno.EFBIG, f"it has {size} bytes where at most {limit} are expected", name)
    return size


def refuse(path: Path, reason: str) -> NoReturn:
    """Raises CheckpointError with this message."""
    raise CheckpointError(f"{path} was not loaded: {reason}.") from None
