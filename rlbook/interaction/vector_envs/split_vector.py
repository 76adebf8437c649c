"""Environments distributed over several processes: each steps its own, and all of them see all
results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rlbook.agent import State
from rlbook.errors import RequestError, TrainingError
from rlbook.interaction.action_masks import ACTION_MASK, HAS_MASK
from rlbook.interaction.guards import LIFE_LOST, METRICS
from rlbook.interaction.process_group import ProcessGroup
from rlbook.interaction.spaces import outermost_snapshot_env

PARTS = "processes"
"""The key of the processes' parts in a snapshot."""


class SplitVectorEnv(VectorWrapper):
    """N environments, of which each process has its own rows. Whatever an environment draws comes
    from a generator of its own, so the number of processes changes nothing but the time.

    Args:
        group: the processes.
        make: makes that many environments; called with this process's share, or with 1, which is
            never stepped, where it has none.
        num_envs: N.
        group_size: neighbouring environments that stay in one process, so that a reward which
            compares the episodes of a group sees all of them.
    """

    def __init__(
        self,
        group: ProcessGroup,
        make: Callable[[int], VectorEnv],
        num_envs: int,
        group_size: int = 1,
    ) -> None:
        self.group, self._count = group, num_envs
        self._parts = group.parts(num_envs, group_size)
        self.mine = self._parts[group.rank]
        self._empty = self.mine.start == self.mine.stop
        super().__init__(make(max(1, self.mine.stop - self.mine.start)))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @property
    def num_envs(self) -> int:
        return self._count

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        """Resets the environments of `options["reset_mask"]` [N] bool (default: all); `seed` has N
        entries, or is the first environment's."""
        if isinstance(seed, int):
            seed = [seed + row for row in range(self._count)]
        own = None if seed is None else list(seed)[self.mine]
        if options is not None and "reset_mask" in options:
            options = options | {"reset_mask": np.asarray(options["reset_mask"])[self.mine]}
        answers = self._exchange(lambda: self.env.reset(seed=own, options=options))  # type: ignore[arg-type]
        return self._join([obs for obs, _ in answers]), self._infos([info for _, info in answers])

    def step(self, actions: NDArray[Any]) -> Any:
        """Steps every environment whose episode has not ended, each in its own process."""
        answers = self._exchange(lambda: self.env.step(np.asarray(actions)[self.mine]))
        obs, rewards, terminated, truncated, infos = zip(*answers, strict=True)
        flags = (np.concatenate(column) for column in (rewards, terminated, truncated))
        return (self._join(obs), *flags, self._infos(infos))

    def snapshot(self) -> State:
        """All state needed to continue with as many processes."""
        return {PARTS: self._exchange(outermost_snapshot_env(self.env).snapshot, skip=False)}

    def restore(self, state: State) -> None:
        """The inverse of `snapshot`; `check_process_count` comes first."""
        outermost_snapshot_env(self.env).restore(state[PARTS][self.group.rank])

    def _exchange(self, function: Callable[[], Any], *, skip: bool = True) -> list[Any]:
        """The results of a function of the environments in each process; with `skip` not in those
        that have none.

        Raises:
            TrainingError: an environment failed in one of them, or the others do not take part.
        """
        if ProcessGroup.training is None:
            raise TrainingError(
                f"these {self._count} environments are split over {self.group.size} processes; "
                "this one cannot step or save them while the others are doing something else"
            )
        answer: Any = None
        raised: Exception | None = None
        if not (skip and self._empty):
            try:
                answer = function()
            except Exception as error:
                raised = error
        failed = None if raised is None else (type(raised).__name__, str(raised))
        answers = self.group.gather((failed, answer))
        if raised is not None:
            raise raised
        for sort, said in (other for other, _ in answers if other is not None):
            raise TrainingError(said) if sort == "TrainingError" else _remote_exception(sort, said)
        return [found for _, found in answers if not skip or found is not None]

    def _join(self, parts: Sequence[Any]) -> Any:
        return join_observations(self.single_observation_space, parts)

    def _infos(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The named numbers and the action masks of all processes."""
        sizes = [part.stop - part.start for part in self._parts if part.stop > part.start]
        found: dict[str, Any] = {}
        named = dict.fromkeys(name for info in infos for name in info.get(METRICS, ()))
        if named:
            found[METRICS] = {
                name: np.concatenate(
                    [
                        np.asarray(info.get(METRICS, {}).get(name, np.full(size, np.nan)))
                        for info, size in zip(infos, sizes, strict=True)
                    ]
                )
                for name in named
            }
        if any(LIFE_LOST in info for info in infos):
            found[LIFE_LOST] = np.concatenate(
                [
                    np.asarray(info.get(LIFE_LOST, np.zeros(size, dtype=bool)))
                    for info, size in zip(infos, sizes, strict=True)
                ]
            )
        if any(ACTION_MASK in info for info in infos):
            rows = [
                [*info[ACTION_MASK]] if ACTION_MASK in info else [None] * size
                for info, size in zip(infos, sizes, strict=True)
            ]
            known = [
                np.asarray(info.get(HAS_MASK, np.full(size, ACTION_MASK in info)), dtype=bool)
                for info, size in zip(infos, sizes, strict=True)
            ]
            found[ACTION_MASK] = _objects([mask for part in rows for mask in part])
            found[HAS_MASK] = np.concatenate(known)
        return found


def check_process_count(env: VectorEnv | None, state: State) -> None:
    """Raises RequestError if a snapshot was made by another number of processes than step the
    environments now."""
    while env is not None and not isinstance(env, SplitVectorEnv):
        state = state.get("env", state) if isinstance(state, dict) else state
        env = getattr(env, "env", None)
    saved = len(state[PARTS]) if isinstance(state, dict) and PARTS in state else 1
    running = 1 if env is None else env.group.size
    if saved != running:
        raise RequestError(other_number(saved, running))


def other_number(saved: int, running: int) -> str:
    """Why a run cannot be resumed by another number of processes."""
    again = (
        f"resume it with torchrun --nproc-per-node {saved}"
        if saved > 1
        else "resume it without torchrun"
    )
    wrote = f"{saved} processes" if saved > 1 else "one process"
    runs = f"there are {running}" if running > 1 else "there is one"
    return f"its environments were saved by {wrote}, and now {runs}; {again}"


def join_observations(space: spaces.Space, parts: Sequence[Any]) -> Any:
    """Batches of observations [n, ...] of a space as one batch."""
    if isinstance(space, spaces.Dict):
        return {
            name: join_observations(inner, [part[name] for part in parts])
            for name, inner in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            join_observations(inner, [part[i] for part in parts])
            for i, inner in enumerate(space.spaces)
        )
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return tuple(row for part in parts for row in part)


def _objects(rows: list[Any]) -> NDArray[Any]:
    """An array of objects, as vector environments show masks."""
    array = np.empty(len(rows), dtype=object)
    array[:] = rows
    return array


def _remote_exception(sort: str, said: str) -> Exception:
    """An exception of another process, with its name and text."""
    return type(sort, (Exception,), {})(said)
