"""Environments in worker processes, for environments with slow steps.

Each of W workers steps its share of the N environments in turn, as one process would step them all,
and the workers do so at the same time. Whatever the environments draw comes from their own
generators, so the number of workers changes nothing but the time. What the processes tell each
other is pickled, as multiprocessing does, and goes through a pipe that only a process and its own
workers hold: nothing of it is read from a file. gymnasium's `AsyncVectorEnv` has a process for each
environment, lets no finished one wait, and cannot be saved within an episode.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from types import TracebackType
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlbook.agent import State
from rlbook.errors import RequestError, TrainingError, one_line
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.processes import start_module
from rlbook.interaction.vector_envs.sync_vector import (
    Masks,
    VectorStep,
    describe,
    mask_columns,
    resets_and_seeds,
    shared_info,
    stack_observations,
)

PATIENCE = 5.0  # seconds that a worker has to close its environments
Asked = tuple[str, tuple[Any, ...]]
"""A method of `SyncVector` and its arguments, or "make" or "drop"; see
`rlbook.interaction.vector_envs.worker`."""


class Worker:
    """One worker process."""

    def __init__(self) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        with theirs:
            arguments, files = [str(theirs.fileno())], [theirs.fileno()]
            self.process = start_module(
                "rlbook.interaction.vector_envs.worker", arguments, files=files, apart=True
            )

    def describe_exit(self) -> str:
        """How a process that does not respond came to its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE)
        code = self.process.returncode
        if code is None:
            return "does not answer"
        return (
            f"was ended by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code}"
        )


