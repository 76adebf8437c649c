"""SARSA: learn the values of the policy that the agent follows, exploration included.

    Q ← initial value
    a ← an action for the first state, by Q and the exploration
    for each step
        take a, see r and s'
        a' ← an action for s', by Q and the exploration          a' will be taken next
        Q(s, a) ← Q(s, a) + α [ r + γ Q(s', a') - Q(s, a) ]
        s, a ← s', a'

Q(s', a') counts as 0 where the episode terminated. The name lists what an update needs: s, a, r,
s', a'. The action a' is the one that is taken next, which makes the algorithm on-policy: beside a
cliff, where a random step may be fatal, it learns to keep away from the edge. As exploration
decreases to 0, Q converges to Q*. At a time limit a' is sampled for the target, but the episode
ends before it is taken.

Source: Rummery & Niranjan 1994 (CUED/F-INFENG/TR 166); Sutton & Barto 2018, section 6.4, the
box on page 130. No deliberate difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.exploration import explore, step_size
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings


def sarsa_update(
    memory: SarsaMemory,
    settings: ControlSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float:
    """One step, in place on Q; also picks the next action. Returns |δ| in reward units."""
    bootstrap, memory.pending[0] = 0.0, NONE
    if not terminated:
        next_action = explore(memory, settings, rng, next_state)
        bootstrap = settings.gamma * memory.q[next_state][next_action]
        if not truncated:
            memory.pending[0] = next_action
    error = reward + bootstrap - memory.q[state][action]
    memory.q[state][action] += step_size(memory, settings, state, action) * error
    return abs(error)


def take_pending(memory: SarsaMemory, settings: ControlSettings, rng: Generator, state: int) -> int:
    """The action chosen by the last update; in the first state of an episode a new one."""
    action = memory.pending[0]
    return action if action != NONE else explore(memory, settings, rng, state)


NONE = -1
"""No action is pending: the next state is the first of an episode."""


class SarsaMemory(ControlMemory):
    """The tables, including the next action, which the last update chose."""

    pending: NDArray[np.int64]  # [1]: the action to take now, or NONE


@dataclass(frozen=True)
class SarsaConfig(ControlConfig):
    """Hyper-parameters of SARSA."""


class Sarsa(ControlAgent):
    """SARSA on a table. Acts in one environment; learns at every step."""

    memory: SarsaMemory
    Config = SarsaConfig
    on_policy = True
    choose = staticmethod(take_pending)
    update = staticmethod(sarsa_update)

    def make_memory(self) -> SarsaMemory:
        return SarsaMemory(*super().make_memory(), pending=np.full(1, NONE))

    def begin(self) -> None:
        self.memory.pending[0] = NONE
