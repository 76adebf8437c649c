"""Exercises of the algorithms' pages on tables, values and returns. The right answers are the
library's own functions, wherever it has one."""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, tensor
from rlbook.functional import bandits, linear_td
from rlbook.functional.natural_gradient import trust_region_step
from rlbook.functional.value_losses import q_target


def draw_first_value(rng: Generator) -> tuple[float, float, float]:
    return float(rng.integers(3, 8)), float(rng.integers(-2, 3)), float(rng.choice([0.1, 0.5]))


@exercise(
    "bandits",
    draw_first_value,
    {
        "the mean of one reward is the reward: the first estimate has no part in it": (
            lambda first, reward, alpha: [(first + reward) / 2, first + alpha * (reward - first)]
        ),
        "with a constant step size the first estimate keeps the weight 1 − α": (
            lambda first, reward, alpha: [reward, alpha * reward]
        ),
    },
    page="bandit 2",
)
def left_of_optimism(first: float, reward: float, alpha: float) -> Array:
    """The estimate of a machine after its first pull: [2], by the mean of its rewards, and with the
    constant step size alpha.

    first is the estimate before the pull, which was chosen too high on purpose; reward is what the
    pull paid.
    """
    return np.array([reward, first + alpha * (reward - first)])


@exercise(
    "bandits",
    lambda rng: (rng.normal(size=5).round(2), float(rng.choice([0.1, 0.3]))),
    {
        "a random pull may hit the best machine, too: the mean is over all machines": (
            lambda means, epsilon: epsilon * (means.max() - np.sort(means)[:-1].mean())
        ),
        "what is lost is relative to the best machine": lambda means, epsilon: (
            (1 - epsilon) * means.max() + epsilon * means.mean()
        ),
    },
    page="bandit 3",
)
def cost_of_exploring(means: Array, epsilon: float) -> float:
    """What ε-greedy loses per step, on average, once it knows the means [A] of all machines.

    With probability epsilon it draws from all machines alike.
    """
    greedy = means == means.max()
    probs = epsilon / len(means) + (1 - epsilon) * greedy / greedy.sum()
    return float(means.max() - probs @ means)


@exercise(
    "introduction",
    lambda rng: (
        float(-rng.integers(1, 3)),
        float(rng.integers(5, 15)),
        int(rng.integers(2, 9)),
        float(rng.choice([0.5, 0.9])),
    ),
    {
        "the goal pays after all the steps before it, each of which discounts once: γ to the power "
        "of their number": lambda step, goal, steps, gamma: (
            sum(step * gamma**k for k in range(steps)) + goal * gamma ** (steps + 1)
        ),
        "the steps before the goal are discounted, too": lambda step, goal, steps, gamma: (
            step * steps + goal * gamma**steps
        ),
    },
    page="value_iteration 2",
)
def way_to_the_goal(step: float, goal: float, steps: int, gamma: float) -> float:
    """The value of a state from which the best way pays `step` in each of so many steps, and after
    them `goal` once.

    gamma is the discount.
    """
    rewards = np.array([step] * steps + [goal])
    return float(rewards @ gamma ** np.arange(steps + 1))


def sarsa_case(rng: Generator) -> tuple[Array, int, int, float, int, int, bool]:
    q = rng.integers(-4, 5, (3, 3)).astype(float)
    state, following = rng.integers(3, size=2).tolist()
    action, after = rng.integers(3, size=2).tolist()
    return q, state, action, float(rng.integers(-2, 3)), following, after, bool(rng.random() < 0.3)


def _sarsa(q: Array, s: int, a: int, target: float) -> Array:
    after = q.copy()
    after[s, a] += 0.5 * (target - q[s, a])
    return after


