"""Double Q-learning: one table chooses the best action, the other estimates its value.

    Q₁, Q₂ ← initial value
    for each step
        a ← an action for s, by (Q₁ + Q₂) / 2 and the exploration
        take a, see r and s'
        with probability 1/2 swap the names Q₁ and Q₂
        Q₁(s, a) ← Q₁(s, a) + α [ r + γ Q₂(s', argmax_a' Q₁(s', a')) - Q₁(s, a) ]

Q₂ counts as 0 where the episode terminated. The maximum of many noisy estimates is on average
larger than the maximum of the true values (maximisation bias), and Q-learning propagates this error
from state to state. Here the noise that makes an action look best in one table is independent of
the other table, so that its value there is not biased upwards.

Source: van Hasselt 2010 (NeurIPS 23); Sutton & Barto 2018, section 6.7, the box on page 136.
Deliberate difference: acts by the mean of the tables, where the box has the sum, which is the same
for ε-greedy and keeps the scale that softmax and UCB need.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.exploration import greedy
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings
from rlbook.functional.schedules import CONSTANT, scheduled_value


def double_q_learning_update(
    memory: DoubleMemory,
    settings: ControlSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float:
    """One step, in place on one of the tables and on their mean. Returns |δ| in reward units."""
    heads = rng.random() < 0.5
    own, other = (memory.first, memory.second) if heads else (memory.second, memory.first)
    bootstrap = 0.0
    if not terminated:
        bootstrap = settings.gamma * other[next_state][greedy(own[next_state], rng)]
    error = reward + bootstrap - own[state][action]
    own[state][action] += own_step_size(memory, settings, state, action, heads) * error
    memory.q[state][action] = 0.5 * (memory.first[state][action] + memory.second[state][action])
    return abs(error)


def own_step_size(
    memory: DoubleMemory, settings: ControlSettings, state: int, action: int, first: bool
) -> float:
    """α for this entry of one of the tables, in (0, 1]. Call it once an update.

    A 1/N schedule counts the updates of that table.
    """
    if settings.counting:
        memory.visits[state][action] += 1
        memory.first_visits[state][action] += 1 if first else 0
    if settings.alpha.kind == CONSTANT:
        return settings.alpha.start
    count = memory.first_visits[state][action]
    if not first:
        count = memory.visits[state][action] - count
    return scheduled_value(settings.alpha, memory.clock[0], count)


class DoubleMemory(ControlMemory):
    """The tables of Q-learning with two estimates; q is their mean (Q₁ + Q₂) / 2, and visits counts
    updates of either."""

    first: NDArray[np.float64]  # [S, A]: Q₁, in reward units
    second: NDArray[np.float64]  # [S, A]: Q₂, in reward units
    first_visits: NDArray[np.int64]  # [S, A]: updates of Q₁ alone, where they are counted


@dataclass(frozen=True)
class DoubleQLearningConfig(ControlConfig):
    """Hyper-parameters of double Q-learning."""


class DoubleQLearning(ControlAgent):
    """Double Q-learning on two tables. Acts in one environment; learns at every step.

    Its values are those of the mean table.
    """

    memory: DoubleMemory
    value_tables = ("q", "first", "second")
    Config = DoubleQLearningConfig
    update = staticmethod(double_q_learning_update)

    def make_memory(self) -> DoubleMemory:
        made = super().make_memory()
        first, second, counts = made.q.copy(), made.q.copy(), made.visits.copy()
        return DoubleMemory(*made, first=first, second=second, first_visits=counts)
