"""How an agent with a table Q(s, a) chooses: ε-greedy, softmax, or by an upper confidence bound.

    ε-greedy    a random action with probability ε, otherwise one of the best
    softmax     a with probability ∝ exp(Q(s, a) / τ)
    UCB         argmax_a Q(s, a) + c √(ln N(s) / N(s, a));  untried actions come first

If the environment shows action masks, only allowed actions are chosen: Q(s, a) of a forbidden one
is -∞ as soon as s is observed, so that it is neither a maximum nor a tie.

N(s, a) counts the updates of Q(s, a), N(s) = Σ_a N(s, a). Actions that tie for the maximum are
equally likely. `initial_value` is a fourth way: a table that is initialised too high makes the
agent try every action.

Source: Sutton & Barto 2018, sections 2.2, 2.6 and 2.7, eq. 2.10, and p. 35 for softmax.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings
from rlbook.functional.schedules import CONSTANT, INVERSE, scheduled_value

KINDS = ("epsilon-greedy", "softmax", "ucb")
EPSILON_GREEDY, SOFTMAX, UCB = range(3)
FORBIDDEN = -math.inf
"""Q(s, a) of an action that the environment does not allow in s."""
Row = Sequence[float] | NDArray[np.float64]
"""Q(s, ·) of one state: [A], in reward units."""


def greedy(row: Row, rng: Generator) -> int:
    """One of the best actions, all equally likely. Draws only where there are several."""
    best, ties, choice = row[0], 1, 0
    for action in range(1, len(row)):
        if row[action] > best:
            best, ties, choice = row[action], 1, action
        elif row[action] == best:
            ties += 1
    if ties == 1:
        return choice
    skip = int(rng.random() * ties)
    for action in range(choice, len(row)):
        if row[action] == best:
            if skip == 0:
                return action
            skip -= 1
    return choice


def forbid(
    row: list[float] | NDArray[np.float64],
    allowed: Sequence[bool] | NDArray[np.bool_],
    value: float,
) -> None:
    """Marks the forbidden actions of one state in its row [A] of a table; an action that is allowed
    again gets the initial `value`.
    """
    for action in range(len(row)):
        if not allowed[action]:
            row[action] = FORBIDDEN
        elif row[action] == FORBIDDEN:
            row[action] = value


def num_allowed(row: Row) -> int:
    """The number of allowed actions in a row [A]."""
    count = 0
    for action in range(len(row)):
        if row[action] > FORBIDDEN:
            count += 1
    return count


def random_action(row: Row, rng: Generator) -> int:
    """A uniformly random allowed action."""
    action = int(rng.random() * len(row))
    return action if row[action] > FORBIDDEN else draw_greedy_allowed(row, rng)


def draw_greedy_allowed(row: Row, rng: Generator) -> int:
    """A greedy action of a row with forbidden actions, drawn with one random number."""
    skip = int(rng.random() * num_allowed(row))
    for action in range(len(row)):
        if row[action] > FORBIDDEN:
            if skip == 0:
                return action
            skip -= 1
    return 0


def deterministic_argmax(row: Sequence[float], place: int) -> int:
    """A best action, always the same: of n, the one with index `place` mod n.

    The fixed rule makes acting repeatable, and states that were never visited still do not all get
    the same action.
    """
    highest = max(row)
    best = [action for action, value in enumerate(row) if value == highest]
    return best[place % len(best)]


def row_max(row: Row) -> float:
    """max_a of a row [A]."""
    best = row[0]
    for action in range(1, len(row)):
        best = max(best, row[action])
    return best


def explore(memory: ControlMemory, settings: ControlSettings, rng: Generator, state: int) -> int:
    """The action to take while learning, by `settings.exploration`."""
    if settings.exploration == EPSILON_GREEDY:
        return epsilon_greedy(memory, settings, rng, state)
    if settings.exploration == SOFTMAX:
        return softmax(memory, settings, rng, state)
    return upper_confidence(memory, settings, rng, state)


def epsilon_greedy(
    memory: ControlMemory, settings: ControlSettings, rng: Generator, state: int
) -> int:
    """A random action with probability ε, otherwise one of the best."""
    row, epsilon = memory.q[state], settings.fixed_epsilon
    if epsilon < 0.0:
        epsilon = exploration_rate(memory, settings, state)
    if rng.random() < epsilon:
        return random_action(row, rng)
    return greedy(row, rng)


def softmax(memory: ControlMemory, settings: ControlSettings, rng: Generator, state: int) -> int:
    """An action drawn with probability ∝ exp(Q / τ)."""
    row, temperature = memory.q[state], scheduled_value(settings.temperature, memory.clock[0], 1)
    best, total = row_max(row), 0.0
    for action in range(len(row)):
        total += math.exp((row[action] - best) / temperature)
    left = rng.random() * total
    for action in range(len(row)):
        left -= math.exp((row[action] - best) / temperature)
        if left < 0.0:
            return action
    action = len(row) - 1  # rounding has left something
    while row[action] == FORBIDDEN:
        action -= 1
    return action


def upper_confidence(
    memory: ControlMemory, settings: ControlSettings, rng: Generator, state: int
) -> int:
    """An untried action, otherwise the one with the largest Q + c √(ln N(s) / N(s, a))."""
    row, visits = memory.q[state], memory.visits[state]
    total, untried = 0, 0
    for action in range(len(row)):
        total += visits[action]
        if visits[action] == 0 and row[action] > FORBIDDEN:
            untried += 1
    if untried > 0:
        skip = int(rng.random() * untried)
        for action in range(len(row)):
            if visits[action] == 0 and row[action] > FORBIDDEN:
                if skip == 0:
                    return action
                skip -= 1
    best, ties, choice = -math.inf, 0, 0
    for action in range(len(row)):
        if row[action] == FORBIDDEN:
            continue
        bound = row[action] + settings.confidence * math.sqrt(math.log(total) / visits[action])
        if bound > best:
            best, ties, choice = bound, 1, action
        elif bound == best:  # each of k equal ones is kept with probability 1/k
            ties += 1
            if rng.random() * ties < 1.0:
                choice = action
    return choice


def exploration_rate(memory: ControlMemory, settings: ControlSettings, state: int) -> float:
    """The current ε in this state, in [0, 1]."""
    count = 1
    if settings.epsilon.kind == INVERSE:
        for action in range(len(memory.visits[state])):
            count += memory.visits[state][action]
    return min(1.0, scheduled_value(settings.epsilon, memory.clock[0], count))


def step_size(memory: ControlMemory, settings: ControlSettings, state: int, action: int) -> float:
    """α for this entry of the table now, in (0, 1]. Call it once an update: it counts them."""
    if settings.counting:
        memory.visits[state][action] += 1
    if settings.alpha.kind == CONSTANT:
        return settings.alpha.start
    return scheduled_value(settings.alpha, memory.clock[0], memory.visits[state][action])


def probability(memory: ControlMemory, settings: ControlSettings, state: int, action: int) -> float:
    """π(action|state): how likely `explore` is to take it, in [0, 1]."""
    row = memory.q[state]
    if settings.exploration == SOFTMAX:
        temperature = scheduled_value(settings.temperature, memory.clock[0], 1)
        best, total = row_max(row), 0.0
        for other in range(len(row)):
            total += math.exp((row[other] - best) / temperature)
        return math.exp((row[action] - best) / temperature) / total
    if row[action] == FORBIDDEN:
        return 0.0
    best, ties = row_max(row), 0
    for other in range(len(row)):
        if row[other] == best:
            ties += 1
    share = 1.0 / ties if row[action] == best else 0.0
    epsilon = exploration_rate(memory, settings, state)
    return epsilon / num_allowed(row) + (1.0 - epsilon) * share


def expected_value(memory: ControlMemory, settings: ControlSettings, state: int) -> float:
    """Σ_a π(a|s) Q(s, a): the mean value of the next action, in reward units.

    Not for UCB, which is not a distribution.
    """
    total = 0.0
    for action in range(len(memory.q[state])):
        if memory.q[state][action] > FORBIDDEN:
            total += probability(memory, settings, state, action) * memory.q[state][action]
    return total


WAYS = {"epsilon-greedy": epsilon_greedy, "softmax": softmax, "ucb": upper_confidence}