@exercise(
    "temporal-difference",
    sarsa_case,
    {
        "this is Q-learning: SARSA takes the value of the action that was drawn": (
            lambda q, s, a, r, s2, a2, over: _sarsa(q, s, a, r + 0.9 * (not over) * q[s2].max())
        ),
        "where the episode has terminated nothing follows": (
            lambda q, s, a, r, s2, a2, over: _sarsa(q, s, a, r + 0.9 * q[s2, a2])
        ),
        "this is expected SARSA with a uniform policy; SARSA has one next action": (
            lambda q, s, a, r, s2, a2, over: _sarsa(q, s, a, r + 0.9 * (not over) * q[s2].mean())
        ),
    },
    page="q_learning 3",
    keeps_arguments=True,
)
def sarsa_step(
    q: Array,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    next_action: int,
    terminated: bool,
) -> Array:
    """The table after one step of SARSA: [S, A], a new array.

    q [S, A] is the table before. The action was taken in the state and paid the reward; it led to
    next_state, where next_action was drawn, or where the episode terminated. The step size is 0.5
    and the discount 0.9.
    """
    following = 0.0 if terminated else float(q[next_state, next_action])
    return _sarsa(q, state, action, reward + 0.9 * following)


def draw_waiting_times(rng: Generator) -> tuple[Array, Array, float]:
    return (
        rng.normal(size=4).round(2),
        rng.integers(0, 400, 4).astype(float),
        float(rng.choice([0.02, 0.2])),
    )


@exercise(
    "model-based",
    draw_waiting_times,
    {
        "the bonus grows with the square root of the waiting": lambda q, waited, kappa: (
            q + kappa * waited
        ).argmax(),
        "the bonus is added to the values of all actions before the best one is chosen": (
            lambda q, waited, kappa: q.argmax()
        ),
    },
    page="dyna_q_plus 3",
)
def choose_with_bonus(q: Array, waited: Array, kappa: float) -> int:
    """The action that is chosen where the bonus is added to the values at the choice: the one with
    the largest q + κ √τ.

    q [A] are the action values of the state, waited [A] says for how many steps τ each action was
    not tried, kappa weighs the bonus.
    """
    return int((q + kappa * np.sqrt(waited)).argmax())


@exercise(
    "model-based",
    lambda rng: (float(rng.choice([0.01, 0.001, 0.02])), float(rng.integers(1, 11))),
    {
        "the bonus is κ √τ, so τ is a square": lambda kappa, goal: goal / kappa,
        "τ is asked for, and not its root's bonus": lambda kappa, goal: kappa * np.sqrt(goal),
    },
    page="dyna_q_plus 2",
)
def waiting_as_good_as_the_goal(kappa: float, goal: float) -> float:
    """After how many steps τ without a try an action's bonus κ √τ is as large as the reward of the
    goal."""
    return (goal / kappa) ** 2


@exercise(
    "monte-carlo",
    lambda rng: (rng.integers(0, 4, rng.integers(2, 6)).astype(float),),
    {
        "every-visit takes the mean of the returns from all visits, and not of the rewards": (
            lambda rewards: [rewards.mean(), rewards.sum()]
        ),
        "first-visit takes the return from the first visit on": lambda rewards: [
            np.cumsum(rewards[::-1]).mean(),
            rewards[-1],
        ],
        "every-visit first, then first-visit": lambda rewards: [
            rewards.sum(),
            np.cumsum(rewards[::-1]).mean(),
        ],
    },
    page="mc_prediction 2",
)
def two_visit_rules(rewards: Array) -> Array:
    """What every-visit and first-visit Monte Carlo say of a state after one episode: [2].

    Every step of the episode was in this one state; the steps paid rewards [T]. There is no
    discount.
    """
    returns = np.cumsum(rewards[::-1])[::-1]
    return np.array([returns.mean(), returns[0]])


def _second_moment(steps: int, stay: float, ratio: float) -> float:
    return sum(
        0.5**step * stay ** (step - 1) * (1 - stay) * ratio**step for step in range(1, steps + 1)
    )


@exercise(
    "monte-carlo",
    lambda rng: (int(rng.integers(1, 12)), float(rng.choice([0.5, 0.8, 0.9]))),
    {
        "this is the mean of ρ; the square of ρ is 4 to the power of the steps": (
            lambda steps, stay: _second_moment(steps, stay, 2.0)
        ),
        "an episode of t steps stays t − 1 times and then ends": lambda steps, stay: sum(
            0.5**t * stay**t * 4.0**t for t in range(1, steps + 1)
        ),
    },
    page="off_policy_mc 2",
)
def second_moment(steps: int, stay: float) -> float:
    """The part of E[ρ²] that episodes of at most so many steps contribute.

    In the one state *left* stays with the probability `stay` and otherwise ends the episode; *right*
    always ends it. The target policy always goes left, the behaviour policy with probability 1/2. ρ
    is the product of the ratios of an episode's actions. (An episode with an action to the right has
    ρ = 0.) Look at what becomes of it for stay = 0.9 with more and more steps.
    """
    return _second_moment(steps, stay, 4.0)


