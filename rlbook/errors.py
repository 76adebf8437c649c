"""The two ways a run goes wrong, told apart because the command line answers them differently, and what an exception
says in one line."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RequestError(ValueError):
    """The request was wrong: one sentence saying what, which value, and what is allowed. Nothing
    was written. Exit code 2."""


class TrainingError(RuntimeError):
    """Training failed: one sentence saying why. The last good checkpoint stays. Exit code 1."""


@contextmanager
def request_errors(
    beginning: str = "", kinds: tuple[type[Exception], ...] = (ValueError,)
) -> Iterator[None]:
    """Inside, an exception of these kinds becomes a RequestError whose sentence begins with
    `beginning`."""
    try:
        yield
    except kinds as error:
        raise RequestError(f"{beginning}{error}") from None


def system_reason(error: OSError) -> str:
    """The operating system's error message, in lower case for use within a sentence; a message of
    this package's own, about a link or a name, stays as it is."""
    said = error.strerror or str(error)
    return said if error.errno in (errno.ELOOP, errno.EINVAL) else said.lower()


def one_line(error: BaseException) -> str:
    """An exception's message in one line.

    A bare `assert` has no message, and that of a KeyError is the key alone: these get their type,
    and the file and the line that raised them.
    """
    said = " ".join(str(error).split())
    if said and not isinstance(error, KeyError):
        return said
    named = f"{type(error).__name__}: {said}" if said else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return named
    last = frames[-1]
    return f"{named}, raised in {Path(last.filename).name}, line {last.lineno}"
