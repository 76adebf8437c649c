"""The model of a deterministic environment, built by trying every action in every reachable
state."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlbook.envs.tabular.mdp_checks import Entry


class NoModel(ValueError):
    """The transitions of this environment cannot be determined. (Too many of them raise a plain
    ValueError instead.)"""


class RestorableEnv(Protocol):
    """An environment that can be restored to any state it has been in; its methods are specified by
    Gymnasium."""

    observation_space: spaces.Space
    action_space: spaces.Discrete

    def reset(self, *, seed: int | None = None) -> tuple[object, dict[str, Any]]: ...

    def step(self, action: int) -> tuple[object, float, bool, bool, dict[str, Any]]: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...


class ListedModel(NamedTuple):
    """A model as the list of its transitions."""

    entries: list[Entry]
    num_states: int  # S
    num_actions: int  # A
    initial: NDArray[np.float64] | None  # [S], where episodes begin; None: everywhere alike
    observable: bool  # whether states are numbered as observations are


START_SEEDS = 100
"""The number of seeds with which episodes are started to find the initial distribution."""


class DiscoveredStates:
    """The states discovered so far, in order, and those whose actions have not been tried."""

    def __init__(self) -> None:
        self.observations: list[object] = []
        self.untried: deque[tuple[int, dict[str, Any]]] = deque()
        self._numbers: dict[Hashable, int] = {}
        self._alive: set[int] = set()

    def visit(self, snapshot: dict[str, Any], observation: object, *, ended: bool) -> int:
        """The state's index. Unless the state is terminal, its actions are queued to be tried."""
        number = self._numbers.setdefault(_content(snapshot), len(self._numbers))
        if number == len(self.observations):
            self.observations.append(observation)
        if not ended and number not in self._alive:
            self._alive.add(number)
            self.untried.append((number, snapshot))
        return number


def enumerate_states(env: RestorableEnv, name: str, max_transitions: int) -> ListedModel:
    """Enumerates states breadth-first from the environment's initial states, then restores the
    environment.

    A state is what `snapshot()` holds, apart from the generator's state. States are numbered as the
    observations are where the observation tells them apart (Discrete, MultiDiscrete in mixed
    radix); otherwise in the order of discovery, and then the model is not `observable`.

    Raises:
        ValueError: more than `max_transitions`.
        NoModel: a step that draws random numbers.
    """
    before = env.snapshot()
    try:
        found, starts, entries = _explore(env, name, max_transitions)
    finally:
        env.restore(before)
    numbers, num_states = _numbers_by_observation(env.observation_space, found.observations)
    observable = numbers is not None
    if numbers is None:
        numbers, num_states = np.arange(len(found.observations)), len(found.observations)
    num_actions = int(env.action_space.n)
    renumbered: list[Entry] = [
        (int(numbers[state]), action, int(numbers[successor]), 1.0, reward, ended)
        for state, action, successor, reward, ended in entries
    ]
    renumbered += _self_transitions({entry[0] for entry in renumbered}, num_states, num_actions)
    initial = np.bincount(numbers[starts], minlength=num_states) / len(starts)
    return ListedModel(renumbered, num_states, num_actions, initial, observable)


def _explore(
    env: RestorableEnv, name: str, max_transitions: int
) -> tuple[DiscoveredStates, list[int], list[tuple[int, int, int, float, bool]]]:
    found = DiscoveredStates()
    starts = []
    for seed in range(START_SEEDS):
        observation, _ = env.reset(seed=seed)
        starts.append(found.visit(env.snapshot(), observation, ended=False))
    entries = []
    num_actions = int(env.action_space.n)
    while found.untried:
        if len(entries) + len(found.untried) * num_actions > max_transitions:
            size = f"{len(found.observations):,} states were found in {len(entries):,} transitions"
            raise ValueError(
                f"{name} is too large to plan in: {size}, and trying all of them would take more "
                f"than {max_transitions:,}."
            )
        state, snapshot = found.untried.popleft()
        generators = list(_generators(snapshot))
        for action in range(num_actions):
            env.restore(snapshot)
            observation, reward, ended, _, _ = env.step(action + int(env.action_space.start))
            after = env.snapshot()
            if list(_generators(after)) != generators:
                raise NoModel(
                    f"{name} has no model to plan with: its steps draw random numbers, so it cannot"
                    " be enumerated."
                )
            entries.append(
                (
                    state,
                    action,
                    found.visit(after, observation, ended=bool(ended)),
                    float(reward),
                    bool(ended),
                )
            )
    return found, starts, entries


def _self_transitions(left: set[int], num_states: int, num_actions: int) -> list[Entry]:
    """Entries for states in which no action was tried: terminal or never encountered."""
    return [
        (state, action, state, 1.0, 0.0, True)
        for state in range(num_states)
        if state not in left
        for action in range(num_actions)
    ]


def _numbers_by_observation(
    space: spaces.Space, observations: list[object]
) -> tuple[np.ndarray | None, int]:
    """The observation's index for each state found, and the number of indices; None if observations
    do not identify states."""
    count = math.prod(_radix(space))
    if not 0 < count <= 100 * len(observations) + 10_000:
        return None, 0
    start = np.ravel(space.start)  # type: ignore[attr-defined]
    digits = np.array(observations).reshape(len(observations), -1) - start
    numbers = np.array(np.ravel_multi_index(tuple(digits.T), _radix(space)))
    return (numbers, count) if len(np.unique(numbers)) == len(numbers) else (None, 0)


def _radix(space: spaces.Space) -> tuple[int, ...]:
    """The number of values of each component of an observation; (0,) if infinite."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    return (
        tuple(int(n) for n in space.nvec.ravel())
        if isinstance(space, spaces.MultiDiscrete)
        else (0,)
    )


def _content(value: object) -> Hashable:
    """A snapshot in a comparable form, without the generators."""
    if isinstance(value, dict):
        return tuple(
            (key, _content(item)) for key, item in sorted(value.items()) if not _is_generator(item)
        )
    if isinstance(value, list | tuple):
        return tuple(_content(item) for item in value)
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    return value


def _generators(value: object) -> Iterator[dict[str, Any]]:
    if _is_generator(value):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _generators(item)


def _is_generator(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and "bit_generator" in value
