"""Python child processes, which end with this process."""

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
    """Starts `python -m module ARGUMENTS` with this process's module search path.

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
    """This process's module search path, in the format of PYTHONPATH."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


def end_with_parent(by: signal.Signals = signal.SIGTERM) -> None:
    """Makes this process receive a signal when its parent is gone, however the parent ended."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), by)

    threading.Thread(target=watch, daemon=True).start()