@exercise(
    "temporal-difference",
    lambda rng: (int(rng.integers(1, 9)), int(rng.integers(1, 9))),
    {
        "the episode that begins in A visits B, too, and pays 0 there": (
            lambda ones, zeros: [ones / (ones + zeros), 0.0]
        ),
        "batch TD gives A the value of B, where every visit led; the average return from A is that "
        "of one episode": lambda ones, zeros: [0.0, ones / (ones + zeros + 1)],
    },
    page="td_prediction 3",
)
def two_answers_for_a(ones: int, zeros: int) -> Array:
    """V(A) by batch TD, and the average return from A: [2].

    One episode goes from A, with the reward 0, to B and ends there with the reward 0. So many
    episodes begin in B and end with the reward 1, and so many with the reward 0. There is no
    discount.
    """
    return np.array([ones / (ones + zeros + 1), 0.0])


def _bumps(times: int, alpha: float, decay: float) -> tuple[float, float]:
    accumulating = online = 0.0
    for _ in range(times):
        accumulating = decay * accumulating + alpha
        online = decay * online + alpha * (1 - decay * online)
    return accumulating, online


@exercise(
    "n-step-and-lambda",
    lambda rng: (
        int(rng.integers(2, 7)),
        float(rng.choice([0.1, 0.5])),
        float(rng.choice([0.5, 0.9])),
    ),
    {
        "a replaced trace is α after every visit": lambda times, alpha, decay: [
            _bumps(times, alpha, decay)[0],
            alpha * decay ** (times - 1),
            _bumps(times, alpha, decay)[1],
        ],
        "the trace falls by γλ between two visits": lambda times, alpha, decay: [
            alpha * times,
            alpha,
            1 - (1 - alpha) ** times,
        ],
        "the true-online trace grows by α (1 − e)": lambda times, alpha, decay: [
            _bumps(times, alpha, decay)[0],
            alpha,
            _bumps(times, alpha, decay)[0],
        ],
    },
    page="sarsa_lambda 2",
)
def bump_traces(times: int, alpha: float, decay: float) -> Array:
    """The trace of a pair right after the last of so many visits in a row: [3], accumulating,
    replacing, true-online.

    A visit adds alpha to the trace, sets it to alpha, or adds α (1 − e). Between two visits the
    trace e is multiplied by decay = γλ.
    """
    accumulating, online = _bumps(times, alpha, decay)
    return np.array([accumulating, alpha, online])


def edge(rng: Generator) -> tuple[Array, Array, Array]:
    tries = np.array([rng.integers(3, 9), rng.integers(0, 3)])
    low, high = np.sort(rng.random(2).round(2) / 2)
    prior = np.array([[0.5, 0.5], [0.25, 0.75]])[rng.integers(2)]
    return tries, np.array([high + 0.05, low]), prior


def _threshold(tries: Array, q: Array, prior: Array, *, root: float, more: int) -> float:
    bonus = prior * np.sqrt(tries.sum() + root) / (tries + more)
    return float((q[0] - q[1]) / (bonus[1] - bonus[0]))


@exercise(
    "trees",
    edge,
    {
        "the simulation that added the node counts, too: N(s) is 1 more than the tries": (
            lambda tries, q, prior: _threshold(tries, q, prior, root=0.0, more=1)
        ),
        "the prior's bonus has the root of N(s), and not N(s)": lambda tries, q, prior: float(
            (q[0] - q[1])
            / ((prior / (1 + tries))[1] - (prior / (1 + tries))[0])
            / (1 + tries.sum())
        ),
    },
    page="alphazero 3",
)
def puct_threshold(tries: Array, q: Array, prior: Array) -> float:
    """Above which c PUCT takes the second of two actions, whose value is lower.

    An action's score is Q + c P √N(s) / (1 + N(s, a)), where N(s) = 1 + Σ N(s, a). tries [2] are the
    N(s, a), q [2] the scaled values, prior [2] the probabilities.
    """
    return _threshold(tries, q, prior, root=1.0, more=1)


