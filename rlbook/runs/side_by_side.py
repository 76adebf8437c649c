"""Commands in processes of their own, several at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import IO, NamedTuple

LOOK_EVERY = 0.05                            # seconds


class Ended(NamedTuple):
    """What became of a command."""

    index: int                               # which one, from 0
    code: int                                # its exit code, or minus the number of the signal that ended it
    out: str                                 # what it printed on standard output
    err: str                                 # and on standard error


class _Running(NamedTuple):
    process: subprocess.Popen[bytes]
    out: IO[str]
    err: IO[str]


def side_by_side(module: str, commands: Sequence[Sequence[str]], jobs: int) -> Generator[Ended, None, None]:
    """Runs `python -m module ARGUMENTS` for each list of arguments, in their order, at most `jobs` at a time.

    Yields each when it has ended. Where the iterator is closed before, as by an interrupt, those that run get a SIGTERM and are
    waited for; a second interrupt kills them. Their standard input is open for as long as this process lives: see `end_with_parent`.
    """
    waiting = deque(enumerate(commands))
    running: dict[int, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                index, arguments = waiting.popleft()
                running[index] = _start(module, arguments)
            ended = [index for index, item in running.items() if item.process.poll() is not None]
            for index in ended:
                yield _ended(index, running.pop(index))
            if not ended:
                time.sleep(LOOK_EVERY)
    finally:
        _stop([item.process for item in running.values()])


def end_with_parent() -> None:
    """Has this process get a SIGTERM when the one that started it is gone, whatever ended it."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _start(module: str, arguments: Sequence[str]) -> _Running:
    """The process finds its modules where this one does."""
    out, err = (tempfile.TemporaryFile("w+", errors="replace") for _ in range(2))  # noqa: SIM115 - closed when it has ended
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    command = [sys.executable, "-P", "-m", module, *arguments]
    return _Running(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err, env=environment), out, err)


def _ended(index: int, item: _Running) -> Ended:
    said = []
    for file in (item.out, item.err):
        file.seek(0)
        said.append(file.read())
        file.close()
    assert item.process.stdin is not None
    item.process.stdin.close()
    return Ended(index, item.process.returncode, *said)


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    try:
        for process in processes:
            process.wait()
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
            process.wait()
        raise
