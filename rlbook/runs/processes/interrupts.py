"""Signals that ask a run to stop, handled at safe points."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rlbook.errors import ShortTraceback


class Interrupted(ShortTraceback, KeyboardInterrupt):
    """A signal asked the run to stop, and it stopped; if the run has a folder, a checkpoint was
    written."""

    run: Any = None
    """The interrupted `rlbook.Run`; its `train` continues from there."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def signal_of(stop: KeyboardInterrupt) -> int:
    """The signal that caused an exception; Python's own handler of SIGINT does not record it."""
    return stop.signum if isinstance(stop, Interrupted) else signal.SIGINT


class Interrupts:
    """The signals received so far, and whether to defer the next one."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._at_once = False

    def __call__(self) -> None:
        """Raises `Interrupted` if a signal has been received."""
        if self.received:
            raise Interrupted(self.received[0])

    @contextmanager
    def raise_immediately(self) -> Iterator[None]:
        """Within the context, a signal raises `Interrupted` immediately: for work that may be
        abandoned, such as an evaluation."""
        self._at_once = True
        try:
            self()
            yield
        finally:
            self._at_once = False

    def remember(self, signum: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        if self.received and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.received.append(signum)
        if self._at_once:
            self()


_early: list[int] = []
"""Signals that arrived before a run handled them, and whose exception may have been swallowed."""


def raise_at_once(signum: int, _frame: FrameType | None) -> None:
    """A handler for the time before and after a run. Foreign code may swallow what it raises, as
    ctypes does in a callback; then the run stops at its first safe point."""
    _early.append(signum)
    raise Interrupted(signum)


def forget_early() -> None:
    """Forgets the signals of an earlier command."""
    _early.clear()


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Within the context, SIGINT and SIGTERM are deferred to the next call of the yielded object,
    which raises `Interrupted`.

    A second SIGINT does not wait. Outside the main thread nothing is changed.
    """
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    previous = {
        signum: signal.signal(signum, interrupts.remember)
        for signum in (signal.SIGINT, signal.SIGTERM)
    }
    interrupts.received += _early
    forget_early()
    try:
        yield interrupts
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler or signal.SIG_DFL)
