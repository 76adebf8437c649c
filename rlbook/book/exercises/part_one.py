"""Exercises on tables: first steps, bandits, known worlds. The right answers are the library's own
functions, wherever it has one."""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.envs import TabularMDP
from rlbook.functional import bandits
from rlbook.functional.returns import discounted_returns

Array = np.ndarray


def tensor(values: Array | list[float] | float) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def rewards_of(rng: Generator) -> tuple[Array, float]:
    return rng.integers(-3, 4, rng.integers(2, 6)).astype(float), float(rng.choice([0.5, 0.9, 1.0]))


def draw_discount(rng: Generator) -> float:
    return float(rng.choice([0.5, 0.9]))


def draw_world(rng: Generator) -> tuple[Array, Array]:
    """P [S, A, S], of whose rows some add up to less than 1: the rest ends the episode. And r [S,
    A]."""
    P = rng.dirichlet(np.ones(4), size=(3, 2)).round(2)
    return P[..., :3], rng.integers(-2, 3, (3, 2)).astype(float)


def model_of(P: Array, r: Array) -> TabularMDP:
    """With a fourth state, where every episode ends."""
    whole, paid = np.zeros((4, 2, 4)), np.zeros((4, 2))
    whole[:3, :, :3], whole[:3, :, 3], paid[:3] = P, 1.0 - P.sum(axis=-1), r
    return TabularMDP.from_arrays(whole, paid)


@exercise(
    "introduction",
    rewards_of,
    {
        "the first reward is not discounted; γ⁰ is 1": lambda rewards, gamma: sum(
            gamma ** (k + 1) * reward for k, reward in enumerate(rewards)
        ),
        "a reward that comes later counts less; it is multiplied by γ once for each step": (
            lambda rewards, gamma: gamma * sum(rewards)
        ),
    },
)
def first_return(rewards: Array, gamma: float) -> float:
    """The return of an episode from its first step on.

    rewards [T] are the rewards of its steps, gamma the discount: R₁ + γ R₂ + γ² R₃ + ...
    """
    return float(returns.function(rewards, gamma)[0])


@exercise(
    "decision-processes",
    rewards_of,
    {
        "each return begins at its own step: γ counts from there, and not from the first step": (
            lambda rewards, gamma: np.cumsum((gamma ** np.arange(len(rewards)) * rewards)[::-1])[
                ::-1
            ]
        ),
        "the rewards before a step do not belong to its return": lambda rewards, gamma: np.cumsum(
            gamma ** np.arange(len(rewards)) * rewards
        ),
    },
)
def returns(rewards: Array, gamma: float) -> Array:
    """The return from each step on: [T].

    rewards [T] are the rewards of an episode that terminated, gamma is the discount.
    """
    ended = torch.arange(len(rewards)) == len(rewards) - 1
    return discounted_returns(
        tensor(rewards)[:, None], ended[:, None], torch.zeros_like(ended)[:, None], gamma
    )[:, 0].numpy()


def q_case(rng: Generator) -> tuple[Array, int, int, float, int, bool]:
    q = rng.integers(-4, 5, (3, 2)).astype(float)
    return (
        q,
        int(rng.integers(3)),
        int(rng.integers(2)),
        float(rng.integers(-2, 3)),
        int(rng.integers(3)),
        bool(rng.random() < 0.4),
    )


def _td_update(q: Array, state: int, action: int, target: float) -> Array:
    after = q.copy()
    after[state, action] += 0.5 * (target - q[state, action])
    return after


@exercise(
    "introduction",
    q_case,
    {
        "where the episode has terminated nothing follows, so the target is the reward alone": (
            lambda q, s, a, r, after, over: _td_update(q, s, a, r + 0.9 * q[after].max())
        ),
        "Q-learning looks at the best next action, and not at the mean of all": (
            lambda q, s, a, r, after, over: _td_update(
                q, s, a, r + 0.9 * (not over) * q[after].mean()
            )
        ),
    },
    keeps_arguments=True,
)
def q_learning_step(
    q: Array, state: int, action: int, reward: float, next_state: int, terminated: bool
) -> Array:
    """The table after one step of Q-learning: [S, A], a new array.

    q [S, A] is the table before. The agent took the action in the state, was paid the reward and
    reached next_state, where the episode terminated or goes on. The step size is 0.5 and the
    discount 0.9.
    """
    return _td_update(
        q, state, action, reward + (0.0 if terminated else 0.9 * float(q[next_state].max()))
    )


