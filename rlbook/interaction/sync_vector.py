"""N gymnasium environments in one process as a vector environment that keeps the loop's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from numpy.typing import NDArray

from rlbook.agent import State
from rlbook.interaction.guards import METRICS, number
from rlbook.interaction.resumable import ResumableEnv


class SyncVector(VectorEnv):
    """N environments stepped in turn. One whose episode has ended waits, its action ignored, until it is reset.

    Unlike gymnasium's `SyncVectorEnv` it lets finished environments wait and has `snapshot` and `restore`; observations are fresh arrays.

    Args:
        envs: N environments of the same kind, at least one.
    """

    def __init__(self, envs: Sequence[gymnasium.Env]) -> None:
        self.envs = [ResumableEnv(env) for env in envs]
        self.num_envs = len(envs)
        self.metadata = dict(envs[0].metadata) | {"autoreset_mode": AutoresetMode.DISABLED}
        self.render_mode = envs[0].render_mode
        self.single_observation_space, self.single_action_space = envs[0].observation_space, envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._discrete = isinstance(self.single_action_space, spaces.Discrete)
        self._terminated, self._truncated = np.zeros(self.num_envs, dtype=bool), np.zeros(self.num_envs, dtype=bool)

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environments of `options["reset_mask"]` [N] bool (all if left out); returns all observations, and {}."""
        mask = (options or {}).get("reset_mask")
        options = {key: value for key, value in (options or {}).items() if key != "reset_mask"}
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed or [None] * self.num_envs
        rows = range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist()
        self._terminated, self._truncated = self._terminated.copy(), self._truncated.copy()   # a step that was returned keeps its flags
        for i in rows:
            self.envs[i].reset(seed=seeds[i], options=options or None)
            self._terminated[i] = self._truncated[i] = False
        return self._stacked(), {}

    def step(self, actions: NDArray[Any]) -> Any:
        """One step of every environment whose episode goes on: observations [N, ...], rewards [N], terminated [N], truncated [N], and a
        dict with the environments' named numbers, where they have any (see `guards.named_numbers`)."""
        actions = actions.tolist() if self._discrete else actions                # spaces check Python's integers faster than numpy's
        rewards, terminated, truncated = np.zeros(self.num_envs), self._terminated.copy(), self._truncated.copy()
        waiting, named = (terminated | truncated).tolist(), {}
        for i, recorder in enumerate(self.envs):
            if not waiting[i]:
                recorder.actions.append(actions[i])
                recorder.obs, reward, terminated[i], truncated[i], info = recorder.env.step(actions[i])
                rewards[i] = number(reward)
                if METRICS in info:
                    named[i] = info[METRICS]
        self._terminated, self._truncated = terminated, truncated
        return self._stacked(), rewards, terminated, truncated, {METRICS: self._columns(named)} if named else {}

    def _columns(self, named: dict[int, dict[str, float]]) -> dict[str, np.ndarray]:
        """Named numbers of single environments as name → [N], NaN where there is none."""
        columns: dict[str, np.ndarray] = {}
        for row, numbers in named.items():
            for name, value in numbers.items():
                columns.setdefault(name, np.full(self.num_envs, np.nan))[row] = value
        return columns

    def _stacked(self) -> Any:
        """The current observations of all environments, in fresh arrays."""
        rows = [recorder.obs for recorder in self.envs]
        space = self.single_observation_space
        if space.shape is None or space.dtype is None:
            return concatenate(space, rows, create_empty_array(space, self.num_envs))
        stacked = np.empty((self.num_envs, *space.shape), space.dtype)
        for i, row in enumerate(rows):
            stacked[i] = row
        return stacked

    def snapshot(self) -> State:
        """Everything that continuing needs, in the middle of episodes too."""
        return {"envs": [env.snapshot() for env in self.envs], "terminated": self._terminated, "truncated": self._truncated}

    def restore(self, state: State) -> None:
        """The inverse of `snapshot`."""
        for env, saved in zip(self.envs, state["envs"], strict=True):
            env.restore(saved)
        self._terminated, self._truncated = state["terminated"].copy(), state["truncated"].copy()

    def close_extras(self, **kwargs: object) -> None:
        """Closes the environments."""
        for env in self.envs:
            env.close()
