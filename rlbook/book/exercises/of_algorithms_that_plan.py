"""Exercises of the algorithms' pages on known worlds and learned models. The right answers are the
library's own functions, wherever it has one."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from scipy import sparse

from rlbook.algorithms.planning.policy_evaluation import evaluate_in_place
from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, draw_world
from rlbook.functional import bandits


def chain(rng: Generator) -> tuple[Array, Array, Array]:
    """P [3, 3], of whose rows some add up to less than 1, r [3] and V [3]."""
    P = rng.dirichlet(np.ones(4), size=3).round(2)[:, :3]
    return P, rng.integers(-2, 3, 3).astype(float), rng.integers(-3, 4, 3).astype(float)


def _sweep_once(P: Array, r: Array, V: Array, order: range) -> Array:
    V = V.copy()
    for s in order:
        V[s] = r[s] + 0.9 * P[s] @ V
    return V


@exercise(
    "planning",
    chain,
    {
        "in place, a state sees what the states before it have just become": lambda P, r, V: (
            r + 0.9 * P @ V
        ),
        "the states are swept in the order of their numbers": lambda P, r, V: _sweep_once(
            P, r, V, range(2, -1, -1)
        ),
    },
    page="policy_evaluation 1",
)
def sweep_in_place(P: Array, r: Array, V: Array) -> Array:
    """The values after one sweep in place, from state 0 on: [S], with the discount 0.9.

    P [S, S] and r [S] are what the policy makes of the model, V [S] the values before. V may not be
    changed. Compare with a sweep of all states at once.
    """
    return evaluate_in_place(sparse.csr_array(P), r, V.copy(), 0.9)


def _mixed_value(P: Array, r: Array, shares: Array) -> Array:
    mean = np.einsum("sa,sat->st", shares, P)
    return np.linalg.solve(np.eye(len(r)) - 0.9 * mean, (shares * r).sum(axis=1))


def _shares(policy: Array, random: float, greedy: float) -> Array:
    return np.full((len(policy), 2), random) + greedy * np.eye(2)[policy]


@exercise(
    "planning",
    lambda rng: (*draw_world(rng), rng.integers(0, 2, 3), float(rng.choice([0.1, 0.5]))),
    {
        "a random action may be that of the policy, too": lambda P, r, policy, epsilon: (
            _mixed_value(P, r, _shares(policy, epsilon, 1 - 2 * epsilon))
        ),
        "this is the value of the policy without its random actions": (
            lambda P, r, policy, epsilon: _mixed_value(P, r, _shares(policy, 0.0, 1.0))
        ),
    },
    page="policy_evaluation 2",
)
def value_with_random_actions(P: Array, r: Array, policy: Array, epsilon: float) -> Array:
    """V of a policy that takes a random action with probability epsilon: [S], with the discount 0.9.

    P [S, A, S] and r [S, A] are the model; a row of P that adds up to less than 1 may end the
    episode. policy [S] are its actions otherwise. A random action is any of the A, as likely.
    """
    shares = epsilon / 2 + (1 - epsilon) * np.eye(2)[policy]
    mean, paid = np.einsum("sa,sat->st", shares, P), (shares * r).sum(axis=1)
    return np.linalg.solve(np.eye(len(r)) - 0.9 * mean, paid)


def _greedy_shares(P: Array, r: Array, V: Array) -> Array:
    return np.eye(2)[(r + 0.9 * P @ V).argmax(axis=1)]


@exercise(
    "planning",
    draw_world,
    {
        "the greedy policy is better than what was evaluated; this is the uniform policy's value": (
            lambda P, r: _mixed_value(P, r, np.full(r.shape, 0.5))
        ),
        "greedy by V^π looks one step ahead, and not at the rewards alone": lambda P, r: (
            _mixed_value(P, r, np.eye(2)[r.argmax(axis=1)])
        ),
    },
    page="policy_evaluation 3",
)
def greedy_after_random(P: Array, r: Array) -> Array:
    """V of the policy that is greedy by the values of the uniform policy: [S], discount 0.9.

    P [S, A, S] and r [S, A] are the model; a row of P that adds up to less than 1 may end the
    episode. Is what you find always V*?
    """
    uniform = _mixed_value(P, r, np.full(r.shape, 0.5))
    return _mixed_value(P, r, _greedy_shares(P, r, uniform))


def _rounds(P: Array, r: Array, *, last: int = 1) -> int:
    policy, rounds = np.zeros(len(r), dtype=int), 0
    while True:
        rounds += 1
        Q = r + 0.9 * P @ _mixed_value(P, r, np.eye(2)[policy])
        better = np.where(Q.max(axis=1) > Q[np.arange(3), policy] + 1e-9, Q.argmax(axis=1), policy)
        if (better == policy).all():
            return rounds - 1 + last
        policy = better


def _sweeps_until(P: Array, r: Array, change: float) -> int:
    V, sweeps = np.zeros(len(r)), 0
    while True:
        V, old, sweeps = (r + 0.9 * P @ V).max(axis=1), V, sweeps + 1
        if abs(V - old).max() < change:
            return sweeps


@exercise(
    "planning",
    draw_world,
    {
        "the last round counts, too: it changes nothing, and only that tells the end": (
            lambda P, r: _rounds(P, r, last=0)
        ),
        "these are sweeps of value iteration": lambda P, r: _sweeps_until(P, r, 1e-9),
    },
    page="policy_iteration 1",
)
def rounds_of_policy_iteration(P: Array, r: Array) -> int:
    """How many rounds policy iteration needs from the policy that takes action 0 everywhere.

    A round evaluates the policy exactly, with the discount 0.9, and improves it where an action is
    better; the last one finds none. P [S, A, S] and r [S, A] are the model; a row of P that adds up
    to less than 1 may end the episode.
    """
    return _rounds(P, r)


def _last_of_the_best(Q: Array) -> Array:
    return Q.shape[1] - 1 - Q[:, ::-1].argmax(axis=1)


def _worse_than_best(Q: Array, policy: Array) -> int:
    return int((Q.max(axis=1) > Q[np.arange(len(Q)), policy]).sum())


@exercise(
    "planning",
    lambda rng: (rng.integers(0, 2, (6, 3)).astype(float), rng.integers(0, 3, 6)),
    {
        "with `>` an action that is as good as the best stays": lambda Q, policy: [
            (Q.argmax(axis=1) != policy).sum(),
            (_last_of_the_best(Q) != policy).sum(),
        ],
        "with `>=` the last of equally good actions is taken": lambda Q, policy: [
            _worse_than_best(Q, policy),
            (Q.argmax(axis=1) != policy).sum(),
        ],
        "with `>=` an action moves between equally good ones, too": lambda Q, policy: (
            [_worse_than_best(Q, policy)] * 2
        ),
    },
    page="policy_iteration 2",
)
def states_that_move(Q: Array, policy: Array) -> Array:
    """In how many states an improvement changes the action, with `>` and with `>=`: [2].

    Q [S, A] are the values of the policy, [S] integers. The improvement begins with the policy's own
    action as the best one, goes through all actions in order, and takes each whose value is above
    that of the best so far; with `>=` also one whose value is the same. When would each of the two
    end?
    """
    return np.array([_worse_than_best(Q, policy), (_last_of_the_best(Q) != policy).sum()])


@exercise(
    "planning",
    lambda rng: (*draw_world(rng), rng.integers(-3, 4, 3).astype(float), int(rng.integers(0, 4))),
    {
        "the improving sweep comes first; with m = 0 it is all there is": lambda P, r, V, m: (
            _policy_sweeps(P, r, V, m, V)
        ),
        "the evaluating sweeps follow the policy, and do not improve": lambda P, r, V, m: (
            _optimal_sweeps(P, r, V, m + 1)
        ),
        "m evaluating sweeps come after the improving one": lambda P, r, V, m: _policy_sweeps(
            P, r, (r + 0.9 * P @ V).max(axis=1), max(m - 1, 0), V
        ),
    },
    page="modified_policy_iteration 2",
)
def one_modified_round(P: Array, r: Array, V: Array, m: int) -> Array:
    """The values after one round of modified policy iteration: [S], with the discount 0.9.

    One improving sweep, V(s) ← max Q(s, a) in all states at once, and then m sweeps that evaluate
    the actions of these maxima. P [S, A, S] and r [S, A] are the model; a row of P that adds up to
    less than 1 may end the episode. Try m = 0.
    """
    return _policy_sweeps(P, r, (r + 0.9 * P @ V).max(axis=1), m, V)


def _policy_sweeps(P: Array, r: Array, start: Array, sweeps: int, judged: Array) -> Array:
    shares, V = _greedy_shares(P, r, judged), start
    for _ in range(sweeps):
        V = (shares * (r + 0.9 * P @ V)).sum(axis=1)
    return V


def _optimal_sweeps(P: Array, r: Array, V: Array, sweeps: int) -> Array:
    for _ in range(sweeps):
        V = (r + 0.9 * P @ V).max(axis=1)
    return V


@exercise(
    "planning",
    lambda rng: (rng.integers(1, 30, 6),),
    {
        "one more sweep sees that nothing changes any more": lambda distance: distance.max(),
        "a sweep brings the news to all cells that are one step further": lambda distance: (
            len(distance) + 1
        ),
    },
    page="value_iteration 1",
)
def sweeps_to_the_end(distance: Array) -> int:
    """How many sweeps value iteration makes until one changes nothing, all states at once.

    distance [S] are the steps of each cell on its shortest path to the goal, of at least 1. Values
    begin at 0, only the step that reaches the goal pays, and nothing slips.
    """
    return int(distance.max()) + 1


@exercise(
    "planning",
    lambda rng: (float(rng.choice([0.1, 0.2, 0.5])), int(rng.integers(1, 8))),
    {
        "after n sweeps the way may have taken up to n tries, and not just one": lambda slip, n: (
            1 - slip
        ),
        "one success is needed, and not n of them": lambda slip, n: (1 - slip) ** n,
        "what is asked is what has been found, and not what is missing": lambda slip, n: slip**n,
    },
    page="value_iteration 3",
)
def found_after_sweeps(slip: float, sweeps: int) -> float:
    """The value of the cell beside the goal after so many sweeps from 0, without a discount.

    Reaching the goal pays 1, and nothing else pays. A step stays where it is with probability slip
    and reaches the goal otherwise. When does this end?
    """
    value = 0.0
    for _ in range(sweeps):
        value = 1 - slip + slip * value
    return value


@exercise(
    "planning",
    lambda rng: (int(rng.integers(2, 40)),),
    {
        "each sweep of value iteration backs up every cell": lambda size: [2 * size - 1, size**2],
        "the goal lies 2 (size − 1) steps away, and one more sweep sees the end": lambda size: [
            size**3,
            size**2,
        ],
    },
    page="prioritized_sweeping 3",
)
def backups_on_a_grid(size: int) -> Array:
    """The backups of value iteration on an empty grid of size × size cells, and of a queue: [2].

    The goal is in a corner, values begin at 0, and only reaching it pays. Value iteration sweeps
    all cells until a sweep changes nothing; the farthest cell is in the other corner. The queue,
    at its best, backs up each cell once.
    """
    return np.array([(2 * (size - 1) + 1) * size**2, size**2])


@exercise(
    "model-based",
    lambda rng: (
        int(rng.choice([4, 8, 16])),
        int(rng.integers(1, 5)),
        int(rng.integers(2, 5)),
        int(rng.choice([20_000, 50_000])),
    ),
    {
        "the numbers are cut apart together: bins to the power of how many there are": (
            lambda bins, numbers, num_actions, steps: [
                bins * numbers * num_actions,
                steps / (bins * numbers * num_actions),
            ]
        ),
        "a pair is a cell and an action": lambda bins, numbers, num_actions, steps: [
            bins**numbers,
            steps / bins**numbers,
        ],
    },
    page="certainty_equivalence 2",
)
def price_of_bins(bins: int, numbers: int, num_actions: int, steps: int) -> Array:
    """How many pairs of a cell and an action there are, and how often each is tried: [2].

    An observation has so many numbers, each of which is cut into so many bins. The second number is
    the mean of so many steps over all pairs.
    """
    pairs = bins**numbers * num_actions
    return np.array([pairs, steps / pairs])


@exercise(
    "model-based",
    lambda rng: (
        rng.integers(-4, 5, rng.integers(1, 5)).astype(float),
        float(rng.choice([0.5, 0.9])),
    ),
    {
        "the largest reward is taken to come in every step, forever": lambda rewards, gamma: max(
            rewards.max(), 0.0
        ),
        "where all rewards are negative, the unknown is taken to pay 0": lambda rewards, gamma: (
            rewards.max() / (1 - gamma)
        ),
        "optimism takes the largest reward, and not the mean": lambda rewards, gamma: (
            max(rewards.mean(), 0.0) / (1 - gamma)
        ),
    },
    page="certainty_equivalence 3",
)
def optimistic_value(rewards: Array, gamma: float) -> float:
    """What a pair that was never tried is worth to an optimistic model.

    It is taken to pay, in every step forever, the largest reward seen so far, or 0 if all of them
    were negative. rewards [n] are those seen, gamma is the discount.
    """
    return max(float(rewards.max()), 0.0) / (1 - gamma)


def ucb_world(rng: Generator) -> tuple[Array, float, int]:
    return (
        rng.choice([0.0, 0.5, 1.0, 1.5], 3),
        float(rng.choice([0.5, 1.0, 2.0])),
        int(rng.integers(6, 10)),
    )


def _ucb(paid: Array, c: float, steps: int, power: float = 0.5) -> Array:
    counts, chosen = np.zeros(3), []
    for step in range(steps):
        bound = c * np.sqrt(np.log(step + 1)) / np.maximum(counts, 1) ** power
        chosen.append(int(np.where(counts > 0, paid + bound, np.inf).argmax()))
        counts[chosen[-1]] += 1
    return np.array(chosen)


@exercise(
    "bandits",
    ucb_world,
    {
        "a machine that was pulled seldom has the wider bound, and gets its turn": (
            lambda paid, c, steps: _ucb(paid, 0.0, steps)
        ),
        "N(a) stands below the root": lambda paid, c, steps: _ucb(paid, c, steps, power=1.0),
    },
    page="bandit 1",
)
def turns_of_ucb(paid: Array, c: float, steps: int) -> Array:
    """Which machine UCB pulls in each of so many steps: [T].

    Machine a always pays paid[a], paid [A]. Machines that were never pulled come first, in order;
    then the one with the largest paid[a] + c √(ln t / N(a)), the first of equal ones, where t is the
    number of the step, from 1, and N(a) how often a was pulled. Look at the step after the first A.
    """
    counts, chosen = np.zeros(len(paid), dtype=np.int64), []
    for _ in range(steps):
        chosen.append(int(bandits.upper_confidence_bound(paid, counts, c).argmax()))
        counts[chosen[-1]] += 1
    return np.array(chosen)


def plan(rng: Generator) -> tuple[Array, float]:
    length = int(rng.integers(3, 8))
    back = int(rng.integers(1, length))
    rewards = np.concatenate([-rng.integers(2, 5, back), rng.integers(0, 4, length - back)])
    return rewards.astype(float), float(rng.choice([-1.0, -0.5]))


@exercise(
    "learned-models",
    plan,
    {
        "the sum up to the horizon is compared, and not the last reward": lambda rewards, idle: (
            _first(rewards > idle)
        ),
        "what doing nothing earns grows with the horizon, too": lambda rewards, idle: _first(
            rewards.cumsum() > idle
        ),
        "0 is asked for where no horizon is long enough; count horizons from 1": (
            lambda rewards, idle: _first((rewards - idle).cumsum() > 0) - 1
        ),
    },
    page="world_model 1",
)
def horizon_that_pays(rewards: Array, idle: float) -> int:
    """The smallest horizon, in steps, at which a plan looks better than doing nothing; 0 for none.

    rewards [T] are those of the plan's steps, the first of which cost, and doing nothing pays idle
    in every step. A search with the horizon H sees the first H steps. Nothing is discounted.
    """
    return _first((rewards - idle).cumsum() > 0)


def _first(marks: Array) -> int:
    """The number, from 1, of the first true entry; 0 if there is none."""
    return int(marks.argmax()) + 1 if marks.any() else 0


@exercise(
    "value-networks",
    lambda rng: (
        float(rng.integers(-2, 3)),
        rng.integers(0, 3, 5),
        rng.integers(-4, 5, 5).astype(float),
    ),
    {
        "nothing moves the value of an action that was not recorded": lambda q0, actions, y: _table(
            0.0, actions, y
        ),
        "a least-squares fit is the mean of the targets, and not the last one": (
            lambda q0, actions, y: _table(q0, actions, y, last=True)
        ),
    },
    page="fitted_q 3",
)
def fitted_table(q0: float, actions: Array, y: Array) -> Array:
    """The values of three actions of one state after a table was fitted to targets: [3].

    Every value was q0 before. actions [B] are those of the recording, y [B] their targets. The fit
    makes the mean of (y − Q(a))² smallest, by gradient steps from where the table is.
    """
    q = np.full(3, q0)
    for action in np.unique(actions):
        q[action] = y[actions == action].mean()
    return q


def _table(q0: float, actions: Array, y: Array, *, last: bool = False) -> Array:
    seen = {a: y[actions == a] for a in range(3)}
    return np.array(
        [(each[-1] if last else each.mean()) if len(each) else q0 for each in seen.values()]
    )
