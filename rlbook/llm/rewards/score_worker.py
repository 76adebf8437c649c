"""The main program of a process that scores completions for its parent; see
`rlbook.llm.rewards.score_pool`.

python -m rlbook.llm.rewards.score_worker NUMBER      of the open file that is one end of a pipe
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from rlbook.interaction.processes import end_with_parent


def serve(connection: Connection) -> None:
    """Receives a function once, and answers each of its argument tuples with a number; 0.0 if it
    fails."""
    try:
        function = cloudpickle.loads(connection.recv_bytes())
    except Exception as error:  # whatever the user's module does
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(None)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            arguments = connection.recv()
            try:
                score = to_score(await_result(function(*arguments)))
            except Exception:  # whatever the user's function does
                score = 0.0
            connection.send(score)


def to_score(result: Any) -> float:
    """A score as verl's prime manager reads it: a number, or the first of several, and 0 for None;
    here also the `score` of a mapping."""
    if result is None:
        return 0.0
    if isinstance(result, Mapping):
        result = result["score"]
    return float(result[0] if isinstance(result, Sequence) else result)


def await_result(result: Any) -> Any:
    """The result of a function that may be `async`."""
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def main() -> None:
    """Runs the worker. Signals are ignored; the parent ends it."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    end_with_parent(signal.SIGKILL)
    os.dup2(2, 1)  # what a function prints is not a result
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
