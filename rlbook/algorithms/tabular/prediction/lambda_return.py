"""The offline λ-return algorithm: after an episode, move each V(s) towards its λ-return.

    V ← initial value, π ← the given policy
    for each episode
        play it with π: s_0, r_1, s_1, ..., r_T, s_T
        G ← V(s_T)
        for t = T - 1, ..., 0                                V as it was during the episode
            G_t ← r_{t+1} + γ [ (1 - λ) V(s_{t+1}) + λ G ]
            G ← G_t
        for t = 0, ..., T - 1
            V(s_t) ← V(s_t) + α [ G_t - V(s_t) ]

V(s_T) counts as 0 where the episode terminated. The λ-return is an average of all n-step returns,
with weights that fall by a factor of λ from one n to the next:

    G_t = (1 - λ) Σ_{n < T-t} λ^{n-1} G_{t:t+n} + λ^{T-t-1} G_{t:T}

λ = 1 is Monte Carlo. This is the forward view of TD(λ): it waits for the end of the episode;
eligibility traces make nearly the same update without waiting.

Source: Sutton & Barto 2018, section 12.1, eq. 12.2 to 12.4. Deliberate difference: a time limit is
not a termination, so G then begins with V of the state in which the episode was truncated.
"""

from __future__ import annotations

from numpy.random import Generator

from rlbook.algorithms.tabular.prediction.prediction_agent import PredictionMemory, state_step_size
from rlbook.algorithms.tabular.records import Settings
from rlbook.algorithms.tabular.windows import Window


def lambda_return_update(
    memory: LambdaReturnMemory,
    settings: LambdaReturnSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float | None:
    """Records the step; at the end of an episode, makes all updates in place on V.

    Returns their mean |G - V| in reward units, or None before that.
    """
    memory.states[memory.time[0]], memory.rewards[memory.time[0]] = state, reward
    memory.time[0] += 1
    if not (terminated or truncated):
        return None
    length, total = memory.time[0], 0.0
    rewards_to_lambda_returns(memory, settings, 0.0 if terminated else memory.v[next_state])
    for time in range(length):
        state = memory.states[time]
        error = memory.rewards[time] - memory.v[state]
        memory.v[state] += state_step_size(memory, settings, state) * error
        total += abs(error)
    memory.time[0] = 0
    return total / length


def rewards_to_lambda_returns(
    memory: LambdaReturnMemory, settings: LambdaReturnSettings, last_value: float
) -> None:
    """Replaces each r_{t+1} by G_t, from the last step to the first.

    `last_value` is V(s_T), in reward units; 0 if terminated.
    """
    total = next_value = last_value
    for time in range(memory.time[0] - 1, -1, -1):
        after = (1.0 - settings.trace_decay) * next_value + settings.trace_decay * total
        total = memory.rewards[time] + settings.gamma * after
        next_value = memory.v[memory.states[time]]
        memory.rewards[time] = total


class LambdaReturnSettings(Settings):
    """The settings, including λ."""

    trace_decay: float  # λ


class LambdaReturnMemory(Window, PredictionMemory):
    """The tables, including the episode in progress (see `windows`)."""
