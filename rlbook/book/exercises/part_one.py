"""Exercises on tables. The right answers are the library's own functions, wherever it has one."""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.envs import TabularMDP
from rlbook.functional import bandits
from rlbook.functional.returns import discounted_returns
from rlbook.functional.value_losses import double_q_target

Array = np.ndarray


def tensor(values: Array | list[float] | float) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def rewards_of(rng: Generator) -> tuple[Array, float]:
    return rng.integers(-3, 4, rng.integers(2, 6)).astype(float), float(rng.choice([0.5, 0.9, 1.0]))


def world(rng: Generator) -> tuple[Array, Array]:
    """P [S, A, S], of whose rows some add up to less than 1: the rest ends the episode. And r [S, A]."""
    P = rng.dirichlet(np.ones(4), size=(3, 2)).round(2)
    return P[..., :3], rng.integers(-2, 3, (3, 2)).astype(float)


def model_of(P: Array, r: Array) -> TabularMDP:
    """With a fourth state, where every episode ends."""
    whole, paid = np.zeros((4, 2, 4)), np.zeros((4, 2))
    whole[:3, :, :3], whole[:3, :, 3], paid[:3] = P, 1.0 - P.sum(axis=-1), r
    return TabularMDP.from_arrays(whole, paid)


@exercise("introduction", rewards_of, {
    "the first reward is not discounted; γ⁰ is 1":
        lambda rewards, gamma: sum(gamma ** (k + 1) * reward for k, reward in enumerate(rewards)),
    "a reward that comes later counts less; it is multiplied by γ once for each step": lambda rewards, gamma: gamma * sum(rewards),
})  # fmt: skip
def first_return(rewards: Array, gamma: float) -> float:
    """The return of an episode from its first step on.

    rewards [T] are the rewards of its steps, gamma the discount: R₁ + γ R₂ + γ² R₃ + ...
    """
    return float(returns.function(rewards, gamma)[0])


@exercise("decision-processes", rewards_of, {
    "each return begins at its own step: γ counts from there, and not from the first step":
        lambda rewards, gamma: np.cumsum((gamma ** np.arange(len(rewards)) * rewards)[::-1])[::-1],
    "the rewards before a step do not belong to its return": lambda rewards, gamma: np.cumsum(gamma ** np.arange(len(rewards)) * rewards),
})  # fmt: skip
def returns(rewards: Array, gamma: float) -> Array:
    """The return from each step on: [T].

    rewards [T] are the rewards of an episode that terminated, gamma is the discount.
    """
    ended = torch.arange(len(rewards)) == len(rewards) - 1
    return discounted_returns(tensor(rewards)[:, None], ended[:, None], torch.zeros_like(ended)[:, None], gamma)[:, 0].numpy()


def q_case(rng: Generator) -> tuple[Array, int, int, float, int, bool]:
    q = rng.integers(-4, 5, (3, 2)).astype(float)
    return q, int(rng.integers(3)), int(rng.integers(2)), float(rng.integers(-2, 3)), int(rng.integers(3)), bool(rng.random() < 0.4)


def _moved(q: Array, state: int, action: int, target: float) -> Array:
    after = q.copy()
    after[state, action] += 0.5 * (target - q[state, action])
    return after


@exercise("introduction", q_case, {
    "where the episode has terminated nothing follows, so the target is the reward alone":
        lambda q, s, a, r, after, over: _moved(q, s, a, r + 0.9 * q[after].max()),
    "Q-learning looks at the best next action, and not at the mean of all":
        lambda q, s, a, r, after, over: _moved(q, s, a, r + 0.9 * (not over) * q[after].mean()),
})  # fmt: skip
def q_learning_step(q: Array, state: int, action: int, reward: float, next_state: int, terminated: bool) -> Array:
    """The table after one step of Q-learning: [S, A], a new array.

    q is the table before. The step size is 0.5 and the discount 0.9.
    """
    return _moved(q, state, action, reward + (0.0 if terminated else 0.9 * float(q[next_state].max())))


def ties(rng: Generator) -> tuple[Array, float]:
    return rng.integers(0, 3, 4).astype(float), float(rng.choice([0.0, 0.1, 0.5]))


