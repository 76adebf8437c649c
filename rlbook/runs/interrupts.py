"""Signals that ask a run to stop, and when it does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to stop, and it has: the checkpoint is written where the run has a
    folder."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def signal_of(stop: KeyboardInterrupt) -> int:
    """The signal that asked for it; Python's own handler of SIGINT does not say."""
    return stop.signum if isinstance(stop, Interrupted) else signal.SIGINT


class Interrupts:
    """The signals that have come, and whether the next one may wait."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._at_once = False

    def __call__(self) -> None:
        """Raises `Interrupted` where a signal has come."""
        if self.received:
            raise Interrupted(self.received[0])

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, a signal raises `Interrupted` wherever it arrives: for what may be left half
        done, such as an evaluation."""
        self._at_once = True
        try:
            self()
            yield
        finally:
            self._at_once = False

    def remember(self, signum: int, _frame: FrameType | None) -> None:
        """The handler."""
        if self.received and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.received.append(signum)
        if self._at_once:
            self()


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """While open, SIGINT and SIGTERM wait for the next call of what is yielded, which then raises
    `Interrupted`.

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
    try:
        yield interrupts
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler or signal.SIG_DFL)