def draw_ties(rng: Generator) -> tuple[Array, float]:
    return rng.integers(0, 3, 4).astype(float), float(rng.choice([0.0, 0.1, 0.5]))


def _explore_only_others(values: Array, epsilon: float) -> Array:
    best = values == values.max()
    return np.where(best, (1 - epsilon) / best.sum(), epsilon / max(1, (~best).sum()))


@exercise(
    "introduction",
    draw_ties,
    {
        "a random action may be the best one too, so the best has more than 1 − ε": (
            lambda values, epsilon: _explore_only_others(values, epsilon)
        ),
        "actions that are equally good share 1 − ε": lambda values, epsilon: (
            epsilon / 4 + (1 - epsilon) * (np.arange(4) == values.argmax())
        ),
    },
)
def epsilon_greedy(values: Array, epsilon: float) -> Array:
    """With which probability each action is taken: [A].

    values [A] are the estimates. With probability epsilon any action is drawn, each as likely;
    otherwise a best one, where those that tie are equally likely.
    """
    best = values == values.max()
    return epsilon / len(values) + (1.0 - epsilon) * best / best.sum()


@exercise(
    "bandits",
    lambda rng: (rng.integers(-5, 6, rng.integers(2, 7)).astype(float),),
    {
        "the step size falls: the n-th reward moves the mean by 1/n of the difference": (
            lambda rewards: np.array(
                [rewards[0] * 0 + _drag(rewards[: n + 1]) for n in range(len(rewards))]
            )
        ),
    },
)
def running_mean(rewards: Array) -> Array:
    """The mean of the first 1, 2, 3, ... rewards: [T], without adding them up again each time."""
    return np.cumsum(rewards) / np.arange(1, len(rewards) + 1)


def _drag(rewards: Array) -> float:
    mean = 0.0
    for reward in rewards:
        mean += 0.5 * (reward - mean)
    return mean


def draw_pulls(rng: Generator) -> tuple[Array, Array, float]:
    return rng.normal(size=3).round(2), rng.integers(1, 20, 3), float(rng.choice([0.5, 2.0]))


@exercise(
    "bandits",
    draw_pulls,
    {
        "t is the number of the coming pull, one more than all pulls so far": (
            lambda values, counts, c: values + c * np.sqrt(np.log(counts.sum()) / counts)
        ),
        "the width is the square root of ln t / N": lambda values, counts, c: (
            values + c * np.log(1 + counts.sum()) / counts
        ),
    },
)
def ucb_scores(values: Array, counts: Array, c: float) -> Array:
    """The upper confidence bound of each action: [A].

    That is the mean plus c √(ln t / N), where t is the number of the coming pull. values [A] are
    the means so far, counts [A] how often each action was taken, at least once. c says how much to
    explore.
    """
    return bandits.upper_confidence_bound(values, counts, c)


def preferences(rng: Generator) -> tuple[Array, int, float, float]:
    return (
        rng.normal(size=3).round(2),
        int(rng.integers(3)),
        float(rng.integers(0, 6)),
        float(rng.integers(0, 6)),
    )


@exercise(
    "bandits",
    preferences,
    {
        "the preferences of the actions that were not taken change too, by −π(b) times the difference": lambda H, a, r, b: (
            H + 0.1 * (r - b) * (np.arange(3) == a) * (1 - bandits.softmax(H))
        ),
        "what counts is how much better the reward was than the baseline": lambda H, a, r, b: (
            H + 0.1 * bandits.preference_gradient(H, a, r, 0.0)
        ),
    },
)
def gradient_bandit(H: Array, action: int, reward: float, baseline: float) -> Array:
    """The preferences after one pull of the gradient method: [A], with the step size 0.1.

    H [A] are the preferences before it; actions are drawn from their softmax. The action was taken
    and paid the reward; the baseline is the mean of the rewards before.
    """
    return H + 0.1 * bandits.preference_gradient(H, action, reward, baseline)