def draw_one_feature(rng: Generator) -> tuple[Array, Array, Array, Array, Array]:
    terminated = rng.random(5) < 0.3
    truncated = ~terminated & (np.arange(5) == 4)
    x, following = rng.integers(1, 4, (2, 5)).astype(float)
    return x, rng.integers(-3, 4, 5).astype(float), following, terminated, truncated


def _lstd(x: Array, r: Array, following: Array, ended: Array, gamma: float = 0.9) -> float:
    A = x @ (x - gamma * ~ended * following)
    return float(r @ x / A) if A else 0.0


@exercise(
    "linear-approximation",
    draw_one_feature,
    {
        "a time limit is not an end: the next state's feature counts": (
            lambda x, r, after, terminated, truncated: _lstd(x, r, after, terminated | truncated)
        ),
        "where the episode terminated nothing follows": (
            lambda x, r, after, terminated, truncated: _lstd(x, r, after, terminated & False)
        ),
        "A is the sum of x (x − γ x'), and not of x²: this fits the rewards alone": (
            lambda x, r, after, terminated, truncated: _lstd(x, r, after, terminated | True)
        ),
    },
    page="lstd 1",
)
def lstd_weight(
    x: Array, rewards: Array, next_x: Array, terminated: Array, truncated: Array
) -> float:
    """The weight that LSTD computes where there is one feature: w = b / A, with the discount 0.9.

    x [T] is the feature of each step's state, next_x [T] that of the state it led to; rewards [T]
    were paid. terminated [T] and truncated [T] say where an episode ended, and where the time limit
    cut it. (A is not 0.)
    """
    return _lstd(x, rewards, next_x, terminated)


def draw_two_critics(rng: Generator) -> tuple[float, Array, bool, bool]:
    over = bool(rng.random() < 0.4)
    return float(rng.integers(-2, 3)), rng.normal(size=2).round(2) * 3, over, not over


@exercise(
    "maximum-entropy",
    draw_two_critics,
    {
        "a time limit is not an end: the value of s' counts": lambda r, q, over, limit: r,
        "where the episode terminated nothing follows": lambda r, q, over, limit: r + 0.9 * q.min(),
        "the lower of the two critics counts": lambda r, q, over, limit: (
            r + 0.9 * (not over) * q.mean()
        ),
    },
    page="td3 2",
)
def td3_target(reward: float, next_q: Array, terminated: bool, truncated: bool) -> float:
    """TD3's target of one transition, with the discount 0.9.

    next_q [2] are the two critics' values of the smoothed action in the next state, where the
    episode terminated, was cut by the time limit, or goes on.
    """
    return float(
        q_target(
            tensor([reward]),
            torch.tensor([terminated]),
            tensor(next_q.min(keepdims=True)[None]),
            gamma=0.9,
        )
    )


@exercise(
    "maximum-entropy",
    lambda rng: (rng.normal(size=rng.integers(2, 5)).round(2),),
    {
        "both may come out at the same number; go through all pairs": lambda outcomes: np.array(
            [min(a, b) for i, a in enumerate(outcomes) for b in outcomes[i + 1 :]]
        ).mean(),
        "the lower of two is too low on average": lambda outcomes: outcomes.mean(),
        "the lower of two is not always the lowest of all": lambda outcomes: outcomes.min(),
    },
    page="td3 3",
)
def mean_of_the_lower(outcomes: Array) -> float:
    """The average of the lower of two critics' estimates.

    Each estimate comes out at one of the outcomes [n], all as likely, and whatever the other one is.
    """
    return float(np.minimum(outcomes[:, None], outcomes).mean())


@exercise(
    "value-networks",
    lambda rng: (float(rng.choice([0.9, 0.95, 0.99])), float(rng.integers(1, 4))),
    {
        "the first reward is not discounted": lambda gamma, reward: reward * gamma / (1 - gamma),
        "the sum of all powers of γ is 1 / (1 − γ)": lambda gamma, reward: reward / gamma,
    },
    page="dqn 2",
)
def largest_value(gamma: float, reward: float) -> float:
    """The most that any action value can be where no step pays more than `reward`, which is above 0,
    and an episode may last for ever."""
    return reward / (1 - gamma)


