"""TD(λ): each TD error also updates the states visited before it, the earlier ones less.

    V ← initial value, π ← the given policy
    for each episode
        e ← 0
        for each step
            take an action of π(·|s), see r and s'
            δ ← r + γ V(s') - V(s)
            e(s) ← e(s) + α                   accumulating; replacing: e(s) ← α
            V(x) ← V(x) + δ e(x)              for all x
            e(x) ← γ λ e(x)                   for all x

V(s') counts as 0 where the episode terminated. λ = 0 is TD(0); λ = 1 learns from whole returns,
as Monte Carlo does. The traces approximate an update towards the λ-return, an average of all
n-step returns. The hyper-parameter `traces` also selects two variants with pages of their
own: `lambda_return`, which makes that update itself at the end of the episode, and
`true_online_td_lambda`, whose traces equal the online λ-return algorithm at every step.

Source: Sutton 1988; Sutton & Barto 2018, the box on page 293, and p. 301 for replacing traces.
Deliberate differences: the step size is inside the trace (see `traces`), and a time limit is not a
termination.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from rlbook.algorithms.tabular.prediction.lambda_return import (
    LambdaReturnMemory,
    LambdaReturnSettings,
    lambda_return_update,
)
from rlbook.algorithms.tabular.prediction.prediction_agent import (
    PredictionAgent,
    PredictionConfig,
    state_step_size,
)
from rlbook.algorithms.tabular.prediction.true_online_td_lambda import (
    TracedMemory,
    TracedSettings,
    TrueOnlineMemory,
    true_online_td_lambda_update,
)
from rlbook.algorithms.tabular.records import StepTables
from rlbook.algorithms.tabular.tabular_agent import Choose, Update
from rlbook.algorithms.tabular.traces import (
    LISTED,
    NAMES,
    TracedAgent,
    decay_traces,
    empty_traces,
    reset_traces,
    visit,
)
from rlbook.algorithms.tabular.windows import empty_window
from rlbook.checks import ENDLESS, one_of, unit_interval


def td_lambda_update(
    memory: TracedMemory,
    settings: TracedSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float:
    """One step, in place on V. Returns |δ| in reward units."""
    bootstrap = 0.0 if terminated else settings.gamma * memory.v[next_state]
    error = reward + bootstrap - memory.v[state]
    visit(memory, settings.traces, state, 0, state_step_size(memory, settings, state))
    for place in range(memory.active[0]):
        memory.v[memory.traced_states[place]] += error * memory.traces[place]
    if terminated or truncated:
        reset_traces(memory)
    else:
        decay_traces(memory, settings.decay)
    return abs(error)


UPDATES: dict[str, Update] = {
    "accumulating": td_lambda_update,
    "replacing": td_lambda_update,
    "true-online": true_online_td_lambda_update,
    "offline": lambda_return_update,
}
ROWS = ("states", "rewards")
"""The fields of the memory that hold the episode, for the offline algorithm."""


class TDLambdaSettings(LambdaReturnSettings, TracedSettings):
    """The settings of all update rules."""


class TDLambdaMemory(LambdaReturnMemory, TrueOnlineMemory):
    """The tables of all update rules; those that the chosen rule does not use stay empty."""


@dataclass(frozen=True)
class TDLambdaConfig(PredictionConfig):
    """Hyper-parameters of TD(λ)."""

    # λ of the eligibility traces, in [0, 1]
    trace_decay: Annotated[float, unit_interval] = 0.8
    # kind of traces: accumulating, replacing, true-online or offline
    traces: Annotated[str, one_of(*NAMES)] = "true-online"


class TDLambda(TracedAgent, PredictionAgent):
    """TD(λ) on a table V. Acts in one environment; learns at every step or at an episode's end."""

    memory: TDLambdaMemory
    settings: TDLambdaSettings
    Config = TDLambdaConfig
    METRICS: ClassVar[dict[str, str]] = PredictionAgent.METRICS | {
        "td_error": "mean of |δ|, or for the offline algorithm of |G - V(s)| over an episode's "
        "steps, in reward units",
    }
    update = staticmethod(td_lambda_update)

    def functions(self) -> tuple[Choose, Update]:
        return super().functions()[0], UPDATES[self.config.traces]

    def make_settings(self) -> TDLambdaSettings:
        trace_decay, kind = float(self.config.trace_decay), NAMES.index(self.config.traces)
        return TDLambdaSettings(
            *super().make_settings(),
            decay=self.config.gamma * trace_decay,
            traces=kind,
            trace_decay=trace_decay,
        )

    def make_memory(self) -> TDLambdaMemory:
        return TDLambdaMemory(
            *super().make_memory(),
            **empty_traces(self.num_states, 1),
            before=np.zeros(1),
            **empty_window(),
        )

    def step_tables(self) -> tuple[StepTables, ...]:
        offline = self.config.traces == "offline"
        listed = StepTables(LISTED, "active", 0 if offline else self.num_states)
        return listed, StepTables(ROWS, "time", ENDLESS if offline else 0)

    def begin(self) -> None:
        super().begin()
        self.memory.time[0] = 0
