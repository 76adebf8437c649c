"""True online SARSA(λ): traces that equal, at every step, the online λ-return algorithm.

    Q ← 0
    for each episode
        e ← 0, q_old ← 0, choose a
        for each step
            take a, see r and s', choose a'
            δ ← r + γ Q(s', a') - Q(s, a)
            D ← Q(s, a) - q_old                      how much it has changed since the step before
            e(s, a) ← e(s, a) + α (1 - e(s, a))      the Dutch trace, see `traces`
            Q(x, b) ← Q(x, b) + (δ + D) e(x, b)      for all x, b
            Q(s, a) ← Q(s, a) - α D
            q_old ← Q(s', a') of the δ
            e(x, b) ← γ λ e(x, b)                    for all x, b
            s ← s', a ← a'

Q(s', a') counts as 0 where the episode terminated, and D is 0 in an episode's first step. Like
`true_online_td_lambda` for V, this update gives the same table as learning the whole episode again
at each step, towards the λ-returns truncated there.

Source: van Seijen et al. 2016, arXiv:1512.04087; Sutton & Barto 2018, section 12.7, the box on
page 307. Deliberate differences: the step size is inside the trace (see `traces`), and a time
limit is not a termination.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.algorithms.tabular.exploration import explore, step_size
from rlbook.algorithms.tabular.sarsa import NONE, SarsaMemory
from rlbook.algorithms.tabular.traces import (
    TracedControlMemory,
    TracedControlSettings,
    decay_traces,
    reset_traces,
    spread_error,
    visit,
)


def true_online_sarsa_lambda_update(
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
    value, next_value = memory.q[state][action], 0.0
    drift = value - memory.before[0] if memory.pending[0] != NONE else 0.0
    memory.pending[0] = NONE
    if not terminated:
        next_action = explore(memory, settings, rng, next_state)
        next_value = memory.q[next_state][next_action]
        if not truncated:
            memory.pending[0] = next_action
    error = reward + settings.gamma * next_value - value
    alpha = step_size(memory, settings, state, action)
    trace = visit(memory, settings.traces, state, action, alpha)
    spread_error(memory, error + drift)
    if drift != 0.0:
        memory.q[state][action] = value + error * trace + drift * (trace - alpha)
    memory.before[0] = next_value
    if terminated or truncated:
        reset_traces(memory)
    else:
        decay_traces(memory, settings.decay)
    return abs(error)


class TrueOnlineSarsaMemory(TracedControlMemory, SarsaMemory):
    """The tables, including the traces and the value of the next action."""

    before: NDArray[np.float64]  # [1]: q_old, in reward units
