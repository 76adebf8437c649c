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
from typing import Any, ClassVar

from rlbook.agent import Metrics, Step
from rlbook.algorithms.tabular.compiled import compiled
from rlbook.algorithms.tabular.tabular_agent import TabularAgent
from rlbook.checks import at_least, check_fields, check_schedules, positive_fraction, unit_interval
from rlbook.functional.schedules import Constant, Linear, Schedule


@compiled
def q_learning_update(
    q: Any, state: int, action: int, reward: float, next_state: int, terminated: bool, alpha: float, gamma: float
) -> float:
    """One step, in place on q [S, A]. Returns δ in reward units."""
    bootstrap = 0.0 if terminated else gamma * q[next_state].max()
    error = reward + bootstrap - q[state, action]
    q[state, action] += alpha * error
    return error


@dataclass(frozen=True)
class QLearningConfig:
    """Hyper-parameters of Q-learning."""

    gamma: float = 0.99                      # discount γ per environment step, in [0, 1]
    alpha: Schedule = Constant(0.1)          # step size α, in (0, 1]
    epsilon: Schedule = Linear(1.0, 0.05)    # probability ε of a random action, in [0, 1]
    bins: int = 8                            # cells per dimension that continuous observations are cut into, at least 1
    action_bins: int = 5                     # values per dimension that continuous actions are chosen from, at least 2

    def __post_init__(self) -> None:
        check_fields(self, gamma=unit_interval, bins=at_least(1), action_bins=at_least(2))
        check_schedules(self, alpha=positive_fraction, epsilon=unit_interval)


class QLearning(TabularAgent):
    """Q-learning on a table. One stream of experience; learns at every step."""

    Config = QLearningConfig
    METRICS: ClassVar[dict[str, str]] = {
        "td_error": "|δ|, how far the table was from r + γ max Q, in reward units",
        "epsilon": "probability of a random action",
        "alpha": "step size",
    }

    def learn(self, step: Step) -> Metrics:
        alpha = self.alpha
        error = q_learning_update(
            self.q, step.obs, step.action, step.reward, step.next_obs, step.terminated, alpha, self.config.gamma
        )
        return {"td_error": abs(float(error)), "epsilon": self.epsilon, "alpha": alpha}
