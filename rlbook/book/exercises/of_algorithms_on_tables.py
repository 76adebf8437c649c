"""Exercises of the algorithms' pages on tables: how far an update reaches, and what it cannot know.
The right answers are the library's own functions, wherever it has one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from rlbook.algorithms.planning.modified_policy_iteration import evaluate
from rlbook.algorithms.planning.modified_policy_iteration import improve as improving_sweep
from rlbook.algorithms.planning.search.ucb_selection import select
from rlbook.algorithms.tabular.q_learning import q_learning_update
from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, model_of, tensor
from rlbook.functional.returns import n_step_returns

GAMMA = 0.9


@exercise(
    "model-based",
    lambda rng: (int(rng.integers(3, 10)), int(rng.integers(1, 6))),
    {
        "Q-learning moves a value when its step is taken, by what the next state's value was then: "
        "the news comes back by one state in each episode": lambda T, episodes: [T, T],
        "a plan in the counted model reaches all states that were passed": lambda T, episodes: (
            [min(T, episodes)] * 2
        ),
        "first Q-learning, then counting": lambda T, episodes: [T, min(T, episodes)],
    },
    page="certainty_equivalence 1",
)
def states_that_know_of_the_end(T: int, episodes: int) -> Array:
    """How many states have a value other than 0: [2], by Q-learning, and by counting and planning.

    Each of so many episodes passes the same T states in the same order, by the only action that
    there is, and only its last step pays. Q-learning begins with a table of zeros and learns from
    each step once, when it is taken. Counting plans in the model of everything seen.
    """
    q = np.zeros((T + 1, 1))
    for state in list(range(T)) * episodes:
        last = state + 1 == T
        q_learning_update(q, state, 0, float(last), state + 1, last, 0.5, GAMMA)
    chain = np.diag(np.ones(T - 1), 1)
    planned = np.linalg.solve(np.eye(T) - GAMMA * chain, np.eye(T)[-1])
    return np.array([np.count_nonzero(q), np.count_nonzero(planned)])


@exercise(
    "model-based",
    lambda rng: (float(rng.choice([0.1, 0.2, 0.5])), int(rng.integers(1, 6))),
    {
        "a random action is the right one of four in one case of four": lambda epsilon, steps: (
            epsilon**-steps
        ),
        "all of them must come in one try: their probabilities are multiplied": (
            lambda epsilon, steps: 4 * steps / epsilon
        ),
        "how many tries it takes is asked for, and not how likely one is to succeed": (
            lambda epsilon, steps: (epsilon / 4) ** steps
        ),
    },
    page="dyna_q_plus 1",
)
def tries_until_the_detour(epsilon: float, steps: int) -> float:
    """How many tries an ε-greedy agent needs, on average, until random actions alone have taken it
    so many steps along a way that its table speaks against.

    In each step it takes one of four actions at random with probability epsilon. A try succeeds if
    all steps are taken in a row, and is over with the first other action. Compare one step with
    five.
    """
    return (4 / epsilon) ** steps


@exercise(
    "temporal-difference",
    lambda rng: (
        rng.integers(-4, 5, 4).astype(float),
        float(rng.integers(-2, 3)),
        float(rng.choice([0.0, 0.1, 0.5])),
    ),
    {
        "the random action may be the best one, too": lambda q, reward, epsilon: [
            reward + GAMMA * ((1 - epsilon) * q.max() + epsilon * np.sort(q)[:-1].mean()),
            reward + GAMMA * q.max(),
        ],
        "Q-learning's target is the greedy policy's, however the agent acts": (
            lambda q, reward, epsilon: (
                [reward + GAMMA * ((1 - epsilon) * q.max() + epsilon * q.mean())] * 2
            )
        ),
        "first expected SARSA, then Q-learning": lambda q, reward, epsilon: [
            reward + GAMMA * q.max(),
            reward + GAMMA * ((1 - epsilon) * q.max() + epsilon * q.mean()),
        ],
    },
    page="expected_sarsa 1",
)
def expected_and_largest(q: Array, reward: float, epsilon: float) -> Array:
    """The targets of one step: [2], expected SARSA's and Q-learning's, with the discount 0.9.

    q [A] are the values in the next state, where the episode goes on. With probability epsilon the
    agent takes a random action, any of them, and otherwise the best. Try ε = 0.
    """
    probs = epsilon / len(q) + (1 - epsilon) * (q == q.max()) / (q == q.max()).sum()
    return reward + GAMMA * np.array([probs @ q, q.max()])


def draw_small_world(rng: Generator) -> tuple[Array, Array]:
    """P [S, A, S], where what is missing to 1 ends the episode, and r [S, A]."""
    P = rng.multinomial(10, np.ones(4) / 4, size=(3, 2))[..., :3] / 10
    return P, rng.integers(-2, 3, (3, 2)).astype(float)


def evaluation_case(rng: Generator) -> tuple[Array, Array, Array, Array]:
    P, r = draw_small_world(rng)
    policy, exactly = rng.integers(2, size=3), bool(rng.random() < 0.5)
    states = np.arange(3)
    V = np.linalg.solve(np.eye(3) - GAMMA * P[states, policy], r[states, policy])
    return P, r, policy, V if exactly else rng.integers(-3, 4, 3).astype(float)


def _changes(P: Array, r: Array, policy: Array, V: Array) -> tuple[Array, Array]:
    Q, states = r + GAMMA * P @ V, np.arange(3)
    return Q[states, policy] - V, Q.max(axis=1) - V


@exercise(
    "planning",
    evaluation_case,
    {
        "a sweep that lowers a value changes it, too: the largest change is without its sign": (
            lambda *case: [changes.max() for changes in _changes(*case)]
        ),
        "the improving sweep takes the best action in each state": lambda *case: (
            [np.abs(_changes(*case)[0]).max()] * 2
        ),
        "first the evaluating sweep, then the improving one": lambda *case: [
            np.abs(changes).max() for changes in _changes(*case)[::-1]
        ],
    },
    page="modified_policy_iteration 3",
)
def changes_of_two_sweeps(P: Array, r: Array, policy: Array, V: Array) -> Array:
    """By how much the values change at most: [2], in a sweep that evaluates the policy, and in one
    that improves it. Both start from V [S]; the discount is 0.9.

    P [S, A, S] are the probabilities of the successors (what is missing to 1 ends the episode), r
    [S, A] the expected rewards, and policy [S] is an action for each state. Let V be the policy's
    own values: which of the two changes is 0, and is V then what was looked for?
    """
    model, whole = model_of(P, r), np.append(V, 0.0)
    evaluating = evaluate(model, np.append(policy, 0), whole, GAMMA, 1)
    improving, _ = improving_sweep(model, whole, GAMMA)
    return np.array([np.abs(values - whole).max() for values in (evaluating, improving)])


def _choices(q: Array, action: int, reward: float, target: float) -> list[int]:
    after = q.copy()
    after[action] += 0.5 * (target - q[action])
    return [int(q.argmax()), int(after.argmax())]


@exercise(
    "n-step-and-lambda",
    lambda rng: (
        rng.permutation(5)[:3].astype(float),
        int(rng.integers(3)),
        float(rng.integers(-4, 5)),
    ),
    {
        "the step has changed the value of the action that was taken": lambda q, action, reward: (
            [int(q.argmax())] * 2
        ),
        "the value of the next pair belongs to the target": lambda q, action, reward: _choices(
            q, action, reward, reward
        ),
        "SARSA's target has the action that was drawn next, and not the one just taken": (
            lambda q, action, reward: _choices(q, action, reward, reward + GAMMA * q[action])
        ),
    },
    page="n_step_sarsa 3",
)
def next_actions_of_two_orders(q: Array, action: int, reward: float) -> Array:
    """Which action a greedy agent takes next: [2], drawn before SARSA (n = 1) has learned from the
    step, and drawn after it.

    q [A] are the values in the only state there is. The action was taken, paid the reward and led
    back; the target has the action that was drawn before. The step size is 0.5, the discount 0.9.
    Where the two differ, whose value is in the target?
    """
    return np.array(_choices(q, action, reward, reward + GAMMA * q.max()))


def _values_of_n_steps(states: Array, n: int, alpha: float) -> Array:
    reward = np.eye(len(states))[-1]
    ended, zeros = tensor(reward) > 0, tensor(0 * reward)
    targets = n_step_returns(tensor(reward), ended, ended & False, zeros, 1.0, n).numpy()
    values = np.zeros(4)
    for state, target in zip(states, targets, strict=True):
        values[state] += alpha * (target - values[state])
    return values


@exercise(
    "n-step-and-lambda",
    lambda rng: (
        rng.integers(0, 4, rng.integers(3, 9)),
        int(rng.choice([1, 2, 4, 64])),
        float(rng.choice([0.1, 0.4])),
    ),
    {
        "the reward reaches the last n steps": lambda states, n, alpha: _values_of_n_steps(
            states, 64, alpha
        ),
        "a state that was visited twice in the last n steps moves twice": (
            lambda states, n, alpha: alpha * np.isin(np.arange(4), states[-n:])
        ),
        "each visit moves the value a part of the way that is left": lambda states, n, alpha: (
            alpha * np.bincount(states[-n:], minlength=4)
        ),
    },
    page="n_step_td 1",
)
def values_after_the_first_episode(states: Array, n: int, alpha: float) -> Array:
    """What n-step TD says of four states after its first episode: [4], from a table of zeros and
    without a discount.

    states [T] are the numbers of the states of its steps, in order. Only the last step pays, namely
    1, and terminates. Which error does a small n leave, and which a large one, if the episode was
    lucky?
    """
    return _values_of_n_steps(states, n, alpha)


def improvement_case(rng: Generator) -> tuple[Array, Array, Array, int]:
    return *draw_small_world(rng), rng.integers(2, size=3), int(rng.integers(1, 5))


def _value_of_steps(P: Array, r: Array, policy: Array, steps: int, *, again: bool = False) -> Array:
    states = np.arange(3)
    V = np.linalg.solve(np.eye(3) - GAMMA * P[states, policy], r[states, policy])
    better = (r + GAMMA * P @ V).argmax(axis=1)
    for _ in range(steps):
        better = (r + GAMMA * P @ V).argmax(axis=1) if again else better
        V = r[states, better] + GAMMA * P[states, better] @ V
    return V


@exercise(
    "planning",
    improvement_case,
    {
        "π' stays what it was: greedy for the values of π, and not for each new V": lambda *case: (
            _value_of_steps(*case, again=True)
        ),
        "so many steps follow π', and only then comes π": lambda P, r, policy, steps: (
            _value_of_steps(P, r, policy, 0)
        ),
        "π' is followed for the given number of steps, and not for ever": (
            lambda P, r, policy, steps: _value_of_steps(P, r, policy, 10_000)
        ),
    },
    page="policy_iteration 3",
)
def value_of_better_steps(P: Array, r: Array, policy: Array, steps: int) -> Array:
    """The values of following π' for so many steps and π ever after: [S], with the discount 0.9.

    P [S, A, S] are the probabilities of the successors (what is missing to 1 ends the episode), r
    [S, A] the expected rewards, and policy [S] is π. π' is greedy for the values of π. Compare 0, 1,
    2, … steps: in which states do the values fall?
    """
    model, given = model_of(P, r), np.append(policy, 0)
    chain, rewards = model.chain(given)
    V = np.linalg.solve(np.eye(4) - GAMMA * chain.toarray(), rewards)
    _, better = improving_sweep(model, V, GAMMA)
    return evaluate(model, better, V, GAMMA, steps)[:3]


def _backups(change: float, decay: float, tolerance: float) -> int:
    count = 0
    while change > tolerance:
        change, count = change * decay, count + 1
    return count


@exercise(
    "planning",
    lambda rng: (
        float(rng.integers(1, 11)),
        float(rng.choice([0.0, 0.5, 0.8])),
        float(rng.choice([0.03, 0.0007])),
    ),
    {
        "a state that leads back to itself is its own predecessor": (
            lambda change, stay, tolerance: 1
        ),
        "what comes back is discounted": lambda change, stay, tolerance: _backups(
            change, stay, tolerance
        ),
        "the first error is not yet discounted: it counts from the first backup on": (
            lambda change, stay, tolerance: _backups(change, GAMMA * stay, tolerance) - 1
        ),
    },
    page="prioritized_sweeping 1",
)
def backups_of_a_slippery_state(change: float, stay: float, tolerance: float) -> int:
    """How many backups of one state it takes until its Bellman error is at most the tolerance.

    The error is `change`, and above the tolerance. The state's best action leads back to the state
    with the probability `stay`, and otherwise to where nothing changes; the discount is 0.9. A
    backup moves the value by the whole error, and the new error is γ · stay times the old one.
    Compare stay = 0, a maze without slipping, with 0.8.
    """
    return _backups(change, GAMMA * stay, tolerance)


@exercise(
    "monte-carlo",
    lambda rng: (float(rng.choice([0.03, 0.07, 0.13])), float(rng.choice([0.95, 1.1]))),
    {
        "both means are noisy: the variance of their difference is twice that of one": (
            lambda gap, deviation: math.ceil(4 * (deviation / gap) ** 2)
        ),
        "the gap is to be two standard errors, and not one": lambda gap, deviation: math.ceil(
            2 * (deviation / gap) ** 2
        ),
        "the error falls with the root of the number": lambda gap, deviation: math.ceil(
            8**0.5 * deviation / gap
        ),
    },
    page="mc_control 2",
)
def returns_for_a_clear_choice(gap: float, deviation: float) -> int:
    """How many returns of each of two actions it takes until the difference of their true values,
    `gap`, is at least twice the standard error of the difference of the two means.

    A single return has the given standard deviation, and n of each action are averaged. What
    follows for states of Blackjack that are rare and in which both actions are about as good?
    """
    return math.ceil(2 * (2 * deviation / gap) ** 2)


def _tries(
    values: Array, c: float, simulations: int, bonus: Callable[[int, Array], Array] | None = None
) -> Array:
    count = np.ones(len(values), dtype=np.int64)
    rng = np.random.default_rng(0)  # is asked only among equal scores
    for total in range(len(values), simulations):
        if bonus:
            chosen = int((values + c * bonus(total, count)).argmax())
        else:
            case = [total], count.tolist(), values.tolist(), [0.0, 1.0]
            chosen = select(0, len(values), *case, c, rng)
        count[chosen] += 1
    return count


@exercise(
    "trees",
    lambda rng: (
        rng.permutation([0.13, 0.52, 0.58]),
        float(rng.choice([0.05, 0.7, 5.0])),
        int(rng.choice([10, 100])),
    ),
    {
        "N(s) stands in the logarithm": lambda values, c, simulations: _tries(
            values, c, simulations, lambda total, count: np.sqrt(total / count)
        ),
        "the root is of N(s, a), too": lambda values, c, simulations: _tries(
            values, c, simulations, lambda total, count: np.sqrt(np.log(total)) / count
        ),
        "the bonus is added to the value": lambda values, c, simulations: _tries(
            values, c, simulations, lambda total, count: 0 * count
        ),
    },
    page="mcts 1",
)
def tries_of_the_moves(values: Array, c: float, simulations: int) -> Array:
    """How often a search has tried each of its moves after so many simulations: [A].

    Each move always pays the same, its scaled value in values [A]. All moves are tried once, and then
    the one with the largest Q + c √(ln N(s) / N(s, a)), where N(s) is the number of simulations so
    far. What becomes of the best move where c = 0.05, and where c = 5?
    """
    return _tries(values, c, simulations)


@exercise(
    "n-step-and-lambda",
    lambda rng: (int(rng.integers(1, 20)), float(rng.choice([0.0, 0.5, 0.9]))),
    {
        "a trace fades by γλ, and the discount here is 0.9": lambda steps, lam: (
            lam ** np.arange(1.0, steps + 1)
        ).sum(),
        "the pairs before the step are asked for, without its own": lambda steps, lam: (
            (GAMMA * lam) ** np.arange(steps + 1.0)
        ).sum(),
        "all pairs before it together are asked for": lambda steps, lam: (GAMMA * lam) ** steps,
    },
    page="sarsa_lambda 3",
)
def blame_of_earlier_pairs(steps: int, lam: float) -> float:
    """By how much an exploratory step moves all pairs before it together, as a multiple of what it
    moves its own pair by.

    So many steps came before it in the episode, all with different pairs; the trace of each has
    faded by γλ in every step since, with the discount 0.9 and the trace decay lam. Compare lam = 0.5
    with 0.9 after twenty steps: all these pairs are blamed for an action that was drawn at random.
    """
    return float(((GAMMA * lam) ** np.arange(1.0, steps + 1)).sum())


@exercise(
    "temporal-difference",
    lambda rng: (
        rng.integers(-3, 4, rng.integers(2, 6)).astype(float),
        float(rng.choice([0.1, 0.5, 1.0])),
        int(rng.integers(1, 20)),
    ),
    {
        "each replay moves the value a part of the way to the mean: after a few it is not there": (
            lambda targets, alpha, replays: targets.mean()
        ),
        "a replay moves the value once, by the mean of the errors, and not by their sum": (
            lambda targets, alpha, replays: (
                targets.mean() * (1 - (1 - alpha * len(targets)) ** replays)
            )
        ),
        "each replay starts where the last one ended": lambda targets, alpha, replays: (
            alpha * targets.mean()
        ),
    },
    page="td_prediction 2",
)
def value_after_replays(targets: Array, alpha: float, replays: int) -> float:
    """What batch TD says of a state after so many replays, from 0.

    targets [n] are the rewards of the n steps from the state, each of which terminated. A replay adds
    α times the mean of the errors. What changes with alpha after many replays, and what after few?
    """
    value = 0.0
    for _ in range(replays):
        value += alpha * float((targets - value).mean())
    return value


@exercise(
    "n-step-and-lambda",
    lambda rng: (rng.random(rng.integers(3, 9)) < 0.7,),
    {
        "the pair that explored learns, too: only the traces of those before it end": (
            lambda greedy: [int(np.cumprod(greedy[::-1]).sum()), 1]
        ),
        "an exploratory action ends the traces of the pairs before it": lambda greedy: [
            len(greedy),
            1,
        ],
        "Q-learning passes a reward back by one step only": lambda greedy: [
            _num_reached(greedy),
            _num_reached(greedy),
        ],
    },
    page="watkins_q_lambda 3",
)
def pairs_that_learn_of_a_reward(greedy: Array) -> Array:
    """How many pairs the reward of an episode's last step moves: [2], with Watkins' Q(λ) and with
    Q-learning.

    The table was 0 and only the last step pays. greedy [T] says of each step whether its action was
    a greedy one; all pairs are different, and λ is above 0. An action that is not greedy sets the
    traces to 0 before its own pair gets one. Can the first number be smaller than the second?
    """
    return np.array([_num_reached(greedy), 1])


def _num_reached(greedy: Array) -> int:
    traced = 0
    for is_greedy in greedy:
        traced = traced + 1 if is_greedy else 1
    return traced
