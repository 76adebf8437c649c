"""Q-learning: learn how good acting optimally would be, while acting otherwise.

    Q ← 0
    for each step
        a ← a random action with probability ε, otherwise argmax_a Q(s, a)
        take a, see r and s'
        Q(s, a) ← Q(s, a) + α [ r + γ max_a' Q(s', a') - Q(s, a) ]        the max counts as 0 where the episode terminated

The bracket is the TD error δ. The max is over actions the agent need not take, which is what makes it off-policy: the table
tends to Q* whatever the agent does, as long as it goes on trying everything. A time limit is no termination: the max stays.

Source: Watkins 1989; Sutton & Barto 2018, section 6.5, the box on page 131. No deliberate difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlbook.algorithms.tabular.exploration import largest, step_size
from rlbook.algorithms.tabular.tabular_agent import ControlAgent, ControlConfig


def q_learning_update(
    q: Any, state: int, action: int, reward: float, next_state: int, terminated: bool, alpha: float, gamma: float
) -> float:
    """One step, in place on q [S, A]. Returns δ in reward units."""
    target = reward if terminated else reward + gamma * largest(q[next_state])
    error = target - q[state][action]
    q[state][action] += alpha * error
    return error


def q_learning_step(
    memory: Any, settings: Any, rng: Any, state: int, action: int, reward: float, next_state: int,
    terminated: bool, truncated: bool,
) -> float:  # fmt: skip
    """The update with the step size of now. Returns |δ| in reward units."""
    alpha = step_size(memory, settings, state, action)
    return abs(q_learning_update(memory.q, state, action, reward, next_state, terminated, alpha, settings.gamma))


@dataclass(frozen=True)
class QLearningConfig(ControlConfig):
    """Hyper-parameters of Q-learning."""


class QLearning(ControlAgent):
    """Q-learning on a table [S, A]. Acts in one environment; learns at every step."""

    Config = QLearningConfig
    update = staticmethod(q_learning_step)