@exercise(
    "value-networks",
    sarsa_case,
    {
        "the target is a constant: its own weight does not move": (
            lambda w, s, a, r, s2, a2, over: _full_gradient(w, s, a, r, s2, over)
        ),
        "the slope of half the square of the error is the error": (
            lambda w, s, a, r, s2, a2, over: (
                2 * _sarsa(w, s, a, r + 0.9 * (not over) * w[s2].max()) - w
            )
        ),
        "where the episode has terminated nothing follows": (
            lambda w, s, a, r, s2, a2, over: _sarsa(w, s, a, r + 0.9 * w[s2].max())
        ),
    },
    page="dqn 3",
)
def linear_dqn_step(
    w: Array,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    next_action: int,
    terminated: bool,
) -> Array:
    """The weights [S, A] after one gradient step of DQN on one transition, where the network is
    linear, without a bias, and sees states as one-hot vectors: Q(s, a) = w[s, a].

    The loss is half the squared error, the step size 0.5, the discount 0.9, and there is no target
    network. (next_action is what was done next, in case it matters.)
    """
    del next_action
    leaf = tensor(w).requires_grad_()
    with torch.no_grad():
        target = q_target(
            tensor([reward]), torch.tensor([terminated]), leaf[[next_state]], gamma=0.9
        )
    loss = 0.5 * (target - leaf[state, action]).pow(2).sum()
    loss.backward()
    assert leaf.grad is not None
    return w - 0.5 * leaf.grad.numpy()


def _full_gradient(w: Array, s: int, a: int, r: float, s2: int, over: bool) -> Array:
    best = int(w[s2].argmax())
    error = r + 0.9 * (not over) * w[s2, best] - w[s, a]
    after = w.copy()
    after[s, a] += 0.5 * error
    after[s2, best] -= 0.5 * 0.9 * (not over) * error
    return after


@exercise(
    "maximum-entropy",
    lambda rng: (rng.integers(-2, 3, 3).astype(float), float(rng.choice([0.05, 0.5, 20.0]))),
    {
        "α divides the action values before the softmax": lambda q, alpha: [
            *bandits.softmax(q),
            _soft_maximum(q, alpha),
        ],
        "the value counts the entropy, too": lambda q, alpha: [
            *bandits.softmax(q / alpha),
            bandits.softmax(q / alpha) @ q,
        ],
    },
    page="sac 1",
)
def best_soft_policy(q: Array, alpha: float) -> Array:
    """The policy that makes Σ π (q − α log π) largest, and this largest value: [A + 1], the
    probabilities first.

    q [A] are the action values, alpha the temperature. Look at what becomes of both for a small and
    for a large one.
    """
    return np.append(bandits.softmax(q / alpha), _soft_maximum(q, alpha))


def _soft_maximum(q: Array, alpha: float) -> float:
    return float(q.max() + alpha * np.log(np.exp((q - q.max()) / alpha).sum()))


def draw_last_steps(rng: Generator) -> tuple[Array, Array, float, str]:
    ending = str(rng.choice(["terminated", "truncated"]))
    rewards, values = rng.integers(-2, 4, 2).astype(float), rng.integers(-3, 6, 2).astype(float)
    return rewards, values, float(rng.integers(1, 6)), ending


def _last_two(rewards: Array, values: Array, last: float) -> Array:
    second = rewards[1] + 0.9 * last
    return np.array([rewards[0] + 0.9 * second, second]) - values


@exercise(
    "policy-gradient",
    draw_last_steps,
    {
        "a time limit is not an end: the value of the last state counts": (
            lambda r, V, last, ending: _last_two(r, V, 0.0)
        ),
        "where the episode terminated, nothing follows": (
            lambda r, V, last, ending: _last_two(r, V, last)
        ),
        "with λ = 1 the value between the two steps has no part in the first advantage": (
            lambda r, V, last, ending: (
                r + 0.9 * np.array([V[1], last * (ending == "truncated")]) - V
            )
        ),
    },
    page="a2c 3",
)
def last_advantages(rewards: Array, values: Array, last_value: float, ending: str) -> Array:
    """A2C's advantages of the last two steps of an episode: [2], with λ = 1 and the discount 0.9.

    rewards [2], values [2] are V(s₀) and V(s₁), last_value is what the critic says of s₂. ending is
    "terminated" or "truncated", the latter by a time limit.
    """
    return _last_two(rewards, values, last_value if ending == "truncated" else 0.0)


