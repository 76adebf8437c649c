"""Watkins's Q(λ): Q-learning with traces that are cut when the agent takes a non-greedy action.

    Q ← 0
    for each episode
        e ← 0
        for each step
            a ← a random action with probability ε, otherwise argmax_a Q(s, a)
            if Q(s, a) < max_b Q(s, b):  e ← 0       a is not greedy
            take a, see r and s'
            δ ← r + γ max_b Q(s', b) - Q(s, a)
            e(s, a) ← e(s, a) + α                    or α: see `traces`
            Q(x, b) ← Q(x, b) + δ e(x, b)            for all x, b
            e(x, b) ← γ λ e(x, b)                    for all x, b

The max counts as 0 where the episode terminated. λ = 0 is Q-learning. An error may be propagated
back only while the actions in between are greedy, that is, those of the policy being learned; so
with much exploration the traces are short. An action that ties for the maximum is greedy.

Source: Watkins 1989; Sutton & Barto 2018, section 12.10; the box is in the first edition
(1998), section 7.6. Deliberate differences: the step size is inside the trace (see `traces`),
and whether a is greedy is decided by the table it was chosen from, after the last step was learned;
the box chooses a' before that, with which λ = 0 would not be exactly Q-learning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from numpy.random import Generator

from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.exploration import row_max, step_size
from rlbook.algorithms.tabular.traces import (
    NAMES,
    TracedAgent,
    TracedControlMemory,
    TracedControlSettings,
    decay_traces,
    empty_traces,
    reset_traces,
    spread_error,
    visit,
)
from rlbook.checks import one_of, unit_interval


def watkins_q_lambda_update(
    memory: TracedControlMemory,
    settings: TracedControlSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float:
    """One step, in place on Q. Returns |δ| in reward units."""
    if memory.q[state][action] < row_max(memory.q[state]):
        reset_traces(memory)
    bootstrap = 0.0 if terminated else settings.gamma * row_max(memory.q[next_state])
    error = reward + bootstrap - memory.q[state][action]
    visit(memory, settings.traces, state, action, step_size(memory, settings, state, action))
    spread_error(memory, error)
    if terminated or truncated:
        reset_traces(memory)
    else:
        decay_traces(memory, settings.decay)
    return abs(error)


@dataclass(frozen=True)
class WatkinsQLambdaConfig(ControlConfig):
    """Hyper-parameters of Watkins's Q(λ)."""

    # λ of the eligibility traces, in [0, 1]
    trace_decay: Annotated[float, unit_interval] = 0.9
    # kind of traces: accumulating or replacing
    traces: Annotated[str, one_of(*NAMES[:2])] = "replacing"


class WatkinsQLambda(TracedAgent, ControlAgent):
    """Watkins's Q(λ) on a table. Acts in one environment; learns at every step."""

    memory: TracedControlMemory
    settings: TracedControlSettings
    Config = WatkinsQLambdaConfig
    update = staticmethod(watkins_q_lambda_update)

    def make_settings(self) -> TracedControlSettings:
        decay, kind = self.config.gamma * self.config.trace_decay, NAMES.index(self.config.traces)
        return TracedControlSettings(*super().make_settings(), decay=float(decay), traces=kind)

    def make_memory(self) -> TracedControlMemory:
        traces = empty_traces(self.num_states, self.num_actions)
        return TracedControlMemory(*super().make_memory(), **traces)
