"""A reward model pays in the environment's place. Everything else about the environment is as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import State
from rlbook.interaction.resumable import ResumableEnv
from rlbook.interaction.spaces import Observations, as_chosen, outermost_keeper


class LearnedReward(Protocol):
    """What is needed of a reward model; see `rlbook.algorithms.imitation.reward_model`."""

    def adapted(self, observations: Observations) -> Any:
        """The environment's own observations [N, ...] as the model sees them."""
        ...

    def reward(
        self, obs: NDArray[Any], action: NDArray[Any], next_obs: NDArray[Any], over: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """The rewards [N] of N steps; `over` marks those that ended their episode."""
        ...


class PaidEnv(gymnasium.Wrapper):
    """One environment whose rewards are a model's. It has no state of its own: the last observation is kept below."""

    def __init__(self, env: ResumableEnv, model: LearnedReward) -> None:
        super().__init__(env)
        self.model = model

    def step(self, action: ArrayLike) -> Any:
        before = self._row(self.env.obs)  # type: ignore[attr-defined]
        after, _, terminated, truncated, info = self.env.step(action)
        over = np.array([terminated or truncated])
        reward = _paid(self.model, before, np.asarray(action)[None], self._row(after), over, self.env.action_space)
        return after, float(reward[0]), terminated, truncated, info

    def _row(self, obs: Observations) -> Any:
        """One observation as N = 1 of them."""
        space = self.env.observation_space
        return concatenate(space, [obs], create_empty_array(space, 1))


class PaidVectorEnv(VectorWrapper):
    """N environments whose rewards are a model's; one that has ended earlier is paid nothing."""

    def __init__(self, env: VectorEnv, model: LearnedReward) -> None:
        super().__init__(env)
        self.model = model
        self._obs: Any = None                # [N, ...], before the next step
        self._over = np.zeros(env.num_envs, dtype=bool)

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> Any:
        self._obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        mask = (options or {}).get("reset_mask")
        self._over = np.zeros_like(self._over) if mask is None else self._over & ~np.asarray(mask)
        return self._obs, info

    def step(self, actions: ArrayLike) -> Any:
        before, waiting = self._obs, self._over
        self._obs, _, terminated, truncated, info = self.env.step(actions)
        self._over = terminated | truncated
        reward = _paid(self.model, before, actions, self._obs, self._over & ~waiting, self.env.single_action_space)
        return self._obs, np.where(waiting, 0.0, reward), terminated, truncated, info

    def snapshot(self) -> State:
        """Everything that continuing needs."""
        return {"env": outermost_keeper(self.env).snapshot(), "obs": self._obs, "over": self._over}

    def restore(self, state: State) -> None:
        """The inverse of `snapshot`."""
        outermost_keeper(self.env).restore(state["env"])
        self._obs, self._over = state["obs"], state["over"].copy()


def _paid(
    model: LearnedReward, obs: Observations, actions: ArrayLike, next_obs: Observations, over: NDArray[np.bool_], space: spaces.Space
) -> NDArray[np.float64]:
    """The model's rewards [N] for steps as the environment saw them."""
    chosen = as_chosen(np.asarray(actions), space)
    return model.reward(model.adapted(obs), chosen, model.adapted(next_obs), over)