def _others_alone(values: Array, epsilon: float) -> Array:
    best = values == values.max()
    return np.where(best, (1 - epsilon) / best.sum(), epsilon / max(1, (~best).sum()))


@exercise("introduction", ties, {
    "a random action may be the best one too, so the best has more than 1 − ε":
        lambda values, epsilon: _others_alone(values, epsilon),
    "actions that are equally good share 1 − ε": lambda values, epsilon: epsilon / 4 + (1 - epsilon) * (np.arange(4) == values.argmax()),
})  # fmt: skip
def epsilon_greedy(values: Array, epsilon: float) -> Array:
    """With which probability each action is taken: [A].

    values [A] are the estimates. With probability epsilon any action is drawn, each as likely; otherwise a best one, where those that tie
    are equally likely.
    """
    best = values == values.max()
    return epsilon / len(values) + (1.0 - epsilon) * best / best.sum()


@exercise("bandits", lambda rng: (rng.integers(-5, 6, rng.integers(2, 7)).astype(float),), {
    "the step size falls: the n-th reward moves the mean by 1/n of the difference":
        lambda rewards: np.array([rewards[0] * 0 + _drag(rewards[: n + 1]) for n in range(len(rewards))]),
})  # fmt: skip
def running_mean(rewards: Array) -> Array:
    """The mean of the first 1, 2, 3, ... rewards: [T], without adding them up anew each time."""
    return np.cumsum(rewards) / np.arange(1, len(rewards) + 1)


def _drag(rewards: Array) -> float:
    mean = 0.0
    for reward in rewards:
        mean += 0.5 * (reward - mean)
    return mean


def pulls(rng: Generator) -> tuple[Array, Array, float]:
    return rng.normal(size=3).round(2), rng.integers(1, 20, 3), float(rng.choice([0.5, 2.0]))


@exercise("bandits", pulls, {
    "t is the number of the coming pull, one more than all pulls so far":
        lambda values, counts, c: values + c * np.sqrt(np.log(counts.sum()) / counts),
    "the width is the square root of ln t / N": lambda values, counts, c: values + c * np.log(1 + counts.sum()) / counts,
})  # fmt: skip
def ucb_scores(values: Array, counts: Array, c: float) -> Array:
    """The upper confidence bound of each action: [A].

    values [A] are the means so far, counts [A] how often each action was taken, at least once. c says how much to explore.
    """
    return bandits.upper_confidence_bound(values, counts, c)


def preferences(rng: Generator) -> tuple[Array, int, float, float]:
    return rng.normal(size=3).round(2), int(rng.integers(3)), float(rng.integers(0, 6)), float(rng.integers(0, 6))


@exercise("bandits", preferences, {
    "the preferences of the actions that were not taken change too, by −π(b) times the difference":
        lambda H, a, r, b: H + 0.1 * (r - b) * (np.arange(3) == a) * (1 - bandits.softmax(H)),
    "what counts is how much better the reward was than the baseline":
        lambda H, a, r, b: H + 0.1 * bandits.preference_gradient(H, a, r, 0.0),
})  # fmt: skip
def gradient_bandit(H: Array, action: int, reward: float, baseline: float) -> Array:
    """The preferences after one pull of the gradient method: [A], with the step size 0.1."""
    return H + 0.1 * bandits.preference_gradient(H, action, reward, baseline)


@exercise("decision-processes", lambda rng: (*world(rng), rng.integers(-3, 4, 3).astype(float), 0.9), {
    "what follows is discounted": lambda P, r, V, gamma: r + P @ V,
    "what has ended adds nothing, and a row of P that adds up to less than 1 says so already; do not divide by its sum":
        lambda P, r, V, gamma: r + gamma * (P / np.maximum(P.sum(axis=-1, keepdims=True), 1e-9)) @ V,
})  # fmt: skip
def action_values(P: Array, r: Array, V: Array, gamma: float) -> Array:
    """Q(s, a), [S, A], from the values of the next states.

    P [S, A, S] are the probabilities of the next states; where a row adds up to less than 1, the rest ends the episode. r [S, A] are the
    expected rewards, V [S] the values.
    """
    return model_of(P, r).backup(np.append(V, 0.0), gamma)[:3]


