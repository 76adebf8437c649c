"""True online TD(λ): traces that equal, at every step, the online λ-return algorithm.

    V ← initial value, π ← the given policy
    for each episode
        e ← 0, v_old ← 0
        for each step
            take an action of π(·|s), see r and s'
            δ ← r + γ V(s') - V(s)
            D ← V(s) - v_old                  how much V(s) has changed since the step before
            e(s) ← e(s) + α (1 - e(s))        the Dutch trace, see `traces`
            V(x) ← V(x) + (δ + D) e(x)        for all x
            V(s) ← V(s) - α D
            v_old ← V(s') of the δ
            e(x) ← γ λ e(x)                   for all x

V(s') counts as 0 where the episode terminated. The online λ-return algorithm learns the whole
episode again at each step, towards the λ-returns truncated at the current step, so each step takes
longer than the one before. This one gives the same table, at the cost per step of other traces.

Source: van Seijen et al. 2016, arXiv:1512.04087; Sutton & Barto 2018, sections 12.4 and 12.5, the
box on page 300. Deliberate differences: the step size is inside the trace (see `traces`), and a
time limit is not a termination.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.algorithms.tabular.prediction.prediction_agent import PredictionMemory, state_step_size
from rlbook.algorithms.tabular.records import Settings
from rlbook.algorithms.tabular.traces import (
    Traces,
    TraceSettings,
    decay_traces,
    reset_traces,
    visit,
)


def true_online_td_lambda_update(
    memory: TrueOnlineMemory,
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
    value, next_value = memory.v[state], 0.0 if terminated else memory.v[next_state]
    error = reward + settings.gamma * next_value - value
    drift = value - memory.before[0] if memory.active[0] > 0 else 0.0  # without traces no D
    alpha = state_step_size(memory, settings, state)
    trace = visit(memory, settings.traces, state, 0, alpha)
    for place in range(memory.active[0]):
        memory.v[memory.traced_states[place]] += (error + drift) * memory.traces[place]
    if drift != 0.0:
        memory.v[state] = value + error * trace + drift * (trace - alpha)
    memory.before[0] = next_value
    if terminated or truncated:
        reset_traces(memory)
    else:
        decay_traces(memory, settings.decay)
    return abs(error)


class TracedSettings(TraceSettings, Settings):
    """The settings, including those of the traces."""


class TracedMemory(Traces, PredictionMemory):
    """The tables, including the traces of V."""


class TrueOnlineMemory(TracedMemory):
    """The tables, including the value of the previous step."""

    before: NDArray[np.float64]  # [1]: v_old, in reward units
