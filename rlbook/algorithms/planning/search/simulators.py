"""Copies of an environment that can be restored to any state met before, for use in a search.

    FieldSimulator       gymnasium's own classes, in which a step replaces a few attributes
    SnapshotSimulator    environments with `snapshot()` and `restore()`
    CopySimulator        anything else that can be deep-copied, at the cost of a copy per simulation
                         or two

A simulator has its own random generator, so that the search cannot foresee the real environment's
random numbers. It does see the whole state, hidden cards included. The step count of gymnasium's
`TimeLimit` is not part of the state.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle

from rlbook.algorithms.planning.search.observation_digest import content
from rlbook.algorithms.planning.search.tree import NodeRecord, SearchTree
from rlbook.algorithms.planning.table_model import GOES_ON, STUCK, TERMINATED
from rlbook.envs.tabular.enumeration import RestorableEnv
from rlbook.errors import TrainingError, one_line
from rlbook.interaction.action_masks import ACTION_MASK, MaskReader
from rlbook.interaction.guards import cause_of, number, unpack_step
from rlbook.seeding import UniformSource

S = TypeVar("S")
"""A simulator's state."""
Act = Callable[[int], object]
"""Maps the agent's action to the environment's."""


class Simulator(ABC, Generic[S]):
    """A copy of an environment that can be restored to any state met before. See the module
    docstring for its forms.

    Args:
        env: the real environment.
        act: turns the agent's action, an integer, into the environment's; None: they are the same.
        num_actions: A.
    """

    saves = True

    def __init__(self, env: gymnasium.Env, act: Act | None, num_actions: int) -> None:
        self.real, self.num_actions = env, num_actions
        self.value: Callable[[Any], float] | None = None
        self.actions = [action if act is None else act(action) for action in range(num_actions)]
        self.noise = np.random.default_rng(0)
        self._quiet = self.noise.bit_generator.state
        self._root: S | None = None  # the state that the search begins in
        self._masks = MaskReader(env)
        self.root_mask: list[int] | None = None
        """[A], 1 for each action allowed at the root; None: all are."""
        self.allowed: list[int] | None = None
        """[A], 1 for each action allowed in the copy's current state; None: all are."""
        self.obs: object = None  # what the copy shows
        self.copy = self._private_copy()
        self.copy.unwrapped.render_mode = None
        self.copy.unwrapped.np_random = self.noise

    def __deepcopy__(self, memo: dict[int, object]) -> Simulator:
        return self

    def _private_copy(self) -> gymnasium.Env:
        return deep_copy(self.real, {})

    def set_value(self, value: Callable[[Any], float] | None) -> None:
        """Sets the function that evaluates the observation where a simulation stops; None: 0."""
        self.value = value

    def key(self, observation: object, mode: str, ending: int) -> int:
        """The key that distinguishes an action's outcome with this observation from its other
        outcomes."""
        return 0 if mode == "open-loop" else 4 * content(observation) + ending

    def prepare(self, search_tree: SearchTree, rng: np.random.Generator) -> None:
        """Stores the real environment's state as the root, and reseeds the copy."""
        self.noise.bit_generator.state = self._quiet = np.random.default_rng(
            int(rng.random() * 2**53)
        ).bit_generator.state
        self._root = self.real_state()
        search_tree.met[:1] = [NodeRecord(0.0, GOES_ON, self._root, self.root_mask)]

    def begin(self, observation: object, rng: UniformSource) -> None:
        """Does nothing: the search starts from the real environment's state, and the copy has its
        own generator.
        """

    def to_root(self) -> None:
        """Moves the copy to the state of the real environment."""
        assert self._root is not None, "prepare comes first"
        self.load(self._root)
        self.allowed = self.root_mask

    def has_drawn(self) -> bool:
        """Whether the copy's steps have drawn random numbers since `prepare`."""
        return self.noise.bit_generator.state != self._quiet

    def real_state(self) -> S:
        """The state of the real environment."""
        return self._read_state(self.real)

    def save(self) -> S:
        """The state of the copy."""
        return self._read_state(self.copy)

    @abstractmethod
    def _read_state(self, env: gymnasium.Env) -> S:
        """The state of either environment."""

    @abstractmethod
    def load(self, state: S) -> None:
        """Moves the copy to a state."""

    def show(self, observation: object) -> None:
        """Shows the last observation of a truncated episode, without a step."""
        self.obs = observation

    def step(self, action: int) -> tuple[float, int]:
        """One step of the copy: the reward, and whether the episode goes on.

        Raises TrainingError where it fails.
        """
        try:
            answer = unpack_step(self.copy.step(self.actions[action]))
            self.obs, reward, terminated, truncated, info = answer
            paid = number(reward)
            if ACTION_MASK in info or self.allowed is not None:
                mask = self._masks.read_mask(info, None, done=terminated or truncated)
                self.allowed = None if mask is None else mask.astype(int).tolist()
        except TrainingError:
            raise
        except Exception as error:
            raise _failure(error) from error
        if not math.isfinite(paid):
            raise TrainingError(f"the reward of a simulated step is not finite: {paid}")
        return paid, TERMINATED if terminated else STUCK if truncated else GOES_ON

    def estimate(self) -> float:
        """The value of the copy's current observation where a simulation stops, in reward units."""
        return 0.0 if self.value is None else float(self.value(self.obs))