@exercise("decision-processes", lambda rng: (*world(rng), rng.dirichlet(np.ones(2), 3).round(2), 0.9), {
    "a policy takes each action with its probability, and not the best one": lambda P, r, pi, gamma: _swept(P, r, gamma, 2000),
})  # fmt: skip
def policy_value(P: Array, r: Array, pi: Array, gamma: float) -> Array:
    """V of a policy, [S], exactly: a linear equation for each state.

    P [S, A, S] and r [S, A] are the model (a row that adds up to less than 1 may end the episode), pi [S, A] the probabilities of the
    actions.
    """
    chain, paid = np.einsum("sa,sat->st", pi, P), (pi * r).sum(axis=1)
    return np.linalg.solve(np.eye(3) - gamma * chain, paid)


def _swept(P: Array, r: Array, gamma: float, sweeps: int) -> Array:
    model, V = model_of(P, r), np.zeros(4)
    for _ in range(sweeps):
        V = model.backup(V, gamma).max(axis=1)
    return V[:3]


def _in_place(P: Array, r: Array, gamma: float, sweeps: int) -> Array:
    V = np.zeros(3)
    for _ in range(sweeps):
        for s in range(3):
            V[s] = max(r[s] + gamma * P[s] @ V)
    return V


@exercise("planning", lambda rng: (*world(rng), 0.9, int(rng.integers(1, 4))), {
    "all states are updated at once: each sweep uses the values from before it": _in_place,
    "the best action counts, and not the mean of all": lambda P, r, gamma, sweeps: _mean_sweeps(P, r, gamma, sweeps),
})  # fmt: skip
def value_iteration(P: Array, r: Array, gamma: float, sweeps: int) -> Array:
    """V, [S], after so many sweeps of value iteration from 0, all states at once.

    P [S, A, S] and r [S, A] are the model; a row of P that adds up to less than 1 may end the episode.
    """
    return _swept(P, r, gamma, sweeps)


def _mean_sweeps(P: Array, r: Array, gamma: float, sweeps: int) -> Array:
    model, V = model_of(P, r), np.zeros(4)
    for _ in range(sweeps):
        V = model.backup(V, gamma).mean(axis=1)
    return V[:3]


@exercise("planning", lambda rng: (rng.integers(0, 3, (4, 3)).astype(float), rng.integers(0, 3, 4)), {
    "an action that is as good as the best stays": lambda Q, policy: Q.argmax(axis=1),
})  # fmt: skip
def improved(Q: Array, policy: Array) -> Array:
    """The policy after an improvement: [S] integers.

    Q [S, A] are the action values of the policy [S]. Where its action is as good as any other, it stays; otherwise the first best one
    is taken.
    """
    kept = Q[np.arange(len(Q)), policy] == Q.max(axis=1)
    return np.where(kept, policy, Q.argmax(axis=1))


@exercise("monte-carlo", lambda rng: (rng.integers(0, 3, 6), rng.integers(-3, 4, 6).astype(float), 0), {
    "only the first visit counts": lambda states, G, state: G[states == state].mean() if (states == state).any() else 0.0,
})  # fmt: skip
def first_visit(states: Array, G: Array, state: int) -> float:
    """What first-visit Monte Carlo learns of a state from one episode: the return from its first visit, and 0 where it was not visited.

    states [T] were visited, and G [T] are the returns from each step on.
    """
    visits = np.flatnonzero(states == state)
    return float(G[visits[0]]) if len(visits) else 0.0


def actions_of(rng: Generator) -> tuple[Array, Array, Array]:
    return rng.integers(0, 2, 4), np.array([0.9, 0.1]), rng.dirichlet(np.ones(2) * 5).round(2)


@exercise("monte-carlo", actions_of, {
    "it is the target's probability over the behaviour's, and not the other way round":
        lambda actions, pi, b: np.cumprod((b / pi)[actions][::-1])[::-1],
    "the weight of a step covers its own action and all that follow, and none before":
        lambda actions, pi, b: np.cumprod((pi / b)[actions]),
})  # fmt: skip
def importance_weights(actions: Array, pi: Array, b: Array) -> Array:
    """How many times as likely the rest of the episode is under pi as under b, from each step on: [T].

    actions [T] were taken by b; pi [A] and b [A] are the two policies' probabilities, the same in every state.
    """
    return np.cumprod((pi / b)[actions][::-1])[::-1].copy()