@exercise(
    "linear-approximation",
    lambda rng: (
        *rng.integers(0, 3, (2, 3)).astype(float),
        float(rng.integers(-3, 4)),
        float(rng.choice([0.1, 0.5])),
    ),
    {
        "the step goes along x: what two states share is x · x'": lambda x, after, error, alpha: (
            alpha * error * after @ after
        ),
        "a state with other features moves otherwise than s itself": (
            lambda x, after, error, alpha: alpha * error * x @ x
        ),
        "how much it moves depends on the features": lambda x, after, error, alpha: alpha * error,
    },
    page="semi_gradient_td 1",
)
def change_next_door(x: Array, next_x: Array, error: float, alpha: float) -> float:
    """How much v(s') changes by one semi-gradient step at s.

    x [D] and next_x [D] are the features of s and s', error is the TD error δ, alpha the step size.
    Look for features with which nothing is shared.
    """
    return float(
        linear_td.semi_gradient_update(0 * x, x, error, 0 * x, gamma=1.0, alpha=alpha) @ next_x
    )


@exercise(
    "planning",
    lambda rng: (int(rng.integers(1, 30)), int(rng.integers(0, 11)), int(rng.choice([2, 4, 6]))),
    {
        "a sweep that evaluates looks at one action of each state": lambda n, m, A: n * (1 + m),
        "the evaluating sweeps follow each of the improvements": lambda n, m, A: n + m / A,
    },
    page="modified_policy_iteration 1",
)
def cost_of_sweeps(improvements: int, sweeps: int, num_actions: int) -> float:
    """What modified policy iteration costs, in sweeps over all actions.

    Each improvement is one such sweep; after it come so many evaluating sweeps, each of which looks
    at one action of every state.
    """
    return improvements * (1 + sweeps / num_actions)


def draw_two_values(rng: Generator) -> tuple[Array, Array]:
    return rng.integers(0, 3, 2).astype(float), rng.normal(size=3).round(2)


def _single_and_double(q: Array, noise: Array) -> tuple[float, float]:
    first, second = q[0] + noise[:, None], q[1] + noise
    ahead = (first > second + 1e-9) + 0.5 * (np.abs(first - second) <= 1e-9)
    share = ahead.mean()
    return float(np.maximum(first, second).mean()), float((q + noise.mean()) @ [share, 1 - share])


@exercise(
    "temporal-difference",
    draw_two_values,
    {
        "the table that chooses is sometimes wrong, and then the other one is asked for the worse "
        "action": lambda q, noise: [_single_and_double(q, noise)[0], q.max() + noise.mean()],
        "the largest of two noisy estimates is too high on average": lambda q, noise: [
            q.max() + noise.mean(),
            _single_and_double(q, noise)[1],
        ],
    },
    page="double_q_learning 3",
)
def single_and_double(q: Array, noise: Array) -> Array:
    """What Q-learning and double Q-learning say of a state with two actions, on average: [2].

    q [2] are the true values. Each estimate is the true value plus one of the numbers noise [3], all
    as likely, and independent of the others. Q-learning takes the larger of one table's two
    estimates. Double Q-learning asks one table for the action (of equal ones either, as likely) and
    the other table for its value.
    """
    return np.array(_single_and_double(q, noise))


@exercise(
    "monte-carlo",
    lambda rng: (
        float(rng.integers(-2, 3)),
        rng.integers(-3, 6, rng.integers(2, 5)).astype(float),
        float(rng.choice([0.1, 0.5])),
    ),
    {
        "each visit starts from what the one before it has left": lambda V, returns, alpha: (
            V + alpha * (returns - V).sum()
        ),
        "the visits are learned from in the order in which they stand": lambda V, returns, alpha: (
            _visits(V, returns[::-1], alpha)
        ),
        "the step size stays the same; this is the mean": lambda V, returns, alpha: returns.mean(),
    },
    page="mc_prediction 3",
)
def visits_in_order(V: float, returns: Array, alpha: float) -> float:
    """The value of a state after an episode that visited it several times.

    V is its value before. returns [n] are the returns from its visits, and each moves the value by
    the constant step size alpha, one after the other. Try another order of the same returns.
    """
    return _visits(V, returns, alpha)


