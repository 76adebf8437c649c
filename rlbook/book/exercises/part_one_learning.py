"""Exercises on tables: learning from episodes and steps, models, and trees. The right answers are
the library's own functions, wherever it has one.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, epsilon_greedy, tensor
from rlbook.functional.value_losses import double_q_target


@exercise(
    "monte-carlo",
    lambda rng: (rng.integers(0, 3, 6), rng.integers(-3, 4, 6).astype(float), int(rng.integers(3))),
    {
        "only the first visit counts": lambda states, G, state: (
            G[states == state].mean() if (states == state).any() else 0.0
        ),
    },
)
def first_visit(states: Array, G: Array, state: int) -> float:
    """What first-visit Monte Carlo learns of a state from one episode: the return from its first
    visit, and 0 where it was not visited.

    states [T] were visited, and G [T] are the returns from each step on.
    """
    visits = np.flatnonzero(states == state)
    return float(G[visits[0]]) if len(visits) else 0.0


def actions_of(rng: Generator) -> tuple[Array, Array, Array]:
    p = float(rng.choice([0.9, 0.5, 0.2]))
    pi = np.array([p, round(1.0 - p, 2)])
    return rng.integers(0, 2, 4), pi, rng.dirichlet(np.ones(2) * 5).round(2)


@exercise(
    "monte-carlo",
    actions_of,
    {
        "it is the target's probability over the behaviour's, and not the other way round": (
            lambda actions, pi, b: np.cumprod((b / pi)[actions][::-1])[::-1]
        ),
        "the weight of a step covers its own action and all that follow, and none before": (
            lambda actions, pi, b: np.cumprod((pi / b)[actions])
        ),
    },
)
def importance_weights(actions: Array, pi: Array, b: Array) -> Array:
    """How many times as likely the rest of the episode is under pi as under b, from each step on:
    [T].

    actions [T] were taken by b; pi [A] and b [A] are the two policies' probabilities, the same in
    every state.
    """
    return np.cumprod((pi / b)[actions][::-1])[::-1].copy()


@exercise(
    "monte-carlo",
    lambda rng: (rng.integers(0, 3, 5).astype(float), np.append(rng.integers(0, 4, 4) / 2, 0.5)),
    {
        "a return of weight 0 counts in the ordinary mean, too: divide by N": lambda G, weight: [
            (weight * G).sum() / (weight > 0).sum(),
            (weight * G).sum() / weight.sum(),
        ],
        "ordinary first, then weighted": lambda G, weight: [
            (weight * G).sum() / weight.sum(),
            (weight * G).mean(),
        ],
    },
)
def two_averages(G: Array, weight: Array) -> Array:
    """The ordinary and the weighted importance-sampling estimate of a value: [2].

    G [N] are returns, weight [N] their importance weights, of which some are above 0.
    """
    return np.array([(weight * G).mean(), (weight * G).sum() / weight.sum()])


def row_case(rng: Generator) -> tuple[Array, float, float, bool]:
    row = rng.permutation(np.arange(-3.0, 5.0))[:4]
    return (
        row,
        float(rng.choice([0.0, 0.1, 0.4])),
        float(rng.integers(-2, 3)),
        bool(rng.random() < 0.3),
    )


@exercise(
    "temporal-difference",
    row_case,
    {
        "that is Q-learning's target; the random actions count too": (
            lambda row, epsilon, reward, over: reward + 0.9 * (not over) * row.max()
        ),
        "where the episode has terminated nothing follows": lambda row, epsilon, reward, over: (
            reward + 0.9 * (epsilon * row.mean() + (1 - epsilon) * row.max())
        ),
    },
)
def expected_sarsa_target(row: Array, epsilon: float, reward: float, terminated: bool) -> float:
    """The target of expected SARSA with the discount 0.9.

    row [A] are the action values of the next state, which has one best action. The agent is
    ε-greedy: with probability epsilon it takes any action, each as likely, and otherwise the best
    one. The step paid the reward; where it terminated the episode, nothing follows.
    """
    return reward + (
        0.0 if terminated else 0.9 * float(epsilon_greedy.function(row, epsilon) @ row)
    )


@exercise(
    "temporal-difference",
    lambda rng: (
        rng.normal(size=3).round(2),
        rng.normal(size=3).round(2),
        float(rng.integers(-2, 3)),
    ),
    {
        "one table chooses, and the other one says what that is worth": lambda own, other, reward: (
            reward + 0.9 * other.max()
        ),
        "the table that learns chooses; its own value of that action is too high on average": (
            lambda own, other, reward: reward + 0.9 * own.max()
        ),
    },
)
def double_target(own: Array, other: Array, reward: float) -> float:
    """The target of double Q-learning for the table `own`, with the discount 0.9.

    own [A] and other [A] are the two tables' action values of the next state, which is not
    terminal. One of them says which action is best there, and the other one what that is worth.
    """
    return float(
        double_q_target(
            tensor([reward]), torch.tensor([False]), tensor(other)[None], tensor(own)[None], 0.9
        )
    )


def step_case(rng: Generator) -> tuple[float, float, float, bool, bool]:
    V, after, reward = (float(x) for x in rng.integers(-4, 5, 3))
    return V, after, reward, bool(rng.random() < 0.3), bool(rng.random() < 0.5)


@exercise(
    "temporal-difference",
    step_case,
    {
        "a time limit is not an end: the value of the state that was reached still counts": (
            lambda V, after, reward, terminated, truncated: (
                reward + 0.9 * (not (terminated or truncated)) * after - V
            )
        ),
        "where the episode has terminated nothing follows": (
            lambda V, after, reward, terminated, truncated: reward + 0.9 * after - V
        ),
    },
)
def td_error(V: float, next_V: float, reward: float, terminated: bool, truncated: bool) -> float:
    """The TD error of a step with the discount 0.9.

    V and next_V are the table's values of the states before and after it. terminated says that the
    episode is over there, truncated that a time limit has cut it there.
    """
    return reward + (0.0 if terminated else 0.9 * next_V) - V


def lambda_case(rng: Generator) -> tuple[Array, Array, float]:
    return (
        rng.integers(-2, 3, 4).astype(float),
        np.append(rng.integers(-3, 4, 3), 0).astype(float),
        float(rng.choice([0.0, 0.5, 0.8, 1.0])),
    )


@exercise(
    "n-step-and-lambda",
    lambda rng: (*lambda_case(rng)[:2], int(rng.integers(1, 5))),
    {
        "the value after the n rewards is discounted n times": lambda rewards, values, n: (
            sum(0.9**k * rewards[k] for k in range(n)) + values[n - 1]
        ),
        "after n rewards the table's value of the state that was reached is added": (
            lambda rewards, values, n: sum(0.9**k * rewards[k] for k in range(n))
        ),
    },
)
def n_step_return(rewards: Array, values: Array, n: int) -> float:
    """The n-step return from the first step on, with the discount 0.9.

    rewards [T] follow the steps, values [T] are the table's values of the states after them; the
    last state is terminal and worth 0.
    """
    return float(sum(0.9**k * rewards[k] for k in range(n)) + 0.9**n * values[n - 1])


@exercise(
    "n-step-and-lambda",
    lambda_case,
    {
        "with λ = 0 it is the one-step target: λ weighs what comes later, and 1 − λ the table's value": lambda rewards, values, lam: (
            _lambda_returns(rewards, values, 1 - lam)
        ),
    },
)
def lambda_returns(rewards: Array, values: Array, lam: float) -> Array:
    """The λ-returns of all steps: [T], with the discount 0.9, computed from the last step to the
    first.

    rewards [T] follow the steps, values [T] are the table's values of the states after them; the
    last state is terminal and worth 0.
    """
    return _lambda_returns(rewards, values, lam)


def _lambda_returns(rewards: Array, values: Array, lam: float) -> Array:
    found, beyond = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        found[t] = beyond = rewards[t] + 0.9 * ((1 - lam) * values[t] + lam * beyond)
    return found


def _eligibility(states: Array, decay: float, replace: bool) -> Array:
    e = np.zeros(3)
    for state in states:
        e *= decay
        e[state] = 1.0 if replace else e[state] + 1.0
    return e


@exercise(
    "n-step-and-lambda",
    lambda rng: (rng.integers(0, 3, 5), float(rng.choice([0.5, 0.9]))),
    {
        "accumulating traces add up; these are replacing ones": lambda states, decay: _eligibility(
            states, decay, True
        ),
        "a trace fades at every step, those of other states included": lambda states, decay: (
            np.bincount(states, minlength=3).astype(float)
        ),
    },
)
def accumulating_traces(states: Array, decay: float) -> Array:
    """The traces of three states after the last visit: [3].

    states [T] are visited one after the other. At each step all traces are multiplied by decay,
    which is γλ, and then the visited state's grows by 1.
    """
    return _eligibility(states, decay, False)


@exercise(
    "model-based",
    lambda rng: (rng.integers(0, 2, 12), rng.integers(0, 3, 12)),
    {
        "each row is divided by how often its own state was left, and not by all steps": (
            lambda states, after: (
                np.array(
                    [[((states == s) & (after == t)).sum() for t in range(3)] for s in range(3)]
                )
                / 12
            )
        ),
    },
)
def estimate_model(states: Array, next_states: Array) -> Array:
    """The most likely probabilities of the next states: [3, 3], a row of zeros where a state was
    never left.

    states [N] were left and next_states [N] reached, with the only action that there is.
    """
    counts = np.array(
        [[((states == s) & (next_states == t)).sum() for t in range(3)] for s in range(3)],
        dtype=float,
    )
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)


@exercise(
    "trees",
    lambda rng: (
        rng.normal(size=3).round(2),
        rng.integers(1, 60, 3),
        float(rng.choice([-9.0, -2.0])),
        float(rng.choice([2.0, 9.0])),
    ),
    {
        "the returns are scaled to lie between 0 and 1 first, so that the width means "
        "the same for all rewards": lambda means, counts, low, high: int(
            (means + np.sqrt(np.log(counts.sum()) / counts)).argmax()
        ),
        "the width belongs to the choice too": lambda means, counts, low, high: int(means.argmax()),
    },
)
def uct_choice(means: Array, counts: Array, low: float, high: float) -> int:
    """Which action a tree search looks at next, with c = 1.

    That is the one with the largest sum of two numbers: its mean, scaled so that low is 0 and high
    is 1, and √(ln N(s) / N(s, a)). means [A] are the mean returns, counts [A] how often each was
    tried, N(s) is their sum. low and high are the smallest and the largest return so far.
    """
    return int(((means - low) / (high - low) + np.sqrt(np.log(counts.sum()) / counts)).argmax())


@exercise(
    "trees",
    lambda rng: (
        rng.integers(-3, 4, 3).astype(float),
        rng.integers(1, 5, 3),
        rng.integers(-2, 6, 3).astype(float),
    ),
    {
        "each action's return begins with its own reward": lambda means, counts, rewards: (
            means + (rewards.sum() - means) / (counts + 1)
        ),
        "the count includes this simulation": lambda means, counts, rewards: (
            means + (np.cumsum(rewards[::-1])[::-1] - means) / counts
        ),
    },
)
def backed_up(means: Array, counts: Array, rewards: Array) -> Array:
    """The means of the actions along one simulation after it: [D], without a discount.

    The actions on the way, from the root on, had these means and counts [D] before; rewards [D]
    were met on the way, and then the episode was over.
    """
    return means + (np.cumsum(rewards[::-1])[::-1] - means) / (counts + 1)
