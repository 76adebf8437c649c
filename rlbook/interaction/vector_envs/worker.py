"""The main program of a worker process, which makes, steps and resets environments for its parent;
see `rlbook.interaction.vector_envs.workers`.

python -m rlbook.interaction.vector_envs.worker NUMBER        of the open file that is one end of a pipe
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.processes import end_with_parent
from rlbook.interaction.threads import use_one_thread
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.seeding import GlobalGenerators


def serve(connection: Connection) -> None:
    """Serves requests until the connection closes: (key, method, arguments) → (whether it failed,
    result or exception)."""
    vectors: dict[int, SyncVector] = {}
    own, turn = dict[int, GlobalGenerators](), None  # and whose are in place
    unseeded = set[int]()
    with contextlib.suppress(EOFError, ConnectionError), contextlib.ExitStack() as place:
        while True:
            key, method, arguments = connection.recv()
            if method == "make":
                own[key] = GlobalGenerators(0)
                unseeded.add(key)
            elif method == "restart" and key in unseeded:
                own[key], turn = GlobalGenerators(arguments[1][0] or 0), None
            unseeded -= {key} if method != "make" else set()
            if key != turn:
                place.close()
                place.enter_context(own[key].swap_states())
                turn = key
            try:
                with use_one_thread():
                    answer = False, _execute(vectors, key, method, arguments)
            except Exception as error:
                answer = True, _sendable(error)
            connection.send(answer)
    for vector in vectors.values():
        vector.close()


def _execute(
    vectors: dict[int, SyncVector], key: int, method: str, arguments: tuple[Any, ...]
) -> object:
    if method == "make":
        vectors[key] = _make_vector(*arguments)
    elif method == "drop":
        vectors.pop(key).close()
    else:
        return getattr(vectors[key], method)(*arguments)
    return None


def _make_vector(recipe: EnvRecipe, spec: EnvSpec | None, count: int) -> SyncVector:
    """Makes `count` environments, after registering what the parent process has registered."""
    if spec is not None:
        gymnasium.registry.setdefault(spec.id, spec)
    return SyncVector(recipe.make_many(count))


def _sendable(error: Exception) -> Exception | tuple[str, str, str]:
    """The exception with its traceback as a note; if it cannot be pickled, a substitute with its
    name, text and traceback."""
    note = f"In the worker process:\n{traceback.format_exc()}"
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))  # type: ignore[attr-defined]
    except Exception:
        return type(error).__name__, str(error), note
    error.add_note(note)
    return error


def main() -> None:
    """Runs the worker. Signals are ignored; the parent saves the state and ends it."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    end_with_parent(signal.SIGKILL)
    os.dup2(2, 1)  # what an environment prints is not a result
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