@exercise(
    "decision-processes",
    lambda rng: (*draw_world(rng), rng.integers(-3, 4, 3).astype(float), draw_discount(rng)),
    {
        "what follows is discounted": lambda P, r, V, gamma: r + P @ V,
        "what has ended adds nothing, and a row of P that adds up to less than 1 says "
        "so already; do not divide by its sum": lambda P, r, V, gamma: (
            r + gamma * (P / np.maximum(P.sum(axis=-1, keepdims=True), 1e-9)) @ V
        ),
    },
)
def action_values(P: Array, r: Array, V: Array, gamma: float) -> Array:
    """Q(s, a), [S, A], from the values of the next states.

    P [S, A, S] are the probabilities of the next states; where a row adds up to less than 1, the
    rest ends the episode. r [S, A] are the expected rewards, V [S] the values.
    """
    return model_of(P, r).backup(np.append(V, 0.0), gamma)[:3]


@exercise(
    "decision-processes",
    lambda rng: (*draw_world(rng), rng.dirichlet(np.ones(2), 3).round(2), draw_discount(rng)),
    {
        "a policy takes each action with its probability, and not the best one": (
            lambda P, r, pi, gamma: _sweep(P, r, gamma, 2000)
        ),
    },
)
def policy_value(P: Array, r: Array, pi: Array, gamma: float) -> Array:
    """V of a policy, [S], exactly: a linear equation for each state.

    P [S, A, S] and r [S, A] are the model (a row that adds up to less than 1 may end the episode),
    pi [S, A] the probabilities of the actions.
    """
    chain, paid = np.einsum("sa,sat->st", pi, P), (pi * r).sum(axis=1)
    return np.linalg.solve(np.eye(3) - gamma * chain, paid)


def _sweep(P: Array, r: Array, gamma: float, sweeps: int) -> Array:
    model, V = model_of(P, r), np.zeros(4)
    for _ in range(sweeps):
        V = model.backup(V, gamma).max(axis=1)
    return V[:3]


def _sweep_in_order(P: Array, r: Array, gamma: float, sweeps: int) -> Array:
    V = np.zeros(3)
    for _ in range(sweeps):
        for s in range(3):
            V[s] = max(r[s] + gamma * P[s] @ V)
    return V


@exercise(
    "planning",
    lambda rng: (*draw_world(rng), draw_discount(rng), int(rng.integers(1, 4))),
    {
        "all states are updated at once: each sweep uses the values from before it": _sweep_in_order,
        "the best action counts, and not the mean of all": lambda P, r, gamma, sweeps: _mean_sweeps(
            P, r, gamma, sweeps
        ),
    },
)
def value_iteration(P: Array, r: Array, gamma: float, sweeps: int) -> Array:
    """V, [S], after so many sweeps of value iteration from 0, all states at once.

    P [S, A, S] and r [S, A] are the model; a row of P that adds up to less than 1 may end the
    episode.
    """
    return _sweep(P, r, gamma, sweeps)


def _mean_sweeps(P: Array, r: Array, gamma: float, sweeps: int) -> Array:
    model, V = model_of(P, r), np.zeros(4)
    for _ in range(sweeps):
        V = model.backup(V, gamma).mean(axis=1)
    return V[:3]


@exercise(
    "planning",
    lambda rng: (rng.integers(0, 3, (4, 3)).astype(float), rng.integers(0, 3, 4)),
    {
        "an action that is as good as the best stays": lambda Q, policy: Q.argmax(axis=1),
    },
)
def improve(Q: Array, policy: Array) -> Array:
    """The policy after an improvement: [S] integers.

    Q [S, A] are the action values of the policy [S]. Where its action is as good as any other, it
    stays; otherwise the first best one is taken.
    """
    kept = Q[np.arange(len(Q)), policy] == Q.max(axis=1)
    return np.where(kept, policy, Q.argmax(axis=1))