@exercise("monte-carlo", lambda rng: (rng.integers(0, 3, 5).astype(float), rng.integers(0, 4, 5) / 2 + 0.5), {
    "ordinary first, then weighted": lambda G, weight: [(weight * G).sum() / weight.sum(), (weight * G).mean()],
})  # fmt: skip
def two_averages(G: Array, weight: Array) -> Array:
    """The ordinary and the weighted importance-sampling estimate of a value: [2].

    G [N] are returns, weight [N] their importance weights, of which some are above 0.
    """
    return np.array([(weight * G).mean(), (weight * G).sum() / weight.sum()])


def row_case(rng: Generator) -> tuple[Array, float, float, bool]:
    row = rng.permutation(np.array([-2.0, 0.0, 1.0, 3.0]))
    return row, float(rng.choice([0.0, 0.1, 0.4])), float(rng.integers(-2, 3)), bool(rng.random() < 0.3)


@exercise("temporal-difference", row_case, {
    "that is Q-learning's target; the random actions count too": lambda row, epsilon, reward, over: reward + 0.9 * (not over) * row.max(),
    "where the episode has terminated nothing follows":
        lambda row, epsilon, reward, over: reward + 0.9 * (epsilon * row.mean() + (1 - epsilon) * row.max()),
})  # fmt: skip
def expected_sarsa_target(row: Array, epsilon: float, reward: float, terminated: bool) -> float:
    """The target of expected SARSA with the discount 0.9.

    row [A] are the action values of the next state, which has one best action; the agent is ε-greedy.
    """
    return reward + (0.0 if terminated else 0.9 * float(epsilon_greedy.function(row, epsilon) @ row))


@exercise("temporal-difference", lambda rng: (rng.normal(size=3).round(2), rng.normal(size=3).round(2), float(rng.integers(-2, 3))), {
    "one table chooses, and the other one says what that is worth": lambda own, other, reward: reward + 0.9 * other.max(),
    "the table that learns chooses; its own value of that action is too high on average":
        lambda own, other, reward: reward + 0.9 * own.max(),
})  # fmt: skip
def double_target(own: Array, other: Array, reward: float) -> float:
    """The target of double Q-learning for the table `own`, with the discount 0.9.

    own [A] and other [A] are the two tables' action values of the next state, which is not terminal.
    """
    return float(double_q_target(tensor([reward]), torch.tensor([False]), tensor(other)[None], tensor(own)[None], 0.9))


def step_case(rng: Generator) -> tuple[float, float, float, bool, bool]:
    V, after, reward = (float(x) for x in rng.integers(-4, 5, 3))
    return V, after, reward, bool(rng.random() < 0.3), bool(rng.random() < 0.5)


@exercise("temporal-difference", step_case, {
    "a time limit is no end: the value of the state that was reached still counts":
        lambda V, after, reward, terminated, truncated: reward + 0.9 * (not (terminated or truncated)) * after - V,
    "where the episode has terminated nothing follows": lambda V, after, reward, terminated, truncated: reward + 0.9 * after - V,
})  # fmt: skip
def td_error(V: float, next_V: float, reward: float, terminated: bool, truncated: bool) -> float:
    """The TD error of a step with the discount 0.9. V and next_V are the table's values before and after it."""
    return reward + (0.0 if terminated else 0.9 * next_V) - V


def lambda_case(rng: Generator) -> tuple[Array, Array, float]:
    return rng.integers(-2, 3, 4).astype(float), np.append(rng.integers(-3, 4, 3), 0).astype(float), float(rng.choice([0.0, 0.5, 0.8, 1.0]))


@exercise("n-step-and-lambda", lambda rng: (*lambda_case(rng)[:2], int(rng.integers(1, 5))), {
    "the value behind the n rewards is discounted n times":
        lambda rewards, values, n: sum(0.9**k * rewards[k] for k in range(n)) + values[n - 1],
    "after n rewards the table's value of the state that was reached is added":
        lambda rewards, values, n: sum(0.9**k * rewards[k] for k in range(n)),
})  # fmt: skip
def n_step_return(rewards: Array, values: Array, n: int) -> float:
    """The n-step return from the first step on, with the discount 0.9.

    rewards [T] follow the steps, values [T] are the table's values of the states after them; the last state is terminal and worth 0.
    """
    return float(sum(0.9**k * rewards[k] for k in range(n)) + 0.9**n * values[n - 1])


