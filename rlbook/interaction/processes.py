"""Python processes beside this one, which end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO


def start_module(
    module: str,
    arguments: Sequence[str],
    *,
    out: IO[str] | None = None,
    err: IO[str] | None = None,
    files: Sequence[int] = (),
    apart: bool = False,
) -> subprocess.Popen[bytes]:
    """Starts `python -m module ARGUMENTS`, which finds its modules where this process does.

    Its standard input stays open for as long as this process lives: see `end_with_parent`. `files`
    are the open files that it inherits. With `apart` the terminal's Ctrl-C does not reach it.
    """
    environment = {**os.environ, "PYTHONPATH": python_path()}
    command = [sys.executable, "-P", "-m", module, *arguments]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=err,
        env=environment,
        pass_fds=files,
        start_new_session=apart,
    )


def python_path() -> str:
    """Where this process finds its modules, as PYTHONPATH has it."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


def end_with_parent(by: signal.Signals = signal.SIGTERM) -> None:
    """Has this process get a signal when the one that started it is gone, whatever ended it."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), by)

    threading.Thread(target=watch, daemon=True).start()
