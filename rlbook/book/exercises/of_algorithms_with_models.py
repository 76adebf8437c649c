"""Exercises of the algorithms' pages on models, search, and what noise does to an estimate. The
right answers are the library's own functions, wherever it has one."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from rlbook.algorithms.planning.search.puct_selection import mix_noise, visit_policy
from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array


def search_case(rng: Generator) -> tuple[Array, Array]:
    return rng.dirichlet(np.ones(3), 5).round(3), np.array([rng.permutation(3) for _ in range(5)])


@exercise(
    "trees",
    search_case,
    {
        "where the moves differ is asked for, and not where they are the same": (
            lambda prior, visits: (prior.argmax(axis=1) == visits.argmax(axis=1)).mean()
        ),
        "the move counts, and not its probability": lambda prior, visits: (
            np.abs(prior - visits / 3).sum(axis=1).mean() / 2
        ),
    },
    page="alphazero 1",
)
def moves_of_the_search(prior: Array, visits: Array) -> float:
    """The share of positions in which AlphaZero's search plays another move than its network.

    prior [N, A] are the network's probabilities in each of N positions; it would play the likeliest
    move. visits [N, A] say how often the search tried each move; it plays the one tried most.
    """
    return float((prior.argmax(axis=1) != visits.argmax(axis=1)).mean())


@exercise(
    "trees",
    lambda rng: (rng.permutation(4) * 3.0, float(rng.choice([0.0, 0.5, 1.0, 2.0]))),
    {
        "the exponent is 1/τ: a small τ makes the most visited move certain": lambda visits, tau: (
            visits**tau / (visits**tau).sum()
        ),
        "with τ = 0 the most visited move has the probability 1": lambda visits, tau: (
            visits ** (1 / max(tau, 1)) / (visits ** (1 / max(tau, 1))).sum()
        ),
        "τ is an exponent, and the visits are no logits": lambda visits, tau: (
            np.exp((visits - visits.max()) / max(tau, 1e-9))
            / np.exp((visits - visits.max()) / max(tau, 1e-9)).sum()
        ),
    },
    page="alphazero 2",
)
def move_probabilities(visits: Array, tau: float) -> Array:
    """The probabilities of AlphaZero's moves in its own games: [A], N^(1/τ) divided by their sum.

    visits [A] are the N, with one largest; with τ = 0 the most visited move is certain. How many
    different games are there then, if the search is the same each time?
    """
    return visit_policy(visits, tau)


@exercise(
    "trees",
    lambda rng: (*rng.dirichlet(np.ones(3), 2), float(rng.choice([0.0, 0.25]))),
    {
        "the noise is mixed in, so the prior has the rest of the weight": (
            lambda prior, noise, fraction: prior + fraction * noise
        ),
        "`fraction` is the weight of the noise": lambda prior, noise, fraction: (
            fraction * prior + (1 - fraction) * noise
        ),
    },
    page="alphazero 2",
)
def noisy_prior(prior: Array, noise: Array, fraction: float) -> Array:
    """The prior at the root of AlphaZero's own games: [A], with so large a fraction of noise.

    prior [A] and noise [A] are distributions. Without the noise, a move whose prior is near 0 is
    never tried.
    """
    return np.array(mix_noise(prior.tolist(), noise, fraction))


@exercise(
    "trees",
    lambda rng: (
        float(rng.integers(2, 9)),
        float(rng.choice([0.3, 0.5, 0.8])),
        float(rng.choice([0.5, 0.9])),
    ),
    {
        "a search that looks guesses correctly each time": lambda prize, p, gamma: [
            gamma * max(p, 1 - p) * prize,
            gamma * max(p, 1 - p) * prize,
        ],
        "without looking one can still guess the likelier side": lambda prize, p, gamma: [
            gamma * prize,
            gamma * min(p, 1 - p) * prize,
        ],
        "the prize comes one step later": lambda prize, p, gamma: [prize, max(p, 1 - p) * prize],
    },
    page="mcts 2",
)
def worth_of_looking(prize: float, p: float, gamma: float) -> Array:
    """What a search says that tossing a coin and then guessing its side is worth: [2], with chance
    nodes, and open-loop.

    Heads come with the probability p. The toss pays nothing, the right guess in the next step pays
    the prize. With chance nodes the guess may depend on the side that came; open-loop, it is chosen
    before.
    """
    return gamma * prize * np.array([1.0, max(p, 1 - p)])


def draw_two_actions(rng: Generator) -> tuple[Array, Array]:
    low, high = np.sort(rng.random(2).round(2) / 2)
    tries = np.array([rng.integers(200, 400), rng.integers(20, 150)])
    return tries.astype(float), np.array([high + 0.05, low])


@exercise(
    "trees",
    draw_two_actions,
    {
        "the logarithm of all tries stands under the root, too": lambda tries, q: (
            (q[0] - q[1]) / np.log(tries.sum()) / (np.sqrt(1 / tries[1]) - np.sqrt(1 / tries[0]))
        ),
        "it is the logarithm of the tries, and not their number": lambda tries, q: (
            (q[0] - q[1]) / (np.sqrt(tries.sum() / tries[1]) - np.sqrt(tries.sum() / tries[0]))
        ),
        "the bonus is the root": lambda tries, q: (
            (q[0] - q[1]) / (np.log(tries.sum()) * (1 / tries[1] - 1 / tries[0]))
        ),
    },
    page="mcts 3",
)
def uct_threshold(tries: Array, q: Array) -> float:
    """Above which c UCT takes the second of two actions, whose value is lower and which was tried
    less often.

    An action's score is q + c √(ln N / n): tries [2] are the n, N is their sum, q [2] are the scaled
    values.
    """
    bonus = np.sqrt(np.log(tries.sum()) / tries)
    return float((q[0] - q[1]) / (bonus[1] - bonus[0]))


def memory_case(rng: Generator) -> tuple[Array, Array, Array, Array, Array]:
    q = rng.integers(-2, 4, (3, 2)).astype(float) * float(rng.random() < 0.7)
    states, next_states = rng.integers(3, size=(2, 4))
    return q, states, rng.integers(2, size=4), rng.integers(0, 3, 4) * 1.0, next_states


def _plan(
    q: Array, states: Array, actions: Array, rewards: Array, next_states: Array, *, known: bool
) -> Array:
    table = q.copy()
    for s, a, r, following in zip(states, actions, rewards, next_states, strict=True):
        source = q if known else table
        table[s, a] += 0.5 * (r + 0.9 * source[following].max() - source[s, a])
    return table


@exercise(
    "model-based",
    memory_case,
    {
        "each planned step starts from what the one before it has left": (
            lambda q, s, a, r, after: _plan(q, s, a, r, after, known=True)
        ),
        "a planned step is one of Q-learning: the largest next value": lambda q, s, a, r, after: (
            _plan_by_means(q, s, a, r, after)
        ),
    },
    page="dyna_q 1",
    keeps_arguments=True,
)
def planned_steps(
    q: Array, states: Array, actions: Array, rewards: Array, next_states: Array
) -> Array:
    """The table after some planned steps of Dyna-Q, one after the other: [S, A], a new array.

    q [S, A] is the table before. Each planned step draws a remembered step, states [n] and actions
    [n], with its reward and next state, and updates as Q-learning does, with the step size 0.5 and
    the discount 0.9; no episode ends here. What changes where q and all rewards are still 0?
    """
    return _plan(q, states, actions, rewards, next_states, known=False)


def _plan_by_means(q: Array, s: Array, a: Array, r: Array, after: Array) -> Array:
    table = q.copy()
    for state, action, reward, following in zip(s, a, r, after, strict=True):
        table[state, action] += 0.5 * (
            reward + 0.9 * table[following].mean() - table[state, action]
        )
    return table


@exercise(
    "model-based",
    lambda rng: (float(rng.choice([0.05, 0.5, 0.9])), float(rng.integers(1, 5))),
    {
        "each new target moves the value; what is left of older ones adds to it": (
            lambda alpha, variance: alpha**2 * variance
        ),
        "variances add, and not deviations: the sum of α² (1 − α)^(2k)": (
            lambda alpha, variance: alpha / (2 - alpha) * np.sqrt(variance)
        ),
        "the weights are α (1 − α)^k, and their squares add up": lambda alpha, variance: variance,
    },
    page="dyna_q 2",
)
def wavering(alpha: float, variance: float) -> float:
    """The variance of a value that has learned for long with a constant step size.

    Its targets are independent, with the same mean and this variance. After k more steps a target
    has the weight alpha (1 − alpha)^k in the value. Compare alpha = 0.5 with 0.05.
    """
    return alpha / (2 - alpha) * variance


def draw_new_step(rng: Generator) -> tuple[Array, Array, Array, Array, Array, int]:
    return (*memory_case(rng), int(rng.integers(3)))


def _errors(q: Array, s: Array, a: Array, r: Array, after: Array) -> Array:
    return r + 0.9 * q[after].max(axis=1) - q[s, a]


@exercise(
    "model-based",
    draw_new_step,
    {
        "only what leads to the changed state is asked about": lambda q, s, a, r, after, changed: (
            np.abs(_errors(q, s, a, r, after))
        ),
        "it is the state that a step leads to, and not the one where it began": (
            lambda q, s, a, r, after, changed: np.abs(_errors(q, s, a, r, after)) * (s == changed)
        ),
        "a value that should fall is news, too: the size of the error counts": (
            lambda q, s, a, r, after, changed: _errors(q, s, a, r, after) * (after == changed)
        ),
    },
    page="dyna_q 3",
)
def news_for_predecessors(
    q: Array, states: Array, actions: Array, rewards: Array, next_states: Array, changed: int
) -> Array:
    """How urgent each remembered step is after the values of the state `changed` have changed: [n].

    It is |r + 0.9 max q(s') − q(s, a)| for the steps that led to that state, and 0 for the others.
    q [S, A] is the table; states, actions, rewards and next_states [n] are what is remembered.
    """
    priority = np.abs(_errors(q, states, actions, rewards, next_states))
    return priority * (next_states == changed)


def draw_sparse_chain(rng: Generator) -> tuple[Array, int]:
    P = rng.random((4, 2, 4)) * (rng.random((4, 2, 4)) < 0.5)
    P[..., 0] += 0.1
    return (P / P.sum(axis=-1, keepdims=True)).round(2), int(rng.integers(4))


@exercise(
    "planning",
    draw_sparse_chain,
    {
        "each pair of state and action that may lead there counts, and not only its state": (
            lambda P, state: [
                (P[:, :, state] > 0).any(axis=1).sum(),
                (P > 0).sum(axis=2)[P[:, :, state] > 0].sum(),
            ]
        ),
        "only pairs that may lead there are updated": lambda P, state: [
            P.shape[0] * P.shape[1],
            (P > 0).sum(),
        ],
        "worked out afresh, each of the pairs needs all of its own successors": lambda P, state: [
            (P[:, :, state] > 0).sum(),
            (P[state] > 0).sum(),
        ],
    },
    page="prioritized_sweeping 2",
)
def costs_of_a_backup(P: Array, state: int) -> Array:
    """What it costs to tell all predecessors that V(state) has changed: [2], where Q is kept, and
    where it is worked out afresh.

    P [S, A, S] are the probabilities of the next states. Where Q(u, a) is kept, each pair (u, a) that
    may lead to the state costs one addition. Worked out afresh, each of these pairs costs one
    product for every next state that it may lead to.
    """
    leads = P[:, :, state] > 0
    return np.array([leads.sum(), (P > 0).sum(axis=2)[leads].sum()])


@exercise(
    "learned-models",
    lambda rng: (
        float(rng.choice([0.1, 0.5])),
        float(rng.choice([0.8, 1.0, 1.2])),
        int(rng.integers(1, 21)),
    ),
    {
        "an error grows by the factor L in each later step": lambda e, L, horizon: e * horizon,
        "every step adds an error of its own": lambda e, L, horizon: e * L ** (horizon - 1),
        "the error of the last step has not grown yet": lambda e, L, horizon: sum(
            e * L**k for k in range(1, horizon + 1)
        ),
    },
    page="mbpo 2",
)
def error_after_steps(e: float, L: float, horizon: int) -> float:
    """How far a rollout in the model may be from the true states after so many steps.

    In every step the model adds an error of e, and the dynamics multiply the errors that are there
    already by L. Compare an L below 1 with one above.
    """
    return float((e * L ** np.arange(horizon)).sum())


def plans(rng: Generator) -> tuple[Array, Array]:
    true = rng.integers(-2, 3, 6).astype(float)
    return true + rng.normal(size=(4, 6)).round(2), true


@exercise(
    "learned-models",
    plans,
    {
        "the plan that looks best is compared with what that same plan is worth": (
            lambda predicted, true: [
                predicted[0].max() - true.max(),
                predicted.mean(axis=0).max() - true.max(),
            ]
        ),
        "the members' mean is taken before the best plan is chosen": lambda predicted, true: [
            (predicted - true)[0, predicted[0].argmax()],
            np.mean([(row - true)[row.argmax()] for row in predicted]),
        ],
        "too high is above 0": lambda predicted, true: -surprises.function(predicted, true),
    },
    page="world_model 2",
)
def surprises(predicted: Array, true: Array) -> Array:
    """By how much the return of the chosen plan was predicted too high: [2], where the first member
    of the ensemble chooses and predicts, and where the mean of all members does.

    predicted [M, K] are M members' returns of K plans, true [K] what the plans are worth. The plan
    with the largest prediction is chosen.
    """
    judges = np.stack([predicted[0], predicted.mean(axis=0)])
    chosen = judges.argmax(axis=1)
    return judges[[0, 1], chosen] - true[chosen]


@exercise(
    "learned-models",
    lambda rng: (
        float(rng.choice([0.7, 0.9])),
        float(rng.choice([0.8, 1.0, 1.1])),
        float(rng.integers(1, 4)),
        int(rng.integers(2, 9)),
    ),
    {
        "the model goes on from its own states, and not from the true ones": (
            lambda a, b, x, steps: abs(a - b) * a ** (steps - 1) * x
        ),
        "errors of a product do not add up to a multiple of the first": lambda a, b, x, steps: (
            steps * abs(a - b) * x
        ),
        "a distance has no sign": lambda a, b, x, steps: (a**steps - b**steps) * x,
    },
    page="world_model 3",
)
def rollout_distance(a: float, b: float, x: float, steps: int) -> float:
    """How far a model's rollout is from the true state after so many steps.

    The true state is multiplied by a in each step, the model's by b; both begin at x, which is above
    0. Compare it with the error of one step, |a − b| x.
    """
    return abs(a**steps - b**steps) * x


@exercise(
    "temporal-difference",
    lambda rng: (
        rng.dirichlet(np.ones(3)).round(2),
        rng.integers(-3, 4, 3) * 1.0,
        float(rng.choice([0.5, 0.9])),
    ),
    {
        "the next value is multiplied by γ, so its variance by γ²": lambda pi, q, gamma: (
            gamma * (pi @ q**2 - (pi @ q) ** 2)
        ),
        "the actions are drawn with the policy's probabilities": lambda pi, q, gamma: (
            gamma**2 * q.var()
        ),
        "the variance is the mean square less the square of the mean": lambda pi, q, gamma: (
            gamma**2 * (pi @ q**2)
        ),
    },
    page="expected_sarsa 2",
)
def variance_of_sarsa(pi: Array, q: Array, gamma: float) -> float:
    """The variance of SARSA's target r + γ q(s', a') that comes from drawing a' alone.

    pi [A] are the policy's probabilities in s' (they add up to 1 but for rounding, so take
    Σ π q² − (Σ π q)²), q [A] the action values there. The target of expected SARSA has none of it.
    """
    return float(gamma**2 * (pi @ q**2 - (pi @ q) ** 2))


@exercise(
    "n-step-and-lambda",
    lambda rng: (
        int(rng.integers(1, 10)),
        float(rng.choice([0.9, 1.0])),
        float(rng.integers(1, 4)),
    ),
    {
        "each later reward is discounted once more": lambda n, gamma, variance: n * variance,
        "a factor γ multiplies the variance by γ²": lambda n, gamma, variance: (
            variance * (gamma ** np.arange(n)).sum()
        ),
        "n steps have n rewards": lambda n, gamma, variance: (
            variance * (gamma ** (2 * np.arange(n + 1))).sum()
        ),
    },
    page="n_step_sarsa 2",
)
def noise_of_n_steps(n: int, gamma: float, variance: float) -> float:
    """The variance of an n-step return that comes from its rewards alone.

    The rewards are independent, each with this variance; the value at the end counts as exact.
    """
    return float(variance * (gamma ** (2 * np.arange(n))).sum())


@exercise(
    "monte-carlo",
    lambda rng: (
        int(rng.integers(1, 30)),
        float(rng.choice([0.1, 0.5, 1.0])),
        int(rng.integers(2, 6)),
    ),
    {
        "the last step is always learned from: nothing that follows it can be exploratory": (
            lambda T, epsilon, A: _runs(T, 1 - epsilon + epsilon / A) * (1 - epsilon + epsilon / A)
        ),
        "a random action may be the greedy one, too": lambda T, epsilon, A: _runs(T, 1 - epsilon),
        "the first exploratory step ends the learning, and not only its own": (
            lambda T, epsilon, A: T * (1 - epsilon + epsilon / A)
        ),
    },
    page="off_policy_mc 3",
)
def steps_learned_from(T: int, epsilon: float, A: int) -> float:
    """How many of the last steps of an episode off-policy Monte Carlo control learns from, on
    average.

    The episode has T steps, and each action was ε-greedy among A, with one greedy action. A step is
    learned from if all actions after it were greedy.
    """
    return _runs(T, 1 - epsilon + epsilon / A)


def _runs(T: int, greedy: float) -> float:
    return float((greedy ** np.arange(T)).sum())


@exercise(
    "temporal-difference",
    lambda rng: (int(rng.integers(2, 40)), float(rng.choice([0.1, 0.5]))),
    {
        "which table learns is drawn at each step, so the mean is over how often it was this one": (
            lambda n, alpha: [1 - (1 - alpha) ** n, 1 - (1 - alpha) ** (n / 2)]
        ),
        "the step size of the table that learns is not halved: on average (1 − α/2)ⁿ is left": (
            lambda n, alpha: [1 - (1 - alpha) ** n, (1 - (1 - alpha) ** n) / 2]
        ),
    },
    page="double_q_learning 2",
)
def way_of_two_tables(n: int, alpha: float) -> Array:
    """Which share of the way to a constant target an estimate has gone after n steps, on average:
    [2], in Q-learning's one table, and in a table of double Q-learning.

    Each step moves one estimate by alpha of what is left. Double Q-learning draws which of its two
    tables that is, both as likely.
    """
    return np.array([1 - (1 - alpha) ** n, 1 - (1 - alpha / 2) ** n])
