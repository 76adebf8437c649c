"""The simplest thing to learn: do what you are shown. In the spirit of Stable-Baselines3's identity
environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlbook


class Identity(gymnasium.Env):
    """Reward 1 where the action is the observation, a number below 4. Optimal return: the length of
    an episode."""

    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(4)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left, self.shown = self.length, self._next()
        return self.shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = self._reward(action)
        self.left, self.shown = self.left - 1, self._next()
        return self.shown, reward, self.left == 0, False, {}

    def _next(self) -> Any:
        return int(self.np_random.integers(4))

    def _reward(self, action: Any) -> float:
        return float(int(action) == self.shown)


class IdentityBox(Identity):
    """Reward 1 where the action is within 0.25 of the observation, a number in [-1, 1]; five bins
    reach every one."""

    observation_space = action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _next(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)

    def _reward(self, action: Any) -> float:
        return float(abs(action[0] - self.shown[0]) <= 0.25)


SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"steps": 12_000, "rollout_steps": 32, "batch_size": 64, "learning_rate": 3e-3},
    "dqn": {
        "steps": 6_000,
        "num_envs": 4,
        "learning_starts": 200,
        "target_period": 200,
        "gamma": 0.0,
    },
    "grpo": {"steps": 15_000, "num_envs": 64, "learning_rate": 1e-2},
    "dpo": {"steps": 15_000, "num_envs": 64, "group_size": 8, "learning_rate": 1e-2},
}


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", SETTINGS)
def test_it_is_learnt_for_numbers(algorithm: str) -> None:
    """Groups and pairs judge whole episodes, so theirs have one step."""
    length = 1 if algorithm in ("grpo", "dpo") else 10
    run = rlbook.train(algorithm, Identity(length), seed=0, eval_every=0, **SETTINGS[algorithm])
    assert (rlbook.evaluate(run, episodes=50).returns == length).all()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", SETTINGS)
def test_it_is_learnt_for_a_box(algorithm: str) -> None:
    """By a Gaussian, and by DQN in five bins. At random one action in five is right."""
    length = 1 if algorithm in ("grpo", "dpo") else 10
    settings = SETTINGS[algorithm] | {"steps": 2 * SETTINGS[algorithm]["steps"]}
    run = rlbook.train(algorithm, IdentityBox(length), seed=0, eval_every=0, **settings)
    assert rlbook.evaluate(run, episodes=200).mean >= 0.95 * length