class Workers:
    """Processes that step environments. They start with the first request and end with this
    process, however it ends.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.running: list[Worker] = []
        """Empty before the start and after `close`; the workers can be started again."""
        self._made = 0
        self._end = weakref.finalize(self, _end, self.running)

    def start(self) -> None:
        """Starts the processes unless they are running."""
        while len(self.running) < self.count:
            self.running.append(Worker())

    def close(self) -> None:
        """Ends the processes, after each has closed its environments."""
        _end(self.running)
        self.running = []
        self._end.detach()
        self._end = weakref.finalize(self, _end, self.running)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def new_key(self) -> int:
        """A new key, by which workers identify the parts of one vector environment."""
        self._made += 1
        return self._made

    def ask(self, key: int, requests: Mapping[int, Asked]) -> dict[int, Any]:
        """Sends requests to several workers at once, `requests` by worker index; returns their
        answers.

        Raises:
            TrainingError: a worker has died.
            Exception: what an environment raised, of the first worker in which one did.
        """
        answers: dict[int, Any] = {}
        try:
            for index, (method, arguments) in requests.items():
                # it takes a user's own classes, and its time
                pickler = cloudpickle if method == "make" else ForkingPickler
                self.running[index].connection.send_bytes(pickler.dumps((key, method, arguments)))
            for index in requests:
                answers[index] = self.running[index].connection.recv()
        except (EOFError, ConnectionError):
            raise TrainingError(
                f"worker {index + 1} of {self.count} {self.running[index].describe_exit()}, and its"
                " environments are lost"
            ) from None
        for failed, answer in answers.values():
            if failed:
                raise _to_exception(answer)
        return {index: answer for index, (_, answer) in answers.items()}


def _end(running: Sequence[Worker]) -> None:
    for worker in running:
        worker.connection.close()
    for worker in running:
        try:
            worker.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        assert worker.process.stdin is not None
        worker.process.stdin.close()


def _to_exception(answer: Exception | tuple[str, str, str]) -> Exception:
    """The exception that an environment raised; if it could not be pickled, one with its name and
    text."""
    if isinstance(answer, Exception):
        return answer
    name, said, note = answer
    error = type(name, (Exception,), {})(said)
    error.add_note(note)
    return error


class WorkerVector(VectorEnv):
    """N environments like `SyncVector`'s, distributed over workers, with the same results and the
    same snapshots.

    Args:
        workers: that step them.
        recipe: how to make one.
        num_envs: N. Where there are more workers than environments, some stay idle.

    Raises:
        RequestError: the environment cannot be sent to another process.
    """

    def __init__(self, workers: Workers, recipe: EnvRecipe, num_envs: int) -> None:
        env = recipe.make()  # is asked what it is like, and never stepped
        describe(self, env, num_envs)
        if recipe.id is not None:
            env.close()
        self.workers, self.name, self._recipe = workers, recipe.name, _sendable(recipe)
        cuts = np.linspace(0, num_envs, min(workers.count, num_envs) + 1).astype(int).tolist()
        self._parts = [slice(low, high) for low, high in itertools.pairwise(cuts)]
        self._key, self._home = workers.new_key(), None
        self._rows: list[Any] = [None] * num_envs

    def start(self) -> None:
        """Makes the environments in the workers unless they exist.

        Raises:
            RequestError: a worker cannot make them.
        """
        if self._home is self.workers.running:
            return
        self.workers.start()
        try:
            self._ask(
                {
                    i: ("make", (*self._recipe, part.stop - part.start))
                    for i, part in enumerate(self._parts)
                }
            )
        except TrainingError:
            raise
        except Exception as error:
            why = (
                str(error)
                if isinstance(error, RequestError)
                else f"{type(error).__name__}: {error}"
            )
            raise RequestError(
                f"a worker process cannot make {self.name}: {' '.join(why.split())}"
            ) from error
        self._home = self.workers.running

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        """As `SyncVector.reset`."""
        self.start()
        mask, seeds, rest = resets_and_seeds(self.num_envs, seed, options)
        asked = {
            i: ("restart", (mask[part], seeds[part], rest))
            for i, part in enumerate(self._parts)
            if mask[part].any()
        }
        masks: Masks = {}
        for index, (rows, shown) in self._ask(asked).items():
            self._rows[self._parts[index]] = rows
            masks |= {self._parts[index].start + row: mask for row, mask in shown.items()}
        return stack_observations(self.single_observation_space, self._rows), mask_columns(
            masks, self.num_envs
        )

    def step(self, actions: NDArray[Any]) -> Any:
        """As `SyncVector.step`."""
        self.start()
        answers: dict[int, VectorStep] = self._ask(
            {i: ("advance", (actions[part],)) for i, part in enumerate(self._parts)}
        )
        parts = list(answers.values())
        self._rows = [row for part in parts for row in part.rows]
        first = [part.start for part in self._parts]
        named, masks, lost = (
            {
                low + row: item
                for low, part in zip(first, parts, strict=True)
                for row, item in getattr(part, name).items()
            }
            for name in ("named", "masks", "lost")
        )
        rewards, terminated, truncated = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("rewards", "terminated", "truncated")
        )
        info = shared_info(named, masks, lost, self.num_envs)
        return (
            stack_observations(self.single_observation_space, self._rows),
            rewards,
            terminated,
            truncated,
            info,
        )

    def snapshot(self) -> State:
        """A snapshot in the format of one `SyncVector` of all N, whatever the number of workers."""
        self.start()
        parts = list(self._ask(self._requests_to_all("snapshot")).values())
        flags = {
            name: np.concatenate([part[name] for part in parts])
            for name in ("terminated", "truncated")
        }
        return {"envs": [env for part in parts for env in part["envs"]], **flags}

    def restore(self, state: State) -> None:
        """The inverse of `snapshot`."""
        self.start()
        saved = [
            {name: state[name][part] for name in ("envs", "terminated", "truncated")}
            for part in self._parts
        ]
        self._rows = [env["obs"] for env in state["envs"]]
        self._ask({i: ("restore", (part,)) for i, part in enumerate(saved)})

    def close_extras(self, **kwargs: object) -> None:
        """Closes the environments; the workers stay."""
        if self._home is self.workers.running:
            self._ask(self._requests_to_all("drop"))

    def _requests_to_all(self, method: str) -> dict[int, Asked]:
        return {index: (method, ()) for index, _ in enumerate(self._parts)}

    def _ask(self, requests: Mapping[int, Asked]) -> dict[int, Any]:
        return self.workers.ask(self._key, requests)


def _sendable(recipe: EnvRecipe) -> tuple[EnvRecipe, EnvSpec | None]:
    """A recipe and the registry's entry for its id, after checking that both can be pickled."""
    spec = None if recipe.id is None else gymnasium.registry[recipe.id]
    recipe = recipe if recipe.written_id is None else replace(recipe, instance=None)
    try:
        cloudpickle.dumps((recipe, spec))
    except Exception as error:  # whatever the user's class holds
        reason = one_line(error)
        raise RequestError(
            f"environment {recipe.name!r} cannot be sent to a worker process ({reason}); leave"
            " workers at 1"
        ) from error
    return recipe, spec
