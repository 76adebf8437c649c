"""The random walk of 1000 states, on which features are compared: jumps of up to 100 states, -1 on
the left, +1 on the right, γ = 1.

All learners see the same walks, so that a difference between two curves is due to the learners more
than to chance.

Source: Sutton & Barto 2018, example 9.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlbook.agent import Step
from rlbook.algorithms.value.semi_gradient_td import SemiGradientTD, SemiGradientTDConfig
from rlbook.checks import ENDLESS
from rlbook.envs.random_walk import random_walk_model
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.seeding import rng_for

LENGTH, JUMP = 1000, 100
MONTE_CARLO = ENDLESS
"""An n larger than any episode's length."""


def walk_model() -> TabularMDP:
    """S = 1002: both ends, and the states as 1 to 1000."""
    return random_walk_model(LENGTH, JUMP, -1.0, 1.0)


def exact_values(model: TabularMDP) -> np.ndarray:
    """[1000]: V of states 1 to 1000."""
    return model.policy_values(np.full((LENGTH + 2, 2), 0.5), 1.0)[1:-1]


def state_distribution() -> np.ndarray:
    """μ: [1000], the share of steps that a walk spends in each state. η = e_500 + Pᵀ η, solved, and
    divided by its sum."""
    states = np.arange(LENGTH)
    distance = np.abs(states[:, None] - states[None, :])
    moves = ((distance >= 1) & (distance <= JUMP)) / (2 * JUMP)
    visits = np.linalg.solve(np.eye(LENGTH) - moves.T, np.eye(LENGTH)[(LENGTH + 1) // 2 - 1])
    return visits / visits.sum()


def walks(model: TabularMDP, seed: int, episodes: int) -> Iterator[list[Step]]:
    """The steps of each episode, acting at random."""
    env, rng = TabularEnv(model), rng_for(seed, "exploration")
    state, _ = env.reset(seed=seed)
    for _ in range(episodes):
        steps, over = [], False
        while not over:
            action = int(rng.random() * 2)
            after, reward, over, _, _ = env.step(action)
            steps.append(Step(state, action, float(reward), after, over, False))
            state = after
        yield steps
        state, _ = env.reset()


def learner(model: TabularMDP, **config: Any) -> SemiGradientTD:
    """Semi-gradient TD with features of states 1 to 1000."""
    both: dict[str, Any] = {"gamma": 1.0, "low": (1,), "high": (LENGTH + 1,)}
    return SemiGradientTD(TabularEnv(model), SemiGradientTDConfig(**both | config))


def learned_values(agent: SemiGradientTD, steps: list[Step]) -> np.ndarray:
    """[1000]: V of states 1 to 1000 after these steps."""
    for step in steps:
        agent.learn(step)
    return agent.values()[1:-1]
