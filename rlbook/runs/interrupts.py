"""Signals that ask a run to stop, and when it does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to stop, and it has: the checkpoint is written where the run has a folder."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def signal_of(stop: KeyboardInterrupt) -> int:
    """The signal that asked for it; Python's own handler of SIGINT does not say."""
    return stop.signum if isinstance(stop, Interrupted) else signal.SIGINT


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """While open, SIGINT and SIGTERM wait for the next call of the yielded function, which then raises `Interrupted`.

    A second SIGINT does not wait. Outside the main thread nothing is changed.
    """
    received: list[int] = []

    def remember(signum: int, _frame: FrameType | None) -> None:
        if received and signum == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(signum)

    def check() -> None:
        if received:
            raise Interrupted(received[0])

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    previous = {signum: signal.signal(signum, remember) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler or signal.SIG_DFL)
