"""The random generators that an environment holds beside gymnasium's own, `np_random`.

Many environments draw from a generator in an attribute of theirs, of an object that they hold, or
of a space that they sample from, and some from the global ones. Its state at the reset is saved too, so that the episode in
progress can be replayed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from rlbook.agent import State
from rlbook.envs.space_batches import is_equal
from rlbook.seeding import GLOBAL_RNGS, Rng, can_save, rng_state, set_rng_state

Place: TypeAlias = tuple[str | int, ...]
"""The attributes, keys and indices that lead from an environment to an object that it holds."""
OPAQUE = (type, ModuleType, FunctionType, MethodType, EnvSpec, np.ndarray)
LEAVES = frozenset((bool, int, float, complex, str, bytes, type(None), np.float64, np.ndarray))
"""Types, compared exactly, of objects that hold nothing."""
OWN = ("_np_random",)  # gymnasium's own generator
GLOBAL: dict[Place, Rng] = {
    ("module random",): GLOBAL_RNGS[0],
    ("module numpy.random",): GLOBAL_RNGS[1],
}
WATCHED = 3
"""The number of episodes in which it is observed which generators an environment draws from."""
DEPTH, VISITED, ITEMS = 6, 5_000, 64
"""The limits of the search: depth, objects in all, and items per list or dict."""


class HeldGenerators:
    """The generators that an environment draws from beside gymnasium's own.

    Those of its own count always. Those that it shares, its spaces' and the global ones of numpy
    and Python, count once they were drawn from in one of the first episodes.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        self.env = env
        self._own, self._shared = list[Place](), list[Place]()
        self._kept, self._drawn = dict[Place, State](), set[Place]()
        self._resets = 0

    def keep(self) -> None:
        """Stores the states before a reset."""
        if self._resets < WATCHED:  # some environments make theirs at a reset, or during an episode
            found = find_generators(self.env)
            self._own = [place for place in found if not self._is_shared(place)]
            self._shared = [place for place in found if self._is_shared(place)] + [*GLOBAL]
        states = self._states_at([*self._own, *self._shared])
        self._note_draws(states)
        if self._resets == WATCHED:
            self._shared = [place for place in self._shared if place in self._drawn]
            states = {
                place: states[place] for place in (*self._own, *self._shared) if place in states
            }
        self._resets += 1
        self._kept = states

    def current_generators(self) -> list[Rng]:
        """The environment's own generators, without those that no longer exist."""
        return [rng for rng in map(self._resolve, self._own) if can_save(rng)]

    def states(self) -> list[State]:
        """The stored states, from the last reset, of the generators that are in use."""
        self._note_draws(self._states_at(self._shared))
        return [
            {"place": list(place), "state": state}
            for place, state in self._kept.items()
            if place in self._own or place in self._drawn
        ]

    def restore(self, states: Sequence[State]) -> None:
        """The inverse of `states`, in another environment of the same class.

        Raises:
            ValueError: it holds no generator there, or one of another kind.
        """
        self._kept = {tuple(saved["place"]): saved["state"] for saved in states}
        self._shared = [place for place in self._kept if self._is_shared(place)]
        self._own = [place for place in self._kept if place not in self._shared]
        self._drawn, self._resets = set(self._shared), 0
        for place, state in self._kept.items():
            holder = self._resolve(place[:-1])
            if isinstance(holder, spaces.Space):
                _ = holder.np_random  # which a space makes when it is first asked for
            generator = self._resolve(place)
            if not can_save(generator):
                named = ".".join(map(str, place))
                raise ValueError(f"the environment holds no random generator as {named:.80}")
            set_rng_state(generator, state)

    def _states_at(self, places: Sequence[Place]) -> dict[Place, State]:
        """The current states of the generators at these places."""
        there = {place: self._resolve(place) for place in places}
        return {place: rng_state(rng) for place, rng in there.items() if can_save(rng)}

    def _note_draws(self, states: dict[Place, State]) -> None:
        """Notes which of the shared generators were drawn from since their states were stored."""
        for place in set(self._shared) & self._kept.keys() & states.keys() - self._drawn:
            if not is_equal(states[place], self._kept[place]):
                self._drawn.add(place)

    def draws_globally(self) -> bool:
        """Whether the environment draws from the global generators."""
        return not self._drawn.isdisjoint(GLOBAL)

    def _is_shared(self, place: Place) -> bool:
        return place in GLOBAL or isinstance(self._resolve(place[:-1]), spaces.Space)

    def _resolve(self, place: Place) -> Any:
        """The object that the environment holds at a place; None if there is none."""
        if place in GLOBAL:
            return GLOBAL[place]
        found: Any = self.env
        for name in place:
            found = next((value for key, value in _items(found) if key == name), None)
        return found


def find_generators(env: gymnasium.Env) -> list[Place]:
    """The places of the generators that an environment holds, the nearest first; each once."""
    level: list[tuple[Place, Any]] = [((), env)]
    seen, found = {id(env)}, list[Place]()
    for _ in range(DEPTH):
        below: list[tuple[Place, Any]] = []
        for place, holder in level:
            for name, value in _items(holder):
                if type(value) in LEAVES or id(value) in seen or (*place, name) == OWN:
                    continue
                if len(seen) == VISITED:
                    return found
                seen.add(id(value))
                if can_save(value):
                    found.append((*place, name))
                else:
                    below.append(((*place, name), value))
        level = below
    return found


def _items(holder: object) -> Iterator[tuple[str | int, Any]]:
    """An object's items by name or index; no code of its class is run."""
    if isinstance(holder, OPAQUE):
        return
    if isinstance(holder, list | tuple):
        yield from enumerate(holder[:ITEMS])
        return
    named: dict[object, Any] = {}
    if not isinstance(holder, dict):
        with contextlib.suppress(AttributeError):
            named = object.__getattribute__(holder, "__dict__")
    elif len(holder) <= ITEMS:
        named = holder
    yield from ((name, value) for name, value in [*named.items()] if isinstance(name, str))
