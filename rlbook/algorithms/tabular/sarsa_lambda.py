"""SARSA(λ): each TD error also updates the pairs before it, the earlier ones the less.

    Q ← 0
    for each episode
        e ← 0, choose a
        for each step
            take a, see r and s', choose a'
            δ ← r + γ Q(s', a') - Q(s, a)
            e(s, a) ← e(s, a) + α                    or one of the other traces, see `traces`
            Q(x, b) ← Q(x, b) + δ e(x, b)            for all x, b
            e(x, b) ← γ λ e(x, b)                    for all x, b
            s ← s', a ← a'

Q(s', a') counts as 0 where the episode terminated. λ = 0 is SARSA; λ = 1 learns from whole
returns, as Monte Carlo does. The true online form adds what makes it equal, at every step, to
learning from the λ-returns cut off at the present step: with D = Q(s, a) - (Q(s', a') of the
step before), Q grows by (δ + D) e, and Q(s, a) by α D less.

Source: Rummery 1995; Sutton & Barto 2018, section 12.7, the boxes on pages 305 and 307; van
Seijen et al. 2016, arXiv:1512.04087. Deliberate differences: the step size is within the trace
(see `traces`), and a time limit is no termination.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.agent import State
from rlbook.algorithms.tabular.exploration import explore, step_size
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings
from rlbook.algorithms.tabular.sarsa import NONE, SarsaMemory, take_pending
from rlbook.algorithms.tabular.tabular_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.traces import (
    NAMES,
    TRUE_ONLINE,
    Traces,
    TraceSettings,
    check_traces,
    fade,
    forget,
    no_traces,
    visit,
    with_room,
    without_spare_room,
)
from rlbook.checks import check_fields, one_of, unit_interval


class TracedControlSettings(TraceSettings, ControlSettings):
    """With what the traces do."""


class TracedControlMemory(Traces, ControlMemory):
    """With the traces of a table Q."""


class SarsaLambdaMemory(TracedControlMemory, SarsaMemory):
    """With the traces, and what the next action was worth."""

    before: NDArray[np.float64]              # [1]: Q(s', a') when a' was chosen, in reward units


def sarsa_lambda_update(
    memory: SarsaLambdaMemory, settings: TracedControlSettings, rng: Generator, state: int,
    action: int, reward: float, next_state: int, terminated: bool, truncated: bool,
) -> float:  # fmt: skip
    """One step, in place on Q. Returns |δ| in reward units."""
    value, next_value, drift, over = memory.q[state][action], 0.0, 0.0, terminated or truncated
    if settings.traces == TRUE_ONLINE and memory.pending[0] != NONE:
        drift = value - memory.before[0]
    memory.pending[0] = NONE
    if not terminated:
        next_action = explore(memory, settings, rng, next_state)
        next_value = memory.q[next_state][next_action]
        if not truncated:
            memory.pending[0] = next_action
    error = reward + settings.gamma * next_value - value
    alpha = step_size(memory, settings, state, action)
    trace = visit(memory, settings.traces, state, action, alpha)
    spread(memory, error + drift)
    if drift != 0.0:
        memory.q[state][action] = value + error * trace + drift * (trace - alpha)
    memory.before[0] = next_value
    if over:
        forget(memory)
    else:
        fade(memory, settings.decay)
    return abs(error)


def spread(memory: TracedControlMemory, error: float) -> None:
    """Moves every entry by its trace's share of the error, in reward units."""
    for place in range(memory.active[0]):
        state, action = memory.traced_states[place], memory.traced_actions[place]
        memory.q[state][action] += error * memory.traces[place]


@dataclass(frozen=True)
class SarsaLambdaConfig(ControlConfig):
    """Hyper-parameters of SARSA(λ)."""

    trace_decay: float = 0.9                 # λ: how far back an error reaches, in [0, 1]
    traces: str = "true-online"              # accumulating, replacing or true-online

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, trace_decay=unit_interval, traces=one_of(*NAMES[:3]))


class SarsaLambda(ControlAgent):
    """SARSA(λ) on a table. Acts in one environment; learns at every step."""

    memory: SarsaLambdaMemory
    settings: TracedControlSettings
    Config = SarsaLambdaConfig
    choose = staticmethod(take_pending)
    update = staticmethod(sarsa_lambda_update)

    def make_settings(self) -> TracedControlSettings:
        decay, kind = self.config.gamma * self.config.trace_decay, NAMES.index(self.config.traces)
        return TracedControlSettings(*super().make_settings(), decay=float(decay), traces=kind)

    def make_memory(self) -> SarsaLambdaMemory:
        return SarsaLambdaMemory(
            *super().make_memory(), pending=np.full(1, NONE), before=np.zeros(1),
            **no_traces(self.num_states, self.num_actions),
        )  # fmt: skip

    def make_room(self, steps: int) -> None:
        self.memory = with_room(self.memory, steps)

    def begin(self) -> None:
        self.memory.pending[0] = NONE
        forget(self.memory)

    def check_saved(self, tables: dict[str, np.ndarray]) -> None:
        super().check_saved(tables)
        check_traces(tables)

    def state_dict(self) -> State:
        return without_spare_room(super().state_dict())
