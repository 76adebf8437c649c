"""The two kinds of failed runs, distinguished because the command line answers them differently;
exceptions on one line; and where messages are shown."""

from __future__ import annotations

import errno
import opcode
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import TextIO


def runs_in_notebook() -> bool:
    """Whether the code runs in a notebook kernel."""
    return "ipykernel" in sys.modules and "ipykernel.zmqshell" in sys.modules


def message_stream() -> TextIO:
    """The stream for notes and closing lines: standard error, or in a notebook, where that would be
    red, standard output."""
    return sys.stdout if runs_in_notebook() else sys.stderr


class ShortTraceback:
    """A mixin for exceptions with a self-contained message: in a notebook or IPython their
    traceback shows only the user's own lines. After `%xmode Verbose` it shows all."""

    __cause__: BaseException | None
    __traceback__: TracebackType | None
    args: tuple[object, ...]

    def _render_traceback_(self) -> list[str]:
        """IPython's hook for showing the exception."""
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
        assert shell is not None and isinstance(self, BaseException)
        show, kind = shell.InteractiveTB.structured_traceback, type(self)
        if shell.InteractiveTB.mode == "Verbose":
            return show(kind, self, self.__traceback__)
        alone = kind.__new__(kind, *self.args)  # without the exceptions before it
        alone.__dict__.update(self.__dict__)
        own, cause, before = user_frames(self.__traceback__), self.__cause__, []
        if cause is not None and (theirs := user_frames(cause.__traceback__)) is not None:
            before = [*show(type(cause), cause, theirs), "", "Therefore:", ""]
        last = traceback.format_exception_only(alone) if own is None else show(kind, alone, own)
        return before + last


def user_frames(lines: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is in the user's code: neither in this package nor in Python or
    an installed package. None if there is none."""
    kept = []
    while lines is not None:
        if not lines.tb_frame.f_code.co_filename.startswith(_foreign_folders()):
            kept.append(lines)
        lines = lines.tb_next
    own = None
    for line in reversed(kept):
        own = TracebackType(own, line.tb_frame, line.tb_lasti, line.tb_lineno)
    return own


def _foreign_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    named = {
        str(Path(__file__).parent),
        *(paths[name] for name in ("stdlib", "purelib", "platlib")),
    }
    return (*(f"{path}/" for path in named), "<frozen ")


class RequestError(ShortTraceback, ValueError):
    """The request was wrong: one sentence saying what, which value, and what is allowed. Nothing
    was written. Exit code 2."""


class ImportRefusedError(RequestError):
    """A module of the user's would have been imported, which was not allowed."""


class TrainingError(ShortTraceback, RuntimeError):
    """Training failed: one sentence saying why. The last good checkpoint stays. Exit code 1."""


class UnknownName(ShortTraceback, AttributeError):
    """An attribute or key does not exist: one sentence that names the existing ones."""


class UnknownImport(ShortTraceback, ImportError):
    """A name to import does not exist: one sentence that names the existing ones."""


def missing_name(module: str, name: str, hint: str, frame: FrameType) -> Exception:
    """The exception that a module's `__getattr__` raises for an unknown name.

    Args:
        module, name: what was asked for what.
        hint: ends the sentence.
        frame: which asks. Of one at `from rlbook import Trainer`, an AttributeError would become
            Python's own ImportError.
    """
    if frame.f_code.co_code[frame.f_lasti] == opcode.opmap["IMPORT_FROM"]:
        return UnknownImport(f"cannot import {name!r} from {module}{hint}", name=name)
    return UnknownName(f"module {module!r} has no attribute {name!r}{hint}")


class WrongArguments(ShortTraceback, TypeError):
    """A function was called without an argument that it needs, or with one that it does not take: one
    sentence that shows what it has."""


class WrongValue(ShortTraceback, ValueError):
    """A hyper-parameter does not exist, or cannot have this value: one sentence."""


class IdleSetting(ShortTraceback, ValueError):
    """A hyper-parameter is set that nothing reads, because of others: one sentence.

    Args:
        name: of the hyper-parameter.
        reason: such as "without kl_coef".
        hint: what to do.
    """

    def __init__(self, name: str, reason: str, hint: str) -> None:
        super().__init__(name, reason, hint)
        self.name = name

    def __str__(self) -> str:
        return "{} has no effect {}; {}".format(*self.args)


@contextmanager
def request_errors(
    beginning: str = "", kinds: tuple[type[Exception], ...] = (ValueError,)
) -> Iterator[None]:
    """Within the context, an exception of these kinds becomes a RequestError whose sentence begins
    with `beginning`."""
    try:
        yield
    except kinds as error:
        raise RequestError(f"{beginning}{error}") from None


def system_reason(error: OSError) -> str:
    """The operating system's error message, in lower case for use within a sentence; a message of
    this package's own, about a link or a name, stays as it is. Of a link to nothing, in the place
    of a folder, the system says that a file exists."""
    link = error.filename if isinstance(error, FileExistsError) else None
    if link is not None and os.path.islink(link) and not os.path.exists(link):
        return f"{link} is a link to {os.readlink(link)}, which does not exist"
    said = error.strerror or str(error)
    return said if error.errno in (errno.ELOOP, errno.EINVAL) else said.lower()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the system has refused memory: to Python, NumPy or torch, to a new thread, or to a
    library that is loaded."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return isinstance(error, RuntimeError | ImportError) and any(
        words in str(error)
        for words in (
            "can't allocate memory",
            "out of memory",
            "failed to map segment",
            "can't start new thread",
        )
    )


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
