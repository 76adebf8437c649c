"""The cliff of figures 6.3 and 6.4: its tables, its learners, and the greedy path of an agent."""

from __future__ import annotations

from functools import cache

import gymnasium
import numpy as np

from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.expected_sarsa import ExpectedSarsa
from rlbook.algorithms.tabular.q_learning import QLearning
from rlbook.algorithms.tabular.sarsa import Sarsa
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.functional.schedules import Constant

ROWS, COLUMNS = 4, 12
START, GOAL = 36, 47
EPSILON = 0.1
LEARNERS: dict[str, type[ControlAgent]] = {
    "SARSA": Sarsa,
    "Q-learning": QLearning,
    "Expected SARSA": ExpectedSarsa,
}


@cache
def cliff_model() -> TabularMDP:
    """S = 48, A = 4."""
    return TabularMDP.from_env(gymnasium.make("CliffWalking-v1"))


def settings(agent: type[ControlAgent], alpha: float) -> ControlConfig:
    """As in the book: γ = 1, ε = 0.1, Q from 0."""
    return agent.Config(gamma=1.0, alpha=Constant(alpha), epsilon=Constant(EPSILON))


def greedy_way(policy: np.ndarray) -> list[int]:
    """The cells on the greedy path from the start to the goal; until the first repetition, if it
    loops.

    Args:
        policy: [S] int, the action of each state.
    """
    outcomes, way = cliff_model().outcomes, [START]
    while way[-1] != GOAL and len(way) == len(set(way)):
        way.append(int(outcomes.successor[outcomes.first[way[-1] * 4 + policy[way[-1]]]]))
    return way
