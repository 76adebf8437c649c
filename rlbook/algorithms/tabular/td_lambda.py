"""TD(λ): each TD error also updates the states before it, the earlier ones the less.

    V ← initial value, π ← the given policy
    for each episode
        e ← 0
        for each step
            take an action of π(·|s), see r and s'
            δ ← r + γ V(s') - V(s)
            e(s) ← e(s) + α                   or one of the other traces, see `traces`
            V(x) ← V(x) + δ e(x)              for all x
            e(x) ← γ λ e(x)                   for all x

V(s') counts as 0 where the episode terminated. λ = 0 is TD(0); λ = 1 learns from whole returns,
as Monte Carlo does. The traces approximate an update towards the λ-return, an average of all
n-step returns. The offline algorithm waits for the episode's end and makes that update itself:

    G_t = r_{t+1} + γ [ (1 - λ) V(s_{t+1}) + λ G_{t+1} ]      V as it was in the episode
    V(s_t) ← V(s_t) + α [ G_t - V(s_t) ]      for t = 0, ..., T - 1, when the episode is over

The true online form is equal, at every step, to learning from the λ-returns cut off at the
present step. It adds to the above, with D = V(s) - (V(s') of the step before), that V grows by
(δ + D) e, and V(s) by α D less.

Source: Sutton 1988; Sutton & Barto 2018, eq. 12.2 and 12.4, the boxes on pages 293 and 300; van
Seijen et al. 2016, arXiv:1512.04087. Deliberate differences: the step size is within the trace
(see `traces`), and a time limit is no termination.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from rlbook.agent import State
from rlbook.algorithms.tabular import traces, windows
from rlbook.algorithms.tabular.prediction import (
    PredictionAgent,
    PredictionConfig,
    PredictionMemory,
    PredictionSettings,
    state_step_size,
)
from rlbook.algorithms.tabular.tabular_agent import NO_DELTA
from rlbook.algorithms.tabular.traces import (
    FIELDS,
    NAMES,
    OFFLINE,
    TRUE_ONLINE,
    fade,
    forget,
    no_traces,
    visit,
)
from rlbook.checks import ENDLESS, check_fields, one_of, unit_interval

ROWS = ("states", "rewards")
"""The fields of the memory that hold the episode, for the offline algorithm."""
TDLambdaSettings = namedtuple(
    "TDLambdaSettings", [*PredictionSettings._fields, "trace_decay", "decay", "traces"]
)
"""As `PredictionSettings`; λ, γλ, and which kind of trace."""
TDLambdaMemory = namedtuple(
    "TDLambdaMemory", [*PredictionMemory._fields, "before", *FIELDS, "time", *ROWS]
)
"""As `PredictionMemory`; V(s') of the step before [1], in reward units; the traces; and the
episode (see `windows`).
"""


def td_lambda_update(
    memory: Any, settings: Any, rng: Generator, state: int, action: int, reward: float,
    next_state: int, terminated: bool, truncated: bool,
) -> float:  # fmt: skip
    """One step, in place on V; the offline algorithm learns when the episode ends.

    Returns |δ| in reward units, or the mean over the episode.
    """
    next_value = 0.0 if terminated else memory.v[next_state]
    if settings.traces == OFFLINE:
        return _wait_for_the_end(
            memory, settings, state, reward, next_value, terminated or truncated
        )
    value = memory.v[state]
    drift = (
        value - memory.before[0] if settings.traces == TRUE_ONLINE and memory.time[0] > 0 else 0.0
    )
    error = reward + settings.gamma * next_value - value
    alpha = state_step_size(memory, settings, state)
    trace = visit(memory, settings.traces, state, 0, alpha)
    for place in range(memory.active[0]):
        memory.v[memory.traced_states[place]] += (error + drift) * memory.traces[place]
    if drift != 0.0:
        memory.v[state] = value + error * trace + drift * (trace - alpha)
    memory.before[0] = next_value
    if terminated or truncated:
        forget(memory)
        memory.time[0] = 0
    else:
        fade(memory, settings.decay)
        memory.time[0] += 1
    return abs(error)


def _wait_for_the_end(
    memory: Any, settings: Any, state: int, reward: float, next_value: float, over: bool
) -> float:
    """Records the step; where the episode is over, learns from all of its λ-returns.

    Returns the mean |δ|, or NO_DELTA.
    """
    memory.states[memory.time[0]], memory.rewards[memory.time[0]] = state, reward
    memory.time[0] += 1
    if not over:
        return NO_DELTA
    length, total = memory.time[0], 0.0
    rewards_to_lambda_returns(memory, settings, next_value)
    for time in range(length):
        state = memory.states[time]
        error = memory.rewards[time] - memory.v[state]
        memory.v[state] += state_step_size(memory, settings, state) * error
        total += abs(error)
    memory.time[0] = 0
    return total / length


def rewards_to_lambda_returns(memory: Any, settings: Any, last_value: float) -> None:
    """Replaces each r_{t+1} by G_t, from the last step to the first.

    `last_value` is V(s_T), in reward units; 0 if terminated.
    """
    total = next_value = last_value
    for time in range(memory.time[0] - 1, -1, -1):
        after = (1.0 - settings.trace_decay) * next_value + settings.trace_decay * total
        total = memory.rewards[time] + settings.gamma * after
        next_value = memory.v[memory.states[time]]
        memory.rewards[time] = total


@dataclass(frozen=True)
class TDLambdaConfig(PredictionConfig):
    """Hyper-parameters of TD(λ)."""

    trace_decay: float = 0.8                 # λ: how far back an error reaches, in [0, 1]
    traces: str = "true-online"              # accumulating, replacing, true-online or offline

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, trace_decay=unit_interval, traces=one_of(*NAMES))


class TDLambda(PredictionAgent):
    """TD(λ) on a table V. Acts in one environment; learns at every step or at an episode's end."""

    Config = TDLambdaConfig
    METRICS: ClassVar[dict[str, str]] = PredictionAgent.METRICS | {
        "td_error": "mean of |δ|, of the offline algorithm of |G - V(s)| over an episode's steps, "
        "in reward units",
    }
    update = staticmethod(td_lambda_update)

    def make_settings(self) -> Any:
        trace_decay = float(self.config.trace_decay)
        decay, kind = self.config.gamma * trace_decay, NAMES.index(self.config.traces)
        return TDLambdaSettings(*self.shared_settings(), trace_decay, decay, kind)

    def make_memory(self) -> Any:
        listed, episode = no_traces(self.num_states, 1), windows.empty_rows(int, float)
        return TDLambdaMemory(*self.shared_memory(), np.zeros(1), *listed, *episode)

    def make_room(self, steps: int) -> None:
        if self.config.traces == "offline":
            self.memory = windows.with_room(self.memory, ROWS, ENDLESS, steps)
        else:
            self.memory = traces.with_room(self.memory, steps)

    def begin(self) -> None:
        self.memory.time[0] = 0
        forget(self.memory)

    def check_saved(self, tables: dict[str, np.ndarray]) -> None:
        super().check_saved(tables)
        traces.check_traces(tables)
        windows.check_rows(tables, ROWS, ENDLESS if self.config.traces == "offline" else 0)

    def state_dict(self) -> State:
        return windows.without_spare_room(traces.without_spare_room(super().state_dict()), ROWS)