@exercise("n-step-and-lambda", lambda_case, {
    "with λ = 0 it is the one-step target: λ weighs what lies behind, and 1 − λ the table's value":
        lambda rewards, values, lam: _lambda_returns(rewards, values, 1 - lam),
})  # fmt: skip
def lambda_returns(rewards: Array, values: Array, lam: float) -> Array:
    """The λ-returns of all steps: [T], with the discount 0.9, computed from the last step to the first.

    rewards [T] follow the steps, values [T] are the table's values of the states after them; the last state is terminal and worth 0.
    """
    return _lambda_returns(rewards, values, lam)


def _lambda_returns(rewards: Array, values: Array, lam: float) -> Array:
    found, beyond = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        found[t] = beyond = rewards[t] + 0.9 * ((1 - lam) * values[t] + lam * beyond)
    return found


def _traced(states: Array, decay: float, replace: bool) -> Array:
    e = np.zeros(3)
    for state in states:
        e *= decay
        e[state] = 1.0 if replace else e[state] + 1.0
    return e


@exercise("n-step-and-lambda", lambda rng: (rng.integers(0, 3, 5), 0.5), {
    "accumulating traces add up; these are replacing ones": lambda states, decay: _traced(states, decay, True),
    "a trace fades at every step, those of other states included": lambda states, decay: np.bincount(states, minlength=3).astype(float),
})  # fmt: skip
def accumulating_traces(states: Array, decay: float) -> Array:
    """The traces of three states after the last visit: [3].

    states [T] are visited one after the other. At each step all traces are multiplied by decay, which is γλ, and then the visited
    state's grows by 1.
    """
    return _traced(states, decay, False)


@exercise("model-based", lambda rng: (rng.integers(0, 2, 12), rng.integers(0, 3, 12)), {
    "each row is divided by how often its own state was left, and not by all steps":
        lambda states, after: np.array([[((states == s) & (after == t)).sum() for t in range(3)] for s in range(3)]) / 12,
})  # fmt: skip
def estimated(states: Array, next_states: Array) -> Array:
    """The most likely probabilities of the next states: [3, 3], a row of zeros where a state was never left.

    states [N] were left and next_states [N] reached, with the only action that there is.
    """
    counts = np.array([[((states == s) & (next_states == t)).sum() for t in range(3)] for s in range(3)], dtype=float)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)


@exercise("trees", lambda rng: (rng.normal(size=3).round(2), rng.integers(1, 60, 3), -3.0, 3.0), {
    "the returns are scaled to lie between 0 and 1 first, so that the width means the same for all rewards":
        lambda means, counts, low, high: int((means + np.sqrt(np.log(counts.sum()) / counts)).argmax()),
    "the width belongs to the choice too": lambda means, counts, low, high: int(means.argmax()),
})  # fmt: skip
def uct_choice(means: Array, counts: Array, low: float, high: float) -> int:
    """Which action a tree search looks at next, with c = 1.

    means [A] are the mean returns, counts [A] how often each was tried, N(s) is their sum. low and high are the smallest and the
    largest return so far.
    """
    return int(((means - low) / (high - low) + np.sqrt(np.log(counts.sum()) / counts)).argmax())


@exercise("trees", lambda rng: (rng.integers(-3, 4, 3).astype(float), rng.integers(1, 5, 3), rng.integers(-2, 6, 3).astype(float)), {
    "each action's return begins with its own reward": lambda means, counts, rewards: means + (rewards.sum() - means) / (counts + 1),
    "the count includes this simulation": lambda means, counts, rewards: means + (np.cumsum(rewards[::-1])[::-1] - means) / counts,
})  # fmt: skip
def backed_up(means: Array, counts: Array, rewards: Array) -> Array:
    """The means of the actions along one simulation after it: [D], without a discount.

    The actions on the way, from the root on, had these means and counts [D] before; rewards [D] were met on the way, and then the
    episode was over.
    """
    return means + (np.cumsum(rewards[::-1])[::-1] - means) / (counts + 1)