class FieldSimulator(Simulator[dict[str, object]]):
    """A shallow copy whose changing attributes, `names`, are restored."""

    def __init__(
        self, env: gymnasium.Env, act: Act | None, num_actions: int, names: tuple[str, ...]
    ) -> None:
        self._names = names
        super().__init__(env, act, num_actions)

    def _private_copy(self) -> gymnasium.Env:
        return copy.copy(self.real)

    def _read_state(self, env: gymnasium.Env) -> dict[str, object]:
        return {name: getattr(env, name) for name in self._names}

    def load(self, state: dict[str, object]) -> None:
        self.copy.__dict__.update(state)


class SnapshotSimulator(Simulator[dict[str, Any]]):
    """A deep copy, made once, that is restored from snapshots.

    Its generator is put aside meanwhile: a snapshot holds the real one's state.

    Args:
        rules: what steps are taken in instead of a copy: an environment with the same snapshots.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        act: Act | None,
        num_actions: int,
        rules: gymnasium.Env | None = None,
    ) -> None:
        self._aside, self._rules = np.random.default_rng(0), rules
        super().__init__(env, act, num_actions)

    def _private_copy(self) -> gymnasium.Env:
        return super()._private_copy() if self._rules is None else self._rules

    def _read_state(self, env: gymnasium.Env) -> dict[str, Any]:
        return cast(RestorableEnv, env.unwrapped).snapshot()

    def load(self, state: dict[str, Any]) -> None:
        self.copy.np_random = self._aside
        try:
            cast(RestorableEnv, self.copy.unwrapped).restore(state)
        except Exception as error:
            raise _failure(error) from error
        self.copy.np_random = self.noise


class CopySimulator(Simulator[gymnasium.Env]):
    """Each state is a complete copy of the environment with its wrappers, spaces included, so this
    is slow.
    """

    saves = False

    def _private_copy(self) -> gymnasium.Env:
        inner = self.real.unwrapped
        if isinstance(inner, EzPickle) and not hasattr(inner, "__deepcopy__"):
            name = type(inner).__name__
            raise ValueError(
                f"{name} cannot be searched: it has no snapshot() and restore(), and a copy of "
                "it starts over (it is an EzPickle)."
            )
        return super()._private_copy()

    def _read_state(self, env: gymnasium.Env) -> gymnasium.Env:
        state = deep_copy(env, {id(env.unwrapped.np_random): self.noise})
        state.unwrapped.render_mode = None
        return state

    def load(self, state: gymnasium.Env) -> None:
        self.copy = self._read_state(state)


def _failure(error: Exception) -> TrainingError:
    """What the environment raised while it was simulated, in one sentence."""
    return TrainingError(f"the environment failed in a simulation of the search: {cause_of(error)}")


def deep_copy(env: gymnasium.Env, memo: dict[int, Any]) -> gymnasium.Env:
    """A deep copy. Raises ValueError where the environment does not allow it."""
    try:
        return copy.deepcopy(env, memo)
    except Exception as error:  # whatever the environment's class holds
        name, reason = type(env.unwrapped).__name__, one_line(error)
        raise ValueError(
            f"{name} cannot be searched: it has no snapshot() and restore(), and it cannot be "
            f"copied ({reason})."
        ) from error
