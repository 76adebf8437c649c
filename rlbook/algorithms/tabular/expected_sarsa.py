"""Expected SARSA: SARSA with the expected value over all next actions instead of the value of the
action taken.

    Q ← initial value
    for each step
        a ← an action for s, by Q and the exploration: a with probability π(a|s)
        take a, see r and s'
        Q(s, a) ← Q(s, a) + α [ r + γ Σ_a' π(a'|s') Q(s', a') - Q(s, a) ]

The sum counts as 0 where the episode terminated. π is the agent's current policy, ε-greedy or
softmax, so that the agent is on-policy; with another policy's probabilities in the sum the same
update would learn that policy's values, off-policy. An update is the expectation of SARSA's update,
without the noise of sampling a', which allows large step sizes; on deterministic problems even
α = 1. With ε = 0 the sum is the maximum, and this is Q-learning.

Source: van Seijen et al. 2009, doi:10.1109/ADPRL.2009.4927542; Sutton & Barto 2018, eq. 6.9. No
deliberate difference.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.exploration import KINDS, UCB, expected_value, step_size
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings


def expected_sarsa_update(
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
    """One step, in place on Q. Returns |δ| in reward units."""
    bootstrap = 0.0 if terminated else settings.gamma * expected_value(memory, settings, next_state)
    error = reward + bootstrap - memory.q[state][action]
    memory.q[state][action] += step_size(memory, settings, state, action) * error
    return abs(error)


@dataclass(frozen=True)
class ExpectedSarsaConfig(ControlConfig):
    """Hyper-parameters of expected SARSA."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exploration == KINDS[UCB]:
            raise ValueError(
                "exploration must be epsilon-greedy or softmax for expected SARSA: 'ucb' has no "
                "probabilities to average over"
            )


class ExpectedSarsa(ControlAgent):
    """Expected SARSA on a table. Acts in one environment; learns at every step."""

    Config = ExpectedSarsaConfig
    on_policy = True
    update = staticmethod(expected_sarsa_update)
