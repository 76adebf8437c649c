"""Exercises of the algorithms' pages on values that are learned from steps and episodes. The right
answers are the library's own functions, wherever it has one."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array
from rlbook.functional import linear_td


@exercise(
    "monte-carlo",
    lambda rng: (int(rng.integers(2, 9)), *rng.integers(-2, 3, 2).astype(float)),
    {
        "the ends are no states: the first state is one step from the left one": (
            lambda n, left, right: left + (right - left) * np.arange(n) / n
        ),
        "state 1 is next to the left end": lambda n, left, right: _walk(n, right, left),
    },
    page="mc_prediction 1",
)
def values_of_a_walk(n: int, left: float, right: float) -> Array:
    """The values of the n states of a random walk, from left to right: [n], without a discount.

    Each step goes to one of the two neighbours, either as likely. Stepping off the left end pays
    `left`, off the right one `right`, and nothing else pays. Each value
    is the mean of its neighbours'.
    """
    return _walk(n, left, right)


def _walk(n: int, left: float, right: float) -> Array:
    return left + (right - left) * np.arange(1, n + 1) / (n + 1)


@exercise(
    "monte-carlo",
    lambda rng: (int(rng.integers(1, 8)), float(rng.choice([0.1, 0.3, 0.5]))),
    {
        "this is the mean, in which all returns weigh the same": lambda n, alpha: np.full(n, 1 / n),
        "the latest return weighs most": lambda n, alpha: _fading(n, alpha)[::-1],
        "the weight of a return shrinks with each one after it": lambda n, alpha: np.full(n, alpha),
    },
    page="mc_control 1",
)
def weights_of_returns(n: int, alpha: float) -> Array:
    """How much each of n returns counts in a value that was moved by each of them in turn: [n].

    The step size is alpha each time, and the first return comes first. The rest, up to 1, is the
    weight of the value at the beginning. Which of the returns are those of the oldest policies?
    """
    return _fading(n, alpha)


def _fading(n: int, alpha: float) -> Array:
    return alpha * (1 - alpha) ** np.arange(n - 1, -1, -1)


@exercise(
    "monte-carlo",
    lambda rng: (float(rng.choice([0.1, 0.2, 0.5])), int(rng.integers(1, 7))),
    {
        "an episode has 1 / `end` steps on average": lambda p, n: [n * p, n],
        "Q-learning learns from each step": lambda p, n: [n / p, n / p],
    },
    page="mc_control 3",
)
def lessons_of_an_episode(end: float, needed: int) -> Array:
    """How many steps pass, on average, before each of two agents has learned `needed` times: [2].

    Each step ends the episode with probability `end`, and another one begins at once. The first
    agent, Monte Carlo, learns once an episode, after its last step. The second, Q-learning, learns
    after every step.
    """
    return np.array([needed / end, needed])


def _effective(w: Array) -> float:
    return float(w.sum() ** 2 / (w**2).sum())


@exercise(
    "monte-carlo",
    lambda rng: (np.append(rng.integers(0, 5, rng.integers(1, 6)), 1.0),),
    {
        "the square of the sum is divided by the sum of the squares": lambda w: (
            (w**2).sum() / w.sum() ** 2
        ),
        "weights of 0 do not count, and unequal ones count less than their number": lambda w: len(
            w
        ),
        "the weights are squared one by one below": lambda w: w.sum() ** 2 / w.sum(),
    },
    page="off_policy_mc 1",
)
def updates_of_equal_weight(w: Array) -> float:
    """How many updates of equal weight say as much as those with the weights w [n]: (Σ w)² / Σ w².

    At least one weight is above 0. Try n equal weights, and one that is far above the others.
    """
    return _effective(w)


@exercise(
    "temporal-difference",
    lambda rng: (
        float(rng.choice([0.05, 0.15, 0.5])),
        int(rng.choice([1, 10, 100])),
        float(rng.integers(1, 4)),
        float(rng.choice([0.25, 1.0])),
    ),
    {
        "the noise of the targets stays, however long one learns": lambda alpha, n, error, variance: (
            (1 - alpha) ** (2 * n) * error**2
        ),
        "what was wrong at the beginning fades, but is not gone": lambda alpha, n, error, variance: (
            _noise(alpha, n) * variance
        ),
        "errors are squared: after n updates the first one has faded 2 n times": (
            lambda alpha, n, error, variance: (
                (1 - alpha) ** n * error**2 + _noise(alpha, n) * variance
            )
        ),
    },
    page="td_prediction 1",
)
def error_of_a_step_size(alpha: float, n: int, error: float, variance: float) -> float:
    """The mean squared error of a value after n updates with the step size alpha.

    The value begins `error` away from the truth. Each target is the truth plus noise of mean 0 and
    this variance, independent of the others. Compare a large alpha with a small one, for a small n
    and for a large one.
    """
    squared = error**2
    for _ in range(n):
        squared = (1 - alpha) ** 2 * squared + alpha**2 * variance
    return squared


def _noise(alpha: float, n: int) -> float:
    return alpha / (2 - alpha) * (1 - (1 - alpha) ** (2 * n))


@exercise(
    "n-step-and-lambda",
    lambda rng: (
        float(rng.integers(1, 4)),
        float(rng.choice([0.25, 1.0, 4.0])),
        int(rng.integers(1, 9)),
    ),
    {
        "n rewards are noisier than one": lambda error, variance, n: (
            error**2 / (error**2 + variance)
        ),
        "errors are squared, as variances are": lambda error, variance, n: (
            error / (error + n * variance)
        ),
        "the larger the noise, the smaller the step": lambda error, variance, n: (
            n * variance / (error**2 + n * variance)
        ),
    },
    page="n_step_td 2",
)
def best_step_size(error: float, variance: float, n: int) -> float:
    """The step size that makes the mean squared error smallest after one update with an n-step return.

    The value is `error` away from the truth. The return is the truth plus noise whose variance is
    n times `variance`. That is, the α of the smallest (1 − α)² error² + α² n variance.
    """
    return error**2 / (error**2 + n * variance)


def _error_after(P: Array, error: Array, gamma: float, n: int) -> Array:
    for _ in range(n):
        error = gamma * P @ error
    return error


@exercise(
    "n-step-and-lambda",
    lambda rng: (
        rng.dirichlet(np.ones(4), size=3).round(2)[:, :3],
        rng.integers(-3, 4, 3).astype(float),
        float(rng.choice([0.9, 1.0])),
        int(rng.integers(1, 5)),
    ),
    {
        "the error is that of the state n steps later, and an episode may have ended by then": (
            lambda P, error, gamma, n: gamma**n * error
        ),
        "one step is not enough: the chain goes on n times": lambda P, error, gamma, n: (
            gamma**n * P @ error
        ),
        "the discount counts for each step": lambda P, error, gamma, n: (
            _error_after(P, error, 1.0, n) * gamma
        ),
    },
    page="n_step_td 3",
)
def error_of_the_return(P: Array, error: Array, gamma: float, n: int) -> Array:
    """How far the n-step return of each state is from its true value, on average: [S].

    P [S, S] is the chain; a row that adds up to less than 1 may end the episode. error [S] is
    V − V^π. In a short walk most episodes have ended after n steps: what is left of the error then?
    """
    return _error_after(P, error, gamma, n)


@exercise(
    "n-step-and-lambda",
    lambda rng: (float(rng.choice([0.0, 0.5, 0.8, 1.0])), int(rng.integers(2, 7))),
    {
        "the return to the end has all the weight that is left": lambda lam, T: (
            (1 - lam) * lam ** np.arange(T)
        ),
        "the weights are (1 − λ) λ to the power of n − 1": lambda lam, T: np.append(
            lam ** np.arange(T - 1.0), lam ** (T - 1.0)
        ),
        "the weights add up to 1": lambda lam, T: lam ** np.arange(1.0, T + 1),
    },
    page="td_lambda 1",
)
def weights_of_lambda(lam: float, T: int) -> Array:
    """The weights of the 1-, 2-, …, T-step return in the λ-return of a state T steps before the end.

    [T], of which the last one is the weight of the whole return. 0⁰ is 1. Look at λ = 0 and λ = 1.
    """
    return np.append((1 - lam) * lam ** np.arange(T - 1.0), lam ** (T - 1.0))


def _steps_of_traces(alpha: float, decay: float, visits: int) -> Array:
    accumulating = dutch = 0.0
    for _ in range(visits):
        accumulating = decay * accumulating + 1
        dutch = decay * dutch * (1 - alpha) + 1
    return alpha * np.array([accumulating, dutch])


@exercise(
    "n-step-and-lambda",
    lambda rng: (
        float(rng.choice([0.2, 0.5, 0.8])),
        float(rng.choice([0.5, 0.95])),
        int(rng.integers(2, 9)),
    ),
    {
        "a true-online trace is faded by 1 − α, too": lambda alpha, decay, visits: np.repeat(
            _steps_of_traces(alpha, decay, visits)[0], 2
        ),
        "the visits add up": lambda alpha, decay, visits: _steps_of_traces(alpha, decay, 1),
        "the step is α times the trace": lambda alpha, decay, visits: (
            _steps_of_traces(alpha, decay, visits) / alpha
        ),
    },
    page="td_lambda 2",
)
def share_of_the_way(alpha: float, decay: float, visits: int) -> Array:
    """Which share of an error a state takes over that was visited so often in a row: [2], α times z.

    decay is γλ. First with an accumulating trace, where a visit makes z to γλ z + 1. Then with that
    of true-online TD(λ), γλ z (1 − α) + 1. What does a share above 1 mean, and one above 2?
    """
    return _steps_of_traces(alpha, decay, visits)


def episode(rng: Generator) -> tuple[Array, Array, Array]:
    states = rng.integers(0, 3, rng.integers(3, 7))
    return (
        rng.integers(-2, 3, 3).astype(float),
        states,
        rng.integers(-2, 3, len(states)).astype(float),
    )


def _td(V: Array, states: Array, rewards: Array, *, offline: bool, late: bool = False) -> Array:
    learned = V.copy()
    for t, s in enumerate(states):
        table = V if offline else learned
        after = table[states[t + 1]] if t + 1 < len(states) else 0.0
        learned[s] += 0.5 * (rewards[t] + after - (learned[s] if late else table[s]))
    return learned


@exercise(
    "n-step-and-lambda",
    episode,
    {
        "first online, where a step sees what the steps before it have changed": lambda *given: [
            _td(*given, offline=True),
            _td(*given, offline=False),
        ],
        "offline, the error too is that of the table before the episode": lambda *given: [
            _td(*given, offline=False),
            _td(*given, offline=True, late=True),
        ],
    },
    page="td_lambda 3",
)
def online_and_offline(V: Array, states: Array, rewards: Array) -> Array:
    """The values after one episode with TD(0), online and offline: [2, S].

    V [S] are the values before; states [T] are those that were visited, rewards [T] what was paid on
    leaving each of them, and the last step ends the episode. The step size is 0.5, nothing is
    discounted. Offline, all changes are computed from the table before the episode, and added up at
    its end.
    """
    return np.array([_td(V, states, rewards, offline=kind) for kind in (False, True)])


@exercise(
    "temporal-difference",
    lambda rng: (float(rng.choice([0.05, 0.1, 0.4])), int(rng.integers(2, 13))),
    {
        "a random action goes down in one case of four": lambda epsilon, steps: (
            1 - (1 - epsilon) ** steps
        ),
        "falls that come after the first one are not counted again": lambda epsilon, steps: (
            steps * epsilon / 4
        ),
    },
    page="sarsa 1",
)
def chance_of_a_fall(epsilon: float, steps: int) -> float:
    """The probability that an ε-greedy agent falls at least once on its way along the cliff.

    In each of so many steps the greedy action goes on, and one of the four actions falls. A random
    action is any of the four, as likely.
    """
    return 1 - (1 - epsilon / 4) ** steps


@exercise(
    "temporal-difference",
    lambda rng: (rng.integers(-4, 5, 4).astype(float), float(rng.choice([0.0, 0.1, 0.5]))),
    {
        "a random action may be the greedy one, too": lambda q, epsilon: (
            epsilon * (q.max() - (q.sum() - q.max()) / 3)
        ),
        "Q-learning's target is the larger one": lambda q, epsilon: -epsilon * (q.max() - q.mean()),
        "SARSA follows its own policy, which is greedy with probability 1 − ε": lambda q, epsilon: (
            q.max() - q.mean()
        ),
    },
    page="sarsa 2",
)
def gap_of_the_targets(q: Array, epsilon: float) -> float:
    """By how much Q-learning's target is above SARSA's, on average, without a discount.

    q [A] are the values in the next state, where an ε-greedy policy acts: a random action, any of
    the A, with probability epsilon, and otherwise the best. What is left of the gap at ε = 0?
    """
    return float(epsilon * (q.max() - q.mean()))


@exercise(
    "temporal-difference",
    lambda rng: (int(rng.integers(6, 13)), int(rng.integers(1, 7)), float(rng.choice([50, 100]))),
    {
        "a random action goes down in one case of four": lambda steps, detour, cost: (
            detour / (steps * cost)
        ),
        "each step along the edge may fall": lambda steps, detour, cost: 4 * detour / cost,
    },
    page="sarsa 3",
)
def epsilon_for_the_edge(steps: int, detour: int, cost: float) -> float:
    """Below which ε the way along the cliff is better than the way around for an ε-greedy agent.

    Each of so many steps along the edge falls with probability ε / 4, which costs `cost`; count no
    other consequence of random actions. The way around has `detour` steps more, each of which costs
    1.
    """
    return 4 * detour / (steps * cost)


def _greedy(rewards: Array, alpha: float, steps: int, start: float = 0.0) -> list[int]:
    q, chosen = np.full(len(rewards), start), []
    for _ in range(steps):
        chosen.append(int(q.argmax()))
        q[chosen[-1]] += alpha * (rewards[chosen[-1]] - q[chosen[-1]])
    return chosen


@exercise(
    "introduction",
    lambda rng: (
        -rng.integers(1, 5, 3).astype(float),
        float(rng.choice([0.1, 0.5])),
        int(rng.integers(7, 10)),
    ),
    {
        "a reward below 0 makes an action look worse than those that were not tried": (
            lambda rewards, alpha, steps: [0] * steps
        ),
        "α moves the value only a part of the way": lambda rewards, alpha, steps: _greedy(
            rewards, 1.0, steps
        ),
    },
    page="q_learning 1",
)
def greedy_choices(rewards: Array, alpha: float, steps: int) -> Array:
    """Which action a greedy agent takes in each of so many steps: [T], from a table of zeros.

    There is one state, and rewards [A], all negative, are what its actions pay. The agent takes the
    first of the largest values q, and then q(a) ← q(a) + α (reward − q(a)).
    """
    return np.array(_greedy(rewards, alpha, steps))


@exercise(
    "introduction",
    lambda rng: (float(rng.choice([0.05, 0.1, 0.4])), int(rng.integers(1, 13))),
    {
        "each fall begins the way anew, with new chances to fall": lambda epsilon, steps: (
            steps * epsilon / 4
        ),
        "the way that succeeds in the end is no fall": lambda epsilon, steps: (
            (1 - epsilon / 4) ** -steps
        ),
        "a random action goes down in one case of four": lambda epsilon, steps: (
            (1 - epsilon) ** -steps - 1
        ),
    },
    page="q_learning 2",
)
def falls_in_an_episode(epsilon: float, steps: int) -> float:
    """How often an ε-greedy agent falls, on average, before it has passed the cliff.

    It must take so many steps in a row along the edge, each of which falls with probability ε / 4. A
    fall costs what it costs and leads back to the beginning of the edge.
    """
    return (1 - epsilon / 4) ** -steps - 1


@exercise(
    "temporal-difference",
    lambda rng: (float(rng.choice([0.05, 0.1, 0.4])), float(rng.choice([0.2, 0.5, 0.9]))),
    {
        "a random action goes left in one case of two, whatever the table says": (
            lambda epsilon, ahead: (1 - epsilon) * ahead
        ),
        "left is taken also where right is ahead, by a random action": lambda epsilon, ahead: (
            (1 - epsilon / 2) * ahead
        ),
        "a random action is either of the two": lambda epsilon, ahead: (
            (1 - epsilon) * ahead + epsilon
        ),
    },
    page="double_q_learning 1",
)
def left_share(epsilon: float, ahead: float) -> float:
    """The share of episodes of `MaximizationBias-v0` whose first action is left.

    Left is the action with the larger estimate in the share `ahead` of all episodes, and right in
    the others. The agent takes a random one of the two with probability epsilon, and otherwise the
    one with the larger estimate. Compare `ahead` = 0 and 1.
    """
    return (1 - epsilon) * ahead + epsilon / 2


@exercise(
    "temporal-difference",
    lambda rng: (
        rng.integers(-4, 5, 3).astype(float),
        float(rng.choice([0.0, 0.3])),
        int(rng.integers(0, 3)),
        float(rng.choice([4.0, 10.0])),
    ),
    {
        "a value counts as much as its action is likely": lambda q, epsilon, action, change: (
            0.9 * change / 3
        ),
        "the discount counts": lambda q, epsilon, action, change: (
            change * (epsilon / 3 + (1 - epsilon) * (q.argmax() == action))
        ),
        "a random action may be any of them": lambda q, epsilon, action, change: (
            0.9 * change * (1 - epsilon) * (q.argmax() == action)
        ),
    },
    page="expected_sarsa 3",
)
def pull_of_one_value(q: Array, epsilon: float, action: int, change: float) -> float:
    """By how much expected SARSA's target changes with one of the values, with the discount 0.9.

    q [A] are the values in the next state, where the policy takes a random action with probability
    epsilon, any of them, and otherwise the first of the best. The value of `action` changes by so
    much; the policy stays that of q. Try ε = 0 and an action that is not the best.
    """
    return float(0.9 * change * (epsilon / len(q) + (1 - epsilon) * (q.argmax() == action)))


@exercise(
    "linear-approximation",
    lambda rng: (rng.integers(-3, 4, 8).astype(float), int(rng.choice([1, 2, 4, 8]))),
    {
        "each group is as near as it can be with its own mean": lambda values, bins: values.std(),
        "the root of the mean of the squares is asked for": lambda values, bins: (
            _group_error(values, bins) ** 2
        ),
    },
    page="semi_gradient_td 2",
)
def error_of_groups(values: Array, bins: int) -> float:
    """The smallest root-mean-square error that so many groups of states allow.

    values [S] are the true values. The states are cut into groups of the same size, neighbours
    together, and each group has one number. What do few groups cost, and what do many cost that this
    number does not say?
    """
    return _group_error(values, bins)


def _group_error(values: Array, bins: int) -> float:
    return float(np.sqrt(values.reshape(bins, -1).var(axis=1).mean()))


@exercise(
    "linear-approximation",
    lambda rng: (
        *rng.integers(-2, 3, (3, 3)).astype(float),
        float(rng.integers(-3, 4)),
        float(rng.choice([0.5, 1.0, 2.0])),
    ),
    {
        "this is semi-gradient TD, what is left where h is 0": lambda h, x, after, error, ratio: (
            0.1 * ratio * error * x
        ),
        "the correction goes along x', and not along x": lambda h, x, after, error, ratio: (
            0.1 * ratio * (error - 0.9 * h @ x) * x
        ),
        "the ratio of the policies weighs the step": lambda h, x, after, error, ratio: (
            0.1 * (error * x - 0.9 * (h @ x) * after)
        ),
    },
    page="gradient_td 3",
)
def tdc_step(h: Array, x: Array, next_x: Array, error: float, ratio: float) -> Array:
    """What TDC adds to the weights: [D], with the step size 0.1 and the discount 0.9.

    h [D] are the helper's weights, x [D] and next_x [D] the features of the two states, error is δ
    and ratio ρ: α ρ (δ x − γ (h · x) x'). Put h = 0 in.
    """
    zero = 0 * x  # with such weights the TD error is the reward
    step, _ = linear_td.tdc_update(
        zero, h, x, error, next_x, gamma=0.9, alpha=0.1, beta=0.1, ratio=ratio
    )
    return step


def _tiles(x: float, y: float, tilings: int) -> int:
    shifts = np.arange(tilings) / tilings
    return int((np.floor(x + shifts) == np.floor(y + shifts)).sum())


@exercise(
    "linear-approximation",
    lambda rng: (*(rng.integers(0, 47, 2) + 0.5) / 16, int(rng.choice([1, 2, 4, 8]))),
    {
        "the grids are displaced, so some of them part two neighbours": lambda x, y, tilings: (
            tilings * (np.floor(x) == np.floor(y))
        ),
        "the grids are displaced by parts of a tile": lambda x, y, tilings: (
            tilings * (abs(x - y) < 1)
        ),
    },
    page="semi_gradient_sarsa 1",
)
def tiles_in_common(x: float, y: float, tilings: int) -> int:
    """How many of so many grids put two positions on a line into the same tile.

    A tile is 1 wide. Grid number i, from 0, has its edges where x + i / tilings is a whole number.
    How fast does the number fall as two positions move apart, with one grid and with eight?
    """
    return _tiles(x, y, tilings)


@exercise(
    "n-step-and-lambda",
    lambda rng: (int(rng.integers(2, 8)), float(rng.choice([0.0, 0.5, 0.9]))),
    {
        "the last step is nearest to the reward": lambda T, lam: _credit(T, 0.9 * lam)[::-1],
        "a trace fades by γλ, and the discount here is 0.9": lambda T, lam: _credit(T, lam),
        "the step size counts": lambda T, lam: _credit(T, 0.9 * lam) / 0.5,
    },
    page="sarsa_lambda 1",
)
def credit_of_each_step(T: int, lam: float) -> Array:
    """What the table says of each pair of the first episode after its end: [T].

    The episode has T steps, all with different pairs; only the last one pays, namely 1. The table
    was 0. The step size is 0.5, the discount 0.9, the trace decay lam; 0⁰ is 1. Compare how many
    pairs have learned something with lam = 0 and with 0.9.
    """
    return _credit(T, 0.9 * lam)


def _credit(T: int, decay: float) -> Array:
    return 0.5 * decay ** np.arange(T - 1.0, -1, -1)


@exercise(
    "n-step-and-lambda",
    lambda rng: (
        rng.integers(0, 3, rng.integers(3, 10)),
        int(rng.choice([1, 2, 4, 8])),
    ),
    {
        "a pair that comes twice is one entry of the table": lambda pairs, n: min(n, len(pairs)),
        "with n steps the reward reaches the last n pairs": lambda pairs, n: len(np.unique(pairs)),
    },
    page="n_step_sarsa 1",
)
def entries_after_an_episode(pairs: Array, n: int) -> int:
    """How many entries of a table of zeros n-step SARSA has changed after its first episode.

    pairs [T] are the numbers of the pairs of state and action that were visited, in order. Only the
    last step pays. Compare n = 1 with n = 8.
    """
    return len(np.unique(pairs[-n:]))


def _watkins(greedy: Array, decay: float, *, last: bool = False) -> Array:
    traces = np.zeros(len(greedy))
    for t, is_greedy in enumerate(greedy):
        traces = decay * traces if is_greedy or (last and t + 1 < len(greedy)) else 0 * traces
        traces[t] = 1.0
    return traces


@exercise(
    "n-step-and-lambda",
    lambda rng: (rng.random(6) < 0.7, float(rng.choice([0.5, 0.9]))),
    {
        "an exploratory action ends the traces of all steps before it": lambda greedy, decay: (
            decay ** np.arange(len(greedy) - 1.0, -1, -1)
        ),
        "the step that explores is learned from, too: its own trace is 1": lambda greedy, decay: (
            _watkins(greedy, decay) * (np.cumprod(greedy[::-1])[::-1] > 0)
        ),
    },
    page="watkins_q_lambda 2",
)
def traces_after_exploring(greedy: Array, decay: float) -> Array:
    """The traces of the steps of an episode after its last step: [T], with Watkins' rule.

    All steps have different pairs. greedy [T] says which actions were greedy ones. Before a step's
    own trace becomes 1, all traces so far are multiplied by decay, or by 0 where its action was not
    greedy.
    """
    return _watkins(greedy, decay)


@exercise(
    "n-step-and-lambda",
    lambda rng: (
        float(rng.choice([0.05, 0.5])),
        int(rng.choice([2, 4])),
        float(rng.choice([0.5, 0.9])),
    ),
    {
        "a random action may be the greedy one, too": lambda epsilon, A, lam: (
            1 / (1 - lam * (1 - epsilon))
        ),
        "exploring ends the traces": lambda epsilon, A, lam: 1 / (1 - lam),
        "the step itself counts, too": lambda epsilon, A, lam: _reach(epsilon, A, lam) - 1,
    },
    page="watkins_q_lambda 1",
)
def reach_of_the_traces(epsilon: float, num_actions: int, lam: float) -> float:
    """The sum of all traces after many steps of Watkins' Q(λ), on average, without a discount.

    Each step multiplies the traces by lam, or by 0 where its action is not the greedy one, and then
    adds the step's own trace, 1. An ε-greedy agent acts, whose random action is any of them. All
    steps have different pairs, and one action is greedy.
    """
    return _reach(epsilon, num_actions, lam)


def _reach(epsilon: float, num_actions: int, lam: float) -> float:
    kept = 1 - epsilon + epsilon / num_actions
    return 1 / (1 - lam * kept)
