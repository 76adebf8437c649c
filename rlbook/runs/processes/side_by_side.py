"""Runs commands in separate processes, several in parallel."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import IO, NamedTuple

from rlbook.interaction.processes import start_module

LOOK_EVERY = 0.05  # seconds


class CommandResult(NamedTuple):
    """The result of a command."""

    index: int  # which one, from 0
    code: int  # its exit code, or minus the number of the signal that ended it
    out: str  # what it printed on standard output
    err: str  # and on standard error


class _RunningCommand(NamedTuple):
    process: subprocess.Popen[bytes]
    out: IO[str]
    err: IO[str]


def run_side_by_side(
    module: str, commands: Sequence[Sequence[str]], jobs: int
) -> Generator[CommandResult, None, None]:
    """Runs `python -m module ARGUMENTS` for each list of arguments, in order, with at most `jobs`
    in parallel.

    Yields each when it has ended. Where the iterator is closed before, as by an interrupt, those
    that run get a SIGTERM and are waited for; a second interrupt kills them.
    """
    waiting = deque(enumerate(commands))
    running: dict[int, _RunningCommand] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                index, arguments = waiting.popleft()
                running[index] = _start(module, arguments)
            ended = [index for index, item in running.items() if item.process.poll() is not None]
            for index in ended:
                yield _to_ended(index, running.pop(index))
            if not ended:
                time.sleep(LOOK_EVERY)
    finally:
        try:
            _stop([item.process for item in running.values()])
        finally:
            for item in running.values():
                _close(item)


def reason_of_end(ended: CommandResult) -> str:
    """Why a command failed, in one sentence: the signal, or its last line of output."""
    if ended.code < 0:
        return f"ended by {signal.Signals(-ended.code).name}"
    said = [line for line in ended.err.splitlines() if line.strip()]
    return said[-1] if said else f"ended with exit code {ended.code}"


def _start(module: str, arguments: Sequence[str]) -> _RunningCommand:
    out, err = (tempfile.TemporaryFile("w+", errors="replace") for _ in range(2))  # noqa: SIM115 - closed when it has ended
    return _RunningCommand(start_module(module, arguments, out=out, err=err), out, err)


def _to_ended(index: int, item: _RunningCommand) -> CommandResult:
    said = []
    for file in (item.out, item.err):
        file.seek(0)
        said.append(file.read())
    _close(item)
    return CommandResult(index, item.process.returncode, *said)


def _close(item: _RunningCommand) -> None:
    assert item.process.stdin is not None
    for file in (item.out, item.err, item.process.stdin):
        file.close()


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
