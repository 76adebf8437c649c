"""Rollouts of agents with a recurrent policy, in environments whose episodes end at random."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from random_masks import RandomMasks

from rlbook.agent import Step
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.algorithms.policy.ppo import PPO
from rlbook.interaction.loop import act_step_reset
from rlbook.interaction.spaces import AdaptedVectorEnv, adapt_to
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.interaction.vector_envs.vector import VectorInteraction


class Noise(gymnasium.Env):
    """Shows noise and ends at random, half of the times by a time limit. Pays the action."""

    def __init__(self, shown: spaces.Box, actions: spaces.Space) -> None:
        self.observation_space, self.action_space = shown, actions

    def _look(self) -> np.ndarray:
        shown: Any = self.observation_space
        numbers = self.np_random.uniform(0.0, 1.0, shown.shape)
        return (numbers * (255 if shown.dtype == np.uint8 else 1)).astype(shown.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action: Any) -> Any:
        ends = self.np_random.random()
        return self._look(), float(np.mean(action)), ends < 0.1, 0.1 <= ends < 0.2, {}


VECTOR, IMAGE = (
    spaces.Box(0.0, 1.0, (3,), np.float32),
    spaces.Box(0, 255, (6, 6, 1), np.uint8),
)
WORLDS = {
    "discrete": lambda: Noise(VECTOR, spaces.Discrete(4)),
    "continuous": lambda: Noise(VECTOR, spaces.Box(-1.0, 1.0, (2,), np.float32)),
    "image": lambda: Noise(IMAGE, spaces.Discrete(4)),
    "masks": RandomMasks,
}


def agent_in(
    world: str, kind: type[PolicyAgent] = PPO, num_envs: int = 3, **settings: Any
) -> tuple[Any, VectorInteraction]:
    env = SyncVector([WORLDS[world]() for _ in range(num_envs)])
    config = kind.Config(**{"recurrent": "gru", "hidden_sizes": (8,), **settings})
    adapted = AdaptedVectorEnv(env, adapt_to(kind, env, config))
    agent = kind(adapted, config, seed=0)
    rng = np.random.default_rng(1)
    return agent, VectorInteraction(adapted, rng, rollout=agent.rollout)


def collect(agent: Any, interaction: VectorInteraction, steps: int) -> None:
    """Fills the rollout and does not learn."""

    def add(step: Step) -> None:
        agent.rollout_data.add(step, agent._log_prob, agent._acting)
        agent._acting.forget(step.terminated | step.truncated)

    taken = act_step_reset(interaction, agent.act, add, agent.begin)
    for _ in range(steps):
        next(taken)
