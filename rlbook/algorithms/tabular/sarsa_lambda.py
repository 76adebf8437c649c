"""SARSA(λ): each TD error also updates the pairs visited before it, the earlier ones less.

    Q ← 0
    for each episode
        e ← 0, choose a
        for each step
            take a, see r and s', choose a'
            δ ← r + γ Q(s', a') - Q(s, a)
            e(s, a) ← e(s, a) + α                    accumulating; replacing: e(s, a) ← α
            Q(x, b) ← Q(x, b) + δ e(x, b)            for all x, b
            e(x, b) ← γ λ e(x, b)                    for all x, b
            s ← s', a ← a'

Q(s', a') counts as 0 where the episode terminated. λ = 0 is SARSA; λ = 1 learns from whole
returns, as Monte Carlo does. The hyper-parameter `traces` also selects a variant with a page of its
own, `true_online_sarsa_lambda`, which equals the online λ-return algorithm at every step.

Source: Rummery 1995; Sutton & Barto 2018, section 12.7, the box on page 305. Deliberate
differences: the step size is inside the trace (see `traces`), and a time limit is not a
termination.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.random import Generator

from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.exploration import explore, step_size
from rlbook.algorithms.tabular.sarsa import NONE, take_pending
from rlbook.algorithms.tabular.tabular_agent import Choose, Update
from rlbook.algorithms.tabular.traces import (
    NAMES,
    TracedAgent,
    TracedControlSettings,
    decay_traces,
    empty_traces,
    reset_traces,
    spread_error,
    visit,
)
from rlbook.algorithms.tabular.true_online_sarsa_lambda import (
    TrueOnlineSarsaMemory,
    true_online_sarsa_lambda_update,
)
from rlbook.checks import one_of, unit_interval


def sarsa_lambda_update(
    memory: TrueOnlineSarsaMemory,
    settings: TracedControlSettings,
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
    visit(memory, settings.traces, state, action, step_size(memory, settings, state, action))
    spread_error(memory, error)
    if terminated or truncated:
        reset_traces(memory)
    else:
        decay_traces(memory, settings.decay)
    return abs(error)


UPDATES: dict[str, Update] = {
    "accumulating": sarsa_lambda_update,
    "replacing": sarsa_lambda_update,
    "true-online": true_online_sarsa_lambda_update,
}


@dataclass(frozen=True)
class SarsaLambdaConfig(ControlConfig):
    """Hyper-parameters of SARSA(λ)."""

    # λ of the eligibility traces, in [0, 1]
    trace_decay: Annotated[float, unit_interval] = 0.9
    # kind of traces: accumulating, replacing or true-online
    traces: Annotated[str, one_of(*UPDATES)] = "true-online"


class SarsaLambda(TracedAgent, ControlAgent):
    """SARSA(λ) on a table. Acts in one environment; learns at every step."""

    memory: TrueOnlineSarsaMemory
    settings: TracedControlSettings
    Config = SarsaLambdaConfig
    on_policy = True
    choose = staticmethod(take_pending)
    update = staticmethod(sarsa_lambda_update)

    def functions(self) -> tuple[Choose, Update]:
        return super().functions()[0], UPDATES[self.config.traces]

    def make_settings(self) -> TracedControlSettings:
        decay, kind = self.config.gamma * self.config.trace_decay, NAMES.index(self.config.traces)
        return TracedControlSettings(*super().make_settings(), decay=float(decay), traces=kind)

    def make_memory(self) -> TrueOnlineSarsaMemory:
        return TrueOnlineSarsaMemory(
            *super().make_memory(),
            pending=np.full(1, NONE),
            before=np.zeros(1),
            **empty_traces(self.num_states, self.num_actions),
        )

    def begin(self) -> None:
        super().begin()
        self.memory.pending[0] = NONE
