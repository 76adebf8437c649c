"""An environment whose masks are drawn anew at every visit, and which stops whoever takes no notice
of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ACTIONS = 5


class RandomMasks(gymnasium.Env):
    """Each of five actions is forbidden with probability ½, at least one is allowed; a forbidden
    one raises.

    Pays the action's number, and a forbidden one would pay most of all. What is seen is noise:
    nothing tells of the mask but the mask. One step in eight ends the episode, half of these by a
    time limit; a terminal state allows nothing.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(ACTIONS)
        self.mask = np.ones(ACTIONS, dtype=np.int8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._shown(False)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self.mask[action]:
            raise RuntimeError(
                f"action {action} is forbidden, {np.flatnonzero(self.mask).tolist()} are allowed"
            )
        ends = self.np_random.random()
        obs, info = self._shown(ends < 1 / 16)
        return obs, float(action), ends < 1 / 16, 1 / 16 <= ends < 1 / 8, info

    def _shown(self, over: bool) -> tuple[np.ndarray, dict[str, Any]]:
        mask = self.np_random.random(ACTIONS) < 0.5
        mask[self.np_random.integers(ACTIONS)] = True
        self.mask = np.zeros(ACTIONS, dtype=np.int8) if over else mask.astype(np.int8)
        return self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32), {
            "action_mask": self.mask.copy()
        }
