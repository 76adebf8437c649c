"""Functions of tabular algorithms in the form that is fastest in Python on nested lists: the same
results, from the same random numbers.

A test holds each equal to the function that the book shows; `compiled.link_globals` puts them into a loop
on lists.
"""

from __future__ import annotations

from collections.abc import Callable

from numpy.random import Generator

from rlbook.algorithms.tabular.exploration import (
    FORBIDDEN,
    draw_greedy_allowed,
    epsilon_greedy,
    exploration_rate,
    greedy,
    row_max,
    step_size,
)
from rlbook.algorithms.tabular.q_learning import q_learning_step
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings


def greedy_on_lists(row: list[float], rng: Generator) -> int:
    """`exploration.greedy`."""
    best = max(row)
    return row.index(best) if row.count(best) == 1 else greedy(row, rng)


def epsilon_greedy_on_lists(
    memory: ControlMemory, settings: ControlSettings, rng: Generator, state: int
) -> int:
    """`exploration.epsilon_greedy`."""
    row, epsilon = memory.q[state], settings.fixed_epsilon
    if epsilon < 0.0:
        epsilon = exploration_rate(memory, settings, state)
    if rng.random() < epsilon:
        action = int(rng.random() * len(row))
        return action if row[action] > FORBIDDEN else draw_greedy_allowed(row, rng)
    best = max(row)
    return row.index(best) if row.count(best) == 1 else greedy(row, rng)


def q_learning_step_on_lists(
    memory: ControlMemory,
    settings: ControlSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float:
    """`q_learning.q_learning_step`, with the update inlined."""
    q, alpha = memory.q, settings.fixed_alpha
    if alpha < 0.0:
        alpha = step_size(memory, settings, state, action)
    row = q[state]
    error = (reward if terminated else reward + settings.gamma * max(q[next_state])) - row[action]
    row[action] += alpha * error
    return abs(error)


LIST_FORMS: dict[Callable[..., float], Callable[..., float]] = {
    greedy: greedy_on_lists,
    row_max: max,
    epsilon_greedy: epsilon_greedy_on_lists,
    q_learning_step: q_learning_step_on_lists,
}
