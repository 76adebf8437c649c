"""Scores completions in several processes at once, and ends a process that takes too long.

Threads share one interpreter, so they run a score written in Python one at a time, and a thread that
hangs cannot be ended. A process can.

Source: verl 0.9.1, `workers/reward_manager/prime.py`. Differences: the processes stay for the whole
run, there is at most one for each core, and one that takes too long is ended by itself, where verl
ends all of them.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle

from rlbook.interaction.processes import start_module


class ScoreProcess:
    """One process that has received the function."""

    def __init__(self, function: bytes) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        with theirs:
            arguments, files = [str(theirs.fileno())], [theirs.fileno()]
            self.process = start_module(
                "rlbook.llm.rewards.score_worker", arguments, files=files, apart=True
            )
        self.connection.send_bytes(function)

    def end(self) -> None:
        """Ends the process, whatever it does."""
        self.connection.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()


class ScorePool:
    """Processes that score completions. They start with the first completions and end with this
    process.

    Args:
        function: of the arguments that are scored; it has to be importable or picklable.
        jobs: how many processes at most; there are never more than cores.
        timeout: seconds that a score may take, from when a process begins with it; None: any time.
    """

    def __init__(self, function: Callable[..., Any], jobs: int, timeout: float | None) -> None:
        self._function = cloudpickle.dumps(function)
        self._jobs, self._timeout = min(jobs, os.cpu_count() or 1), timeout
        self._running: list[ScoreProcess] = []
        weakref.finalize(self, _end_all, self._running)

    def __deepcopy__(self, memo: object) -> ScorePool:
        return self  # processes have no copy

    def __call__(self, rows: Sequence[Sequence[Any]]) -> list[float]:
        """The score of each tuple of arguments; 0.0 for one that fails or takes too long.

        Raises:
            ValueError: a process cannot load the function.
        """
        scores, left = [0.0] * len(rows), iter(range(len(rows)))
        busy: dict[Connection, tuple[ScoreProcess, int, float]] = {}  # until when, by the clock
        idle = self._start(min(self._jobs, len(rows)))
        while True:
            while idle and (row := next(left, None)) is not None:
                worker = idle.pop()
                worker.connection.send(tuple(rows[row]))
                ends = time.monotonic() + (self._timeout or float("inf"))
                busy[worker.connection] = worker, row, ends
            if not busy:
                return scores
            soonest = min(ends for _, _, ends in busy.values()) - time.monotonic()
            pause = None if soonest == float("inf") else max(soonest, 0.0)
            for ready in wait(list(busy), pause):
                worker, row, _ = busy.pop(ready)  # type: ignore[arg-type]
                try:
                    scores[row] = worker.connection.recv()
                    idle.append(worker)
                except (EOFError, ConnectionError):  # the score has ended its process
                    idle.append(self._replace(worker))
            for worker, _, ends in list(busy.values()):
                if ends <= time.monotonic():
                    del busy[worker.connection]
                    idle.append(self._replace(worker))

    def _start(self, count: int) -> list[ScoreProcess]:
        """Starts processes until there are so many; returns them."""
        new = [ScoreProcess(self._function) for _ in range(count - len(self._running))]
        self._running += new
        for worker in new:
            _check_ready(worker)
        return list(self._running)

    def _replace(self, worker: ScoreProcess) -> ScoreProcess:
        """Ends a process and starts another one."""
        worker.end()
        self._running.remove(worker)
        self._running.append(new := ScoreProcess(self._function))
        _check_ready(new)
        return new


def _check_ready(worker: ScoreProcess) -> None:
    """Waits until a process has loaded the function. Raises ValueError if it cannot."""
    try:
        refusal = worker.connection.recv()
    except (EOFError, ConnectionError):
        refusal = "the process has ended"
    if refusal is not None:
        raise ValueError(f"a process cannot load the function ({refusal})")


def _end_all(running: list[ScoreProcess]) -> None:
    for worker in running:
        worker.end()
