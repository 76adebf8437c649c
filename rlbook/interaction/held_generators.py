"""The random generators that an environment holds beside gymnasium's own, `np_random`.

Many environments draw from a generator in an attribute of theirs, of an object that they hold, or
of a space that they sample from. Its state at the reset is saved too, so that the episode in
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
from rlbook.seeding import Rng, can_save, rng_state, set_rng_state

Place: TypeAlias = tuple[str | int, ...]
"""Names of attributes, keys and indices that lead from an environment to what it holds."""
OPAQUE = (type, ModuleType, FunctionType, MethodType, EnvSpec, np.ndarray)
OWN = ("_np_random",)  # gymnasium's own generator
DEPTH, VISITED, ITEMS = 6, 5_000, 64
"""How far the search goes: levels, objects in all, and items of one list or dict."""


class HeldGenerators:
    """The generators that an environment holds.

    They are looked for before the first reset, and before the second one, after an episode, since
    some environments make theirs in between. Those of spaces count where something was drawn from
    them in that episode: gymnasium makes them for copies of a space, too.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        self.env, self.places = env, list[Place]()
        self._searches, self._at_first = 0, dict[Place, State]()

    def look(self) -> None:
        """Looks for the generators, unless it has been done twice."""
        if self._searches == 2:
            return
        found = find_generators(self.env)
        of_spaces = {
            place: rng_state(_resolve(self.env, place))
            for place in found
            if isinstance(_resolve(self.env, place[:-1]), spaces.Space)
        }
        drawn = [
            place
            for place, state in of_spaces.items()
            if self._searches == 1 and repr(state) != repr(self._at_first.get(place))
        ]
        self.places = [place for place in found if place not in of_spaces or place in drawn]
        self._searches, self._at_first = self._searches + 1, of_spaces

    def now(self) -> dict[Place, Rng]:
        """The generators, without those that are no longer there; one equals itself alone."""
        found = {place: _resolve(self.env, place) for place in self.places}
        return {place: value for place, value in found.items() if can_save(value)}

    def states(self) -> list[State]:
        return [
            {"place": list(place), "state": rng_state(generator)}
            for place, generator in self.now().items()
        ]

    def restore(self, states: Sequence[State], *, first: bool) -> None:
        """The inverse of `states`, in another environment of the same class.

        Args:
            first: they are those before the first reset.

        Raises:
            ValueError: it holds no generator there, or one of another kind.
        """
        self._searches = 0
        self.look()
        self._searches = 1 if first else 2
        self.places = [tuple(saved["place"]) for saved in states]
        for place, saved in zip(self.places, states, strict=True):
            holder = _resolve(self.env, place[:-1])
            if isinstance(holder, spaces.Space):
                _ = holder.np_random  # which a space makes when it is first asked for
            generator = _resolve(self.env, place)
            if not can_save(generator):
                named = ".".join(map(str, place))
                raise ValueError(f"the environment holds no random generator as {named:.80}")
            set_rng_state(generator, saved["state"])


def find_generators(env: gymnasium.Env) -> list[Place]:
    """The places of the generators that an environment holds, the nearest first; each once."""
    level: list[tuple[Place, Any]] = [((), env)]
    seen, found = {id(env)}, list[Place]()
    for _ in range(DEPTH):
        below: list[tuple[Place, Any]] = []
        for place, holder in level:
            for name, value in _items(holder):
                if id(value) in seen or (*place, name) == OWN:
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
    """What an object holds under a name or an index; no code of its class is run."""
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


def _resolve(env: gymnasium.Env, place: Place) -> Any:
    found: Any = env
    for name in place:
        found = next((value for key, value in _items(found) if key == name), None)
    return found
