"""Q-learning: learn the values of optimal actions while following an exploring policy.

    Q ← 0
    for each step
        a ← a random action with probability ε, otherwise argmax_a Q(s, a)
        take a, see r and s'
        Q(s, a) ← Q(s, a) + α [ r + γ max_a' Q(s', a') - Q(s, a) ]

The max counts as 0 where the episode terminated. The bracket is the TD error δ. The max is over
actions that the agent need not take, which makes the algorithm off-policy: the table converges to
Q* under any behaviour that keeps trying every action in every state. A time limit is not a
termination, so the max stays.

Source: Watkins 1989; Sutton & Barto 2018, section 6.5, the box on page 131. No deliberate
difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.exploration import row_max, step_size
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings


def q_learning_update(
    q: NDArray[np.float64],
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    alpha: float,
    gamma: float,
) -> float:
    """One step, in place on q [S, A]. Returns δ in reward units."""
    target = reward if terminated else reward + gamma * row_max(q[next_state])
    error = target - q[state][action]
    q[state][action] += alpha * error
    return error


def q_learning_step(
    memory: ControlMemory,
    settings: ControlSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float:
    """The update with the current step size. Returns |δ| in reward units."""
    alpha, gamma = step_size(memory, settings, state, action), settings.gamma
    q = memory.q
    return abs(q_learning_update(q, state, action, reward, next_state, terminated, alpha, gamma))


@dataclass(frozen=True)
class QLearningConfig(ControlConfig):
    """Hyper-parameters of Q-learning."""


class QLearning(ControlAgent):
    """Q-learning on a table [S, A]. Acts in one environment; learns at every step."""

    Config = QLearningConfig
    update = staticmethod(q_learning_step)
