"""Off-policy Monte Carlo prediction: V is an importance-weighted mean of another policy's returns.

    for each episode of the behaviour policy b
        ρ_{t:T-1} ← Π_{k=t}^{T-1} π(A_k|S_k) / b(A_k|S_k), from the last step to the first
        for each step t that counts:  V(S_t) ← an average of ρ G_t over the visits of S_t

See `off_policy_mc` for the averages, the source and the agent.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.algorithms.tabular.episode import EpisodeArrays, record, to_returns
from rlbook.algorithms.tabular.exploration import num_allowed, random_action
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings
from rlbook.envs.tabular.outcomes import draw
from rlbook.functional.schedules import scheduled_value


def prediction_update(
    memory: OffPolicyMemory,
    settings: OffPolicySettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float | None:
    """Records the step; at the end of an episode, makes all updates in place on V.

    Returns their mean |change of V| in reward units, or None before that.
    """
    target, epsilon = (
        memory.target[state][action],
        scheduled_value(settings.epsilon, memory.clock[0], 1),
    )
    time = record(memory, state, action, reward)
    chance = epsilon / num_allowed(memory.q[state]) + (1.0 - epsilon) * target
    memory.ratios[time - 1] = target / chance
    if memory.first[state] == 0:
        memory.first[state] = time
    if not (terminated or truncated):
        return None
    length = to_returns(memory, 0.0 if terminated else memory.v[next_state], settings.gamma)
    to_weights(memory, length)
    change, updates = 0.0, 0
    for time in range(length):
        state = memory.states[time]
        if memory.first[state] == time + 1:
            memory.first[state] = 0
        elif not settings.every_visit:
            continue
        change += abs(
            average_in(memory, settings, state, memory.ratios[time], memory.rewards[time])
        )
        updates += 1
    return change / updates


def to_weights(memory: OffPolicyMemory, length: int) -> None:
    """Replaces the ratios of single steps by the importance weights of the rest of the episode,
    ρ_{t:T-1}."""
    weight = 1.0
    for time in range(length - 1, -1, -1):
        weight = min(weight * memory.ratios[time], LARGEST)
        memory.ratios[time] = weight


def average_in(
    memory: OffPolicyMemory, settings: OffPolicySettings, state: int, weight: float, outcome: float
) -> float:
    """Averages a weighted return into V, in place. Returns the change of V, in reward units."""
    if settings.weighting == TRUNCATED:
        weight = min(weight, settings.clip)
    count(memory, weight)
    if settings.weighting == WEIGHTED:
        memory.total[state][0] += weight
        change = 0.0
        if weight > 0.0:
            change = weight / memory.total[state][0] * (outcome - memory.v[state])
    else:
        memory.total[state][0] += 1.0
        alpha = scheduled_value(settings.alpha, memory.clock[0], memory.total[state][0])
        change = alpha * (weight * outcome - memory.v[state])
    memory.v[state] += change
    return change


def count(memory: OffPolicyMemory, weight: float) -> None:
    """Adds a weight to the sums behind the logged statistics."""
    memory.weights[0] += 1.0
    memory.weights[1] += weight
    memory.weights[2] += weight * weight


def behaviour_action(
    memory: OffPolicyMemory, settings: OffPolicySettings, rng: Generator, state: int
) -> int:
    """The behaviour policy for prediction: a random action with probability ε, otherwise one from
    the target policy."""
    if rng.random() < scheduled_value(settings.epsilon, memory.clock[0], 1):
        return random_action(memory.q[state], rng)
    return draw(memory.sums[state], 0, rng)


WEIGHTINGS = ("ordinary", "weighted", "truncated")
ORDINARY, WEIGHTED, TRUNCATED = range(3)
LARGEST = 1e100


class OffPolicySettings(ControlSettings):
    """The settings, including how returns are averaged."""

    every_visit: bool  # whether every visit counts, or only the first
    weighting: int  # ORDINARY, WEIGHTED or TRUNCATED
    clip: float  # the largest weight c of TRUNCATED


class OffPolicyMemory(EpisodeArrays, ControlMemory):
    """The tables, including the episode in progress and the values learned by prediction."""

    v: NDArray[np.float64]  # [S]: V(s), in reward units
    # [S, A]: Σ ρ of each entry, or how many there were; prediction fills column 0
    total: NDArray[np.float64]
    target: NDArray[np.float64]  # [S, A]: π(a|s)
    sums: NDArray[np.float64]  # [S, A]: Σ_{b ≤ a} π(b|s)
    # [T]: of each step, π / b in prediction and b in control; at the end ρ_{t:T-1}
    ratios: NDArray[np.float64]
    first: NDArray[np.int64]  # [S]: the step that first came from the state, from 1
    weights: NDArray[np.float64]  # [3]: how many there were, Σ ρ, Σ ρ²
