"""A time limit for untrusted Python code, such as a model's chat template, in any thread."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError inside the context once it has run for longer.

    It is raised between two instructions of Python, so a single call into C ends first.
    """
    thread, lock, raised = ctypes.c_ulong(threading.get_ident()), threading.Lock(), False
    inside = True

    def interrupt() -> None:
        nonlocal raised
        with lock:
            if inside:
                raised = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(TimeoutError))

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            inside = False
            if raised:  # on its way still: it must not come after this
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, None)
        timer.cancel()
    if raised:
        raise TimeoutError
