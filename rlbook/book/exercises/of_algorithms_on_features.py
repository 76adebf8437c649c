"""Exercises of the algorithms' pages on features, recordings and critics: what data say, and what
they leave open. The right answers are the library's own functions, wherever it has one."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.random import Generator

from rlbook.algorithms.value.lstd import lstd_update
from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, tensor
from rlbook.functional.linear_td import (
    least_squares_solution,
    semi_gradient_update,
    td_system,
    value_error,
)
from rlbook.functional.returns import discounted_returns, n_step_returns, td_target
from rlbook.functional.value_losses import conservative_gap

GAMMA = 0.9


@exercise(
    "linear-approximation",
    lambda rng: (float(rng.choice([0.5, 0.1, 0.03])), float(rng.choice([0.2, 0.01]))),
    {
        "what is left after a visit is multiplied by 1 − α again: it does not fall by α": (
            lambda alpha, share: math.ceil((1 - share) / alpha)
        ),
        "1 − α is not e to the power of −α": lambda alpha, share: math.ceil(
            -math.log(share) / alpha
        ),
        "count whole visits: the first after which no more than the share is left": (
            lambda alpha, share: math.log(share) / math.log(1 - alpha)
        ),
    },
    page="lstd 2",
)
def visits_to_forget(alpha: float, share: float) -> int:
    """After how many visits no more than the share of a first value's error is left in TD.

    The state has a feature of its own, whose value is 1, and every visit has the same target. Each
    moves the weight by α (target − w). LSTD solves for w, so its first values leave nothing.
    """
    one, weight, visits = np.ones(1), np.ones(1), 0
    while weight[0] > share:
        weight = semi_gradient_update(weight, one, 0.0, 0 * one, gamma=GAMMA, alpha=alpha)
        visits += 1
    return visits


def change_case(rng: Generator) -> tuple[Array, Array, float]:
    before, after = rng.integers(1, 7, 2)
    rewards = rng.integers(-1, 2, before).astype(float), rng.integers(2, 5, after).astype(float)
    return *rewards, float(rng.choice([0.1, 0.5]))


def _last_estimate(rewards: Array, alpha: float) -> float:
    weight = 0.0
    for reward in rewards:
        weight += alpha * (reward - weight)
    return weight


@exercise(
    "linear-approximation",
    change_case,
    {
        "LSTD does not know that something has changed: all steps count alike": (
            lambda before, after, alpha: [
                after.mean(),
                _last_estimate(np.append(before, after), alpha),
            ]
        ),
        "with a constant step size later rewards count for more": lambda before, after, alpha: (
            [np.append(before, after).mean()] * 2
        ),
        "TD goes on from what it had learned before the change": lambda before, after, alpha: [
            np.append(before, after).mean(),
            _last_estimate(after, alpha),
        ],
    },
    page="lstd 3",
)
def estimates_after_a_change(before: Array, after: Array, alpha: float) -> Array:
    """The values of a state after its policy has changed: [2], LSTD's, and TD's with a constant step
    size.

    before [n] are the rewards under the old policy and after [m] those under the new one, in order.
    Each step terminates; the state's only feature is 1. TD begins with 0. Which of the two is
    nearer to what the new policy is worth, after few steps and after many?
    """
    A, b, one, weight = np.zeros((1, 1)), np.zeros(1), np.ones(1), np.zeros(1)
    for reward in np.append(before, after):
        lstd_update(A, b, np.zeros(1), one, reward, 0 * one, GAMMA)
        weight = semi_gradient_update(weight, one, reward, 0 * one, gamma=GAMMA, alpha=alpha)
    return np.append(least_squares_solution(A, b), weight)


@exercise(
    "linear-approximation",
    lambda rng: (rng.integers(-2, 4, (2, 2)).astype(float), float(rng.choice([0.1, 0.5]))),
    {
        "one step multiplies what is wrong by I − α A": lambda A, alpha: np.abs(
            np.linalg.eigvals(A)
        ).max(),
        "an eigenvalue counts by its absolute value, also where it is negative or complex": (
            lambda A, alpha: np.linalg.eigvals(np.eye(2) - alpha * A).real.max()
        ),
        "the step size counts": lambda A, alpha: np.abs(np.linalg.eigvals(np.eye(2) - A)).max(),
    },
    page="gradient_td 2",
)
def growth_per_step(A: Array, alpha: float) -> float:
    """The factor by which the error of the weights grows in one mean update, in the long run.

    A mean update is w ← w + α (b − A w), with A [2, 2]; so the error e = w − A⁻¹ b becomes
    (I − α A) e. The factor is the largest absolute value of an eigenvalue of that matrix. Below 1
    the error goes to 0, above 1 the learner diverges; how does the number of steps that a halving
    takes follow from it?
    """
    return float(np.abs(np.linalg.eigvals(np.eye(2) - alpha * A)).max())


def chain_case(rng: Generator) -> tuple[Array, Array, Array]:
    order, P = rng.permutation(4), np.eye(4) / 2
    P[order, np.roll(order, 1)] = 0.5  # stay, or go on in a circle
    return rng.integers(1, 5, 4).astype(float), P, rng.integers(-2, 3, 4).astype(float)


def _ends(x: Array, P: Array, r: Array) -> tuple[Array, Array, Array]:
    values = np.linalg.solve(np.eye(4) - GAMMA * P, r)
    by_returns = x @ values / (x @ x) * x
    by_td = x @ r / (x @ (x - GAMMA * P @ x)) * x
    return values, by_returns, by_td


@exercise(
    "linear-approximation",
    chain_case,
    {
        "Monte Carlo ends at the least squared error, TD where its mean update is 0": (
            lambda x, P, r: [((_ends(x, P, r)[0] - _ends(x, P, r)[1]) ** 2).mean()] * 2
        ),
        "first Monte Carlo, then TD": lambda x, P, r: [
            ((_ends(x, P, r)[0] - found) ** 2).mean() for found in _ends(x, P, r)[:0:-1]
        ],
        "the mean of the squares is asked for": lambda x, P, r: [
            ((_ends(x, P, r)[0] - found) ** 2).sum() for found in _ends(x, P, r)[1:]
        ],
    },
    page="semi_gradient_td 3",
)
def errors_of_two_ends(x: Array, P: Array, r: Array) -> Array:
    """The mean squared error of the values at which gradient Monte Carlo and TD end: [2].

    x [S] is the only feature of each state, P [S, S] goes from state to state for ever and visits
    all alike, r [S] are the rewards, the discount is 0.9. Monte Carlo ends at the w with the least
    error, TD at the w of Σ x (r + γ (P x) w − x w) = 0. Is the first number ever above the second?
    """
    values = np.linalg.solve(np.eye(len(r)) - GAMMA * P, r).astype(np.float64)
    X, visits = x[:, None], np.full(len(r), 1 / len(r))
    system = td_system(X, visits, P, r, GAMMA)
    by_returns = least_squares_solution(system.c, X.T @ (visits * values))
    by_td = least_squares_solution(system.a, system.b)
    return np.array([value_error(w, X, values, visits) for w in (by_returns, by_td)])


@exercise(
    "n-step-and-lambda",
    lambda rng: (int(rng.integers(3, 10)), int(rng.choice([1, 2, 4, 100]))),
    {
        "at the end of the episode fewer than n rewards are left": lambda T, n: [-n] * T,
        "the last step is nearest to the goal": lambda T, n: -np.minimum(n, np.arange(1, T + 1)),
        "n rewards are added up, and not one": lambda T, n: [-1] * T,
    },
    page="semi_gradient_sarsa 2",
)
def targets_of_the_first_episode(T: int, n: int) -> Array:
    """The n-step targets of the steps of the first episode on the mountain: [T].

    Each of the T steps pays −1, and the last one terminates; there is no discount. All weights are
    0, and no two steps share a tile. Which steps can be told from each other by their targets, with
    n = 1 and with n = 4?
    """
    ended = torch.arange(T) == T - 1
    zeros = torch.zeros(T, dtype=torch.float64)
    return n_step_returns(zeros - 1, ended, ended & False, zeros, 1.0, n).numpy()


def _steps(visits: int, decay: float) -> float:
    return float((decay ** np.arange(visits)).sum())


@exercise(
    "linear-approximation",
    lambda rng: (int(rng.integers(2, 7)), float(rng.choice([0.5, 0.8, 0.9]))),
    {
        "the error may change its sign, as long as it does not grow: |1 − α e| ≤ 1": (
            lambda visits, decay: [1 / _steps(visits, decay), 1.0]
        ),
        "the trace of an earlier visit has faded": lambda visits, decay: [2 / visits, 2.0],
        "first accumulating traces, then replacing ones": lambda visits, decay: [
            2.0,
            2 / _steps(visits, decay),
        ],
    },
    page="semi_gradient_sarsa 3",
)
def largest_step_size(visits: int, decay: float) -> Array:
    """The largest step size with which a tile's error does not grow: [2], with accumulating and with
    replacing traces.

    The tile was active in so many steps in a row. Its trace e began at 0; each step multiplies it by
    decay = γλ, and then adds 1 or sets it to 1. The last step's error δ moves the tile's value by
    α δ e, so that δ (1 − α e) is left.
    """
    accumulating = replacing = 0.0
    for _ in range(visits):
        accumulating, replacing = decay * accumulating + 1.0, 1.0
    return 2 / np.array([accumulating, replacing])


@exercise(
    "value-networks",
    lambda rng: (
        rng.choice([0.001, 0.01, 0.1, 0.5], rng.integers(3, 7)),
        int(rng.choice([5, 50, 2000])),
    ),
    {
        "a pair is missing if every one of the episodes lacks it": lambda chances, episodes: (
            1 - (1 - chances) ** episodes
        ).sum(),
        "pairs that are rare stay rare: average the powers, and not the chances": (
            lambda chances, episodes: len(chances) * (1 - chances.mean()) ** episodes
        ),
        "chances of events that may come together do not add up": lambda chances, episodes: (
            np.maximum(1 - episodes * chances, 0).sum()
        ),
    },
    page="fitted_q 1",
)
def pairs_still_missing(chances: Array, episodes: int) -> float:
    """How many pairs of a state and an action no recorded episode has, on average.

    chances [n] says for each pair how likely one episode is to have it, whatever the others have.
    Which pairs does a recording of 5 random episodes lack, and which one of 2 000?
    """
    return float(((1 - chances) ** episodes).sum())


def action_case(rng: Generator) -> tuple[Array, Array, Array]:
    actions = rng.integers(-2, 3, 4).astype(float)
    if rng.random() < 0.5:
        actions[:] = rng.integers(1, 3)
    else:
        actions[:2] = -2.0, 2.0
    return actions, rng.integers(-4, 5, 4).astype(float), rng.integers(-2, 3, 2).astype(float)


def _slope(actions: Array, values: Array, start: Array) -> float:
    X = np.stack([0 * actions + 1, actions], axis=1)
    return float((start + np.linalg.pinv(X) @ (values - X @ start))[1])


@exercise(
    "maximum-entropy",
    action_case,
    {
        "where all actions are alike, the slope depends on where the weights began": (
            lambda actions, values, start: _slope(actions, values, 0 * start)
        ),
        "the error moves the slope, too, where the actions are not 0": (
            lambda actions, values, start: (
                start[1] if np.ptp(actions) == 0 else _slope(actions, values, start)
            )
        ),
        "the slope has to fit the values": lambda actions, values, start: start[1],
    },
    page="ddpg 2",
)
def fitted_slope(actions: Array, values: Array, start: Array) -> float:
    """The slope w of a critic Q(a) = b + w a that gradient descent has fitted to recorded actions.

    values [B] are the targets of the actions [B]. start [2] is where b and w began. Of all lines
    with the least squared error, gradient descent ends at the one nearest to where it began. What
    does the slope say if all recorded actions are the same, as without exploration?
    """
    X = np.stack([np.ones_like(actions), actions], axis=1)
    return float((start + least_squares_solution(X.T @ X, X.T @ (values - X @ start)))[1])


def critic_case(rng: Generator) -> tuple[Array, Array, float]:
    steps = int(rng.integers(2, 6))
    rewards = -rng.integers(0, 5, steps).astype(float)
    return rng.normal(-5, 3, steps).round(1), rewards, float(rng.choice([0.9, 0.99]))


def _returns(rewards: Array, gamma: float) -> Array:
    ended = torch.arange(len(rewards)) == len(rewards) - 1
    return discounted_returns(tensor(rewards), ended, ended & False, gamma).numpy()


@exercise(
    "maximum-entropy",
    critic_case,
    {
        "above 0 is too high: the critic's value less the return": lambda q, rewards, gamma: (
            _returns(rewards, gamma) - q
        ).mean(),
        "the critic predicts discounted returns": lambda q, rewards, gamma: (
            q - _returns(rewards, 1.0)
        ).mean(),
        "the return of a step is that of all steps that follow": lambda q, rewards, gamma: (
            q - rewards
        ).mean(),
        "each step's value is compared with the return from that step on": (
            lambda q, rewards, gamma: q.mean() - _returns(rewards, gamma)[0]
        ),
    },
    page="ddpg 3",
)
def bias_of_the_critic(q: Array, rewards: Array, gamma: float) -> float:
    """By how much a critic is too high, on average over the steps of an episode.

    q [T] are its values of the actions that were taken, rewards [T] what they paid; the last step
    terminates. gamma is the discount. (Where a time limit cuts the episode, the returns lack what
    would have followed, and this number is not the critic's fault.)
    """
    return float((q - _returns(rewards, gamma)).mean())


@exercise(
    "learned-models",
    lambda rng: (
        int(rng.choice([64, 100, 256])),
        float(rng.choice([0.0, 0.5, 0.95])),
        int(rng.integers(1, 5)),
    ),
    {
        "imagined rows take the place of stored ones: a minibatch is no larger": (
            lambda batch, ratio, updates: [updates * batch, updates * round(ratio * batch)]
        ),
        "every gradient step has a minibatch of its own": lambda batch, ratio, updates: [
            batch - round(ratio * batch),
            round(ratio * batch),
        ],
        "the ratio is the share of imagined rows": lambda batch, ratio, updates: [
            updates * round(ratio * batch),
            updates * (batch - round(ratio * batch)),
        ],
    },
    page="mbpo 1",
)
def rows_of_each_step(batch: int, ratio: float, updates: int) -> Array:
    """How many rows MBPO learns from for each real step: [2], stored ones and imagined ones.

    There are so many gradient steps for a real step, each with a minibatch of `batch` rows, of which
    the share `ratio` is imagined (a whole number, rounded). How often is each real step learned
    from with ratio = 0, and how often with 0.95?
    """
    imagined = round(ratio * batch)
    return updates * np.array([batch - imagined, imagined])


def rollout_case(rng: Generator) -> tuple[Array, Array, Array]:
    rewards, values = rng.integers(-3, 4, (2, 5)).astype(float)
    return rewards, values, rng.random(5) < 0.3


@exercise(
    "learned-models",
    rollout_case,
    {
        "after a termination nothing is paid: V(s') of what the model goes on to predict is not "
        "part of the target": lambda r, v, over: r + GAMMA * v,
        "after a termination the rollout goes on from another state, whose steps count": (
            lambda r, v, over: (r + GAMMA * ~over * v) * (np.cumsum(over) - over == 0)
        ),
        "V(s') is discounted once": lambda r, v, over: r + ~over * v,
    },
    page="mbpo 3",
)
def targets_in_a_model(rewards: Array, next_values: Array, terminated: Array) -> Array:
    """The one-step targets of an imagined rollout: [H], with the discount 0.9.

    rewards [H] and terminated [H] are what the model predicts for each step, next_values [H] what
    the critic says of the predicted next state. After a termination the rollout goes on from a
    stored state. What would the critic learn of falling down if it went on from where it fell?
    """
    over = torch.from_numpy(terminated)
    return td_target(tensor(rewards), over, tensor(next_values), GAMMA).numpy()


@exercise(
    "offline",
    lambda rng: (rng.integers(-2, 4, (4, 3)).astype(float), rng.integers(3, size=4)),
    {
        "the soft maximum is the logarithm of a sum, and above the maximum": lambda q, action: (
            q.max(axis=1) - q[np.arange(4), action]
        ).mean(),
        "the exponentials are added up, and not averaged": lambda q, action: (
            np.log(np.exp(q).mean(axis=1)) - q[np.arange(4), action]
        ).mean(),
        "the recorded action's value is subtracted": lambda q, action: np.log(
            np.exp(q).sum(axis=1)
        ).mean(),
    },
    page="cql 3",
)
def bracket_of_cql(q: Array, action: Array) -> float:
    """The bracket of CQL's loss, on average: log Σ exp q(b) less the recorded action's value.

    q [B, A] are the values of all actions in the recorded states, action [B] what was recorded. In
    which case is it nearly 0?
    """
    return float(conservative_gap(tensor(q), torch.from_numpy(action)))