def _visits(V: float, returns: Array, alpha: float) -> float:
    for G in returns:
        V += alpha * (float(G) - V)
    return V


@exercise(
    "value-networks",
    lambda rng: (
        float(rng.integers(-2, 3)),
        rng.integers(-3, 8, 3).astype(float),
        bool(rng.random() < 0.4),
        bool(rng.random() < 0.5),
    ),
    {
        "a time limit is not an end: what would have followed counts": lambda r, q, over, cut: (
            r + 0.9 * (not over and not cut) * q.max()
        ),
        "where the episode terminated nothing follows": lambda r, q, over, cut: r + 0.9 * q.max(),
        "the best next action counts": lambda r, q, over, cut: r + 0.9 * (not over) * q.mean(),
    },
    page="fitted_q 2",
)
def fitted_target(reward: float, next_q: Array, terminated: bool, truncated: bool) -> float:
    """The number y that fitted Q iteration fits Q(s, a) to, with the discount 0.9.

    next_q [A] are the values of the last fit in the next state, where the episode may have
    terminated; truncated says whether the recording was cut there. (Where both are true it ended.)
    """
    return float(
        q_target(tensor([reward]), torch.tensor([terminated]), tensor(next_q[None]), gamma=0.9)
    )


@exercise(
    "linear-approximation",
    lambda rng: (*rng.integers(-2, 3, (3, 3)).astype(float), float(rng.choice([0.5, 1.0, 2.0]))),
    {
        "the step goes along x − γ x', and not along x alone": lambda h, x, after, ratio: (
            0.1 * ratio * (h @ x) * x
        ),
        "it points from γ x' to x": lambda h, x, after, ratio: (
            0.1 * ratio * (h @ x) * (0.9 * after - x)
        ),
        "the ratio of the policies weighs the step": lambda h, x, after, ratio: (
            0.1 * (h @ x) * (x - 0.9 * after)
        ),
    },
    page="gradient_td 1",
)
def gtd2_step(h: Array, x: Array, next_x: Array, ratio: float) -> Array:
    """What GTD2 adds to the weights: [D], with the step size 0.1 and the discount 0.9.

    h [D] are the helper's weights, x [D] and next_x [D] the features of the two states, ratio is ρ:
    α ρ (h · x) (x − γ x').
    """
    weights, _ = linear_td.gtd2_update(
        0 * x, h, x, 0.0, next_x, gamma=0.9, alpha=0.1, beta=0.1, ratio=ratio
    )
    return weights


def _scale(s: Array, p: Array, max_kl: float) -> Array:
    F = np.diag(p) - np.outer(p, p)
    return np.sqrt(2 * max_kl / (s @ F @ s)) * s


def _gradient(logits: Array, A: Array) -> tuple[Array, Array]:
    p = bandits.softmax(logits)
    return p, p * (A - p @ A)


@exercise(
    "trust-regions",
    lambda rng: (
        rng.normal(size=3).round(2),
        np.array([1.0, -1.0, 0.5]) * rng.permutation(3),
        float(rng.choice([0.01, 0.05])),
    ),
    {
        "the direction is the natural gradient F⁺ g, and not g": lambda z, A, max_kl: _scale(
            _gradient(z, A)[1], _gradient(z, A)[0], max_kl
        ),
        "the KL is about half of d F d, so there is a 2 under the root": lambda z, A, max_kl: (
            natural_step.function(z, A, max_kl) / np.sqrt(2)
        ),
    },
    page="trpo 1",
)
def natural_step(logits: Array, A: Array, max_kl: float) -> Array:
    """The step d of TRPO for a policy in one state: [A], d = √(2 δ / sᵀ F s) s.

    p is the softmax of the logits, F = diag(p) − p pᵀ, g = p (A − Σ p A) with the advantages A, and s
    the shortest solution of F s = g (`np.linalg.pinv`). max_kl is δ.
    """
    p, g = _gradient(logits, A)
    F = tensor(np.diag(p) - np.outer(p, p))
    s = torch.linalg.pinv(F, rtol=1e-10) @ tensor(g)
    return trust_region_step(s, F @ s, max_kl).numpy()
