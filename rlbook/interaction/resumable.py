"""An environment that can be resumed in another process, in the middle of an episode."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import ArrayLike

from rlbook.agent import State
from rlbook.checks import saved_count
from rlbook.errors import TrainingError
from rlbook.interaction.guards import unpack_reset, unpack_step
from rlbook.interaction.observed_masks import ObservedMask
from rlbook.interaction.preprocessing import (
    FORGETFUL,
    REMEMBERING,
    restore_wrapper_states,
    wrapper_states,
)
from rlbook.seeding import set_rng_state

WRAPPERS = "wrappers"
"""Where in a snapshot the states of the wrappers are."""
PLAIN = (TimeLimit, OrderEnforcing, PassiveEnvChecker, ObservedMask, *FORGETFUL, *REMEMBERING)
"""Wrappers whose state is saved beside a snapshot, where they have any."""


class ResumableEnv(gymnasium.Wrapper):
    """Records the seed and the actions of the episode in progress, so that it can be replayed.

    Where the environment has `snapshot` and `restore`, those are used. Otherwise the episode is
    replayed: from the generator's state (or the seed) at the reset, with the actions since. What an
    environment carries from one episode to the next beside its generator is lost. What gymnasium's
    wrappers of images remember is saved in both cases (`preprocessing.wrapper_states`).
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.obs: Any = None  # the current observation
        self.actions: list[Any] = []  # since the reset
        self._start: State = {}
        self._limits = _limits_beside_a_snapshot(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self._limits is None:
            self._start = {
                "seed": seed,
                "rng": None if seed is not None else self.unwrapped.np_random.bit_generator.state,
                **self._saved_wrappers(),
            }
        self.actions.clear()
        self.obs, info = unpack_reset(self.env.reset(seed=seed, options=options))
        return self.obs, info

    def step(self, action: ArrayLike) -> Any:
        self.actions.append(action)
        result = unpack_step(self.env.step(action))
        self.obs = result[0]
        return result

    def snapshot(self) -> State:
        """All state that `restore` needs."""
        if self._limits is None:
            return {"obs": self.obs, **self._start, "actions": np.array(self.actions)}
        env: Any = self.unwrapped
        return {
            "obs": self.obs,
            "env": env.snapshot(),
            "elapsed": [limit._elapsed_steps for limit in self._limits],
            **self._saved_wrappers(),
        }

    def _saved_wrappers(self) -> State:
        states = wrapper_states(self.env)
        return {WRAPPERS: states} if states else {}

    def restore(self, state: State) -> None:
        """Restores the state that `snapshot` saved.

        Raises:
            TrainingError: the replayed episode led elsewhere, so the environment is not what its
                generator and the actions make it.
        """
        self.obs, self.actions = state["obs"], []
        if self._limits is None or "env" not in state:
            return self._replay(state)
        env: Any = self.unwrapped
        self.env.reset()
        env.restore(state["env"])
        for limit, elapsed in zip(self._limits, state["elapsed"], strict=True):
            limit._elapsed_steps = saved_count("elapsed steps", elapsed)
        restore_wrapper_states(self.env, state.get(WRAPPERS, ()))

    def _replay(self, state: State) -> None:
        self._start = {name: state[name] for name in ("seed", "rng", WRAPPERS) if name in state}
        self.actions = list(state["actions"])
        if WRAPPERS in state:  # as they were before the reset
            restore_wrapper_states(self.env, state[WRAPPERS])
        if state["seed"] is None:
            set_rng_state(self.unwrapped.np_random, state["rng"])
        obs, _ = self.env.reset(seed=state["seed"])
        for action in self.actions:
            obs = self.env.step(action)[0]
        if not _is_equal(obs, self.obs):
            raise TrainingError(
                "the episode in progress cannot be resumed: replaying its actions led to a"
                " different observation"
            )


def _limits_beside_a_snapshot(env: gymnasium.Env) -> list[TimeLimit] | None:
    """The time limits to save along with a snapshot; None if the episode must be replayed (no
    snapshot, or wrappers that may hold state)."""
    if not hasattr(env.unwrapped, "snapshot") or not hasattr(env.unwrapped, "restore"):
        return None
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if type(env) not in PLAIN:
            return None
        limits += [env] if isinstance(env, TimeLimit) else []
        env = env.env
    return limits


def _is_equal(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return np.array_equal(one, other)  # type: ignore[arg-type]
