"""Exercises of the algorithms' pages on demonstrations, preferences and groups. The right answers
are the library's own functions, wherever it has one."""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator

from rlbook.algorithms.imitation.rejection_sampling import select_best
from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, tensor
from rlbook.functional import bandits
from rlbook.functional.advantages import group_advantage, leave_one_out_advantage
from rlbook.functional.adversarial import gradient_penalty, log_ratio_reward, survival_reward
from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.functional.post_training.distillation_losses import forward_kl, reverse_kl
from rlbook.functional.post_training.preference_losses import bradley_terry_loss, dpo_loss
from rlbook.functional.score_weights import advantage_weights, score_weights
from rlbook.functional.value_losses import conservative_gap


def _drift(epsilon: float, horizon: int, *, first: int = 1) -> float:
    steps = np.arange(1, horizon + 1)
    return float((epsilon * (1 - epsilon) ** (steps - 1) * (horizon - steps + 1 - first)).sum())


@exercise(
    "imitation",
    lambda rng: (float(rng.choice([0.01, 0.05, 0.2])), int(rng.integers(3, 200))),
    {
        "it can leave the way at step t only if it did not leave before: (1 − ε)^(t−1)": (
            lambda epsilon, horizon: epsilon * horizon * (horizon - 1) / 2
        ),
        "the step on which it leaves is not yet lost; the T − t steps after it are": (
            lambda epsilon, horizon: _drift(epsilon, horizon, first=0)
        ),
        "it does not come back: all steps after the first mistake are lost": (
            lambda epsilon, horizon: epsilon * horizon
        ),
    },
    page="dagger 2",
)
def cost_of_a_clone(epsilon: float, horizon: int) -> float:
    """How many of an episode's steps a clone loses on average.

    At every step on the expert's way it leaves the way with the probability epsilon, and then loses
    each of the steps that are left of the horizon, since it never comes back.
    """
    return _drift(epsilon, horizon)


@exercise(
    "offline",
    lambda rng: (rng.integers(0, 5, 5).astype(float), float(rng.choice([0.5, 0.7, 0.9]))),
    {
        "differences are squared: without the square this is the quantile": lambda values, tau: (
            np.quantile(values, tau)
        ),
        "values above e weigh τ, those below it 1 − τ": lambda values, tau: _expectile(
            values, 1 - tau
        ),
    },
    page="iql 1",
)
def expectile(values: Array, tau: float) -> float:
    """The number e that makes the mean of |τ − 1[v < e]| (v − e)² smallest, over the values [n].

    A value above e weighs τ, one below it 1 − τ.
    """
    return _expectile(values, tau)


def _expectile(values: Array, tau: float) -> float:
    found = values.mean()
    for _ in values:  # the weights change at most once for each value
        weights = np.where(values > found, tau, 1 - tau)
        found = weights @ values / weights.sum()
    return float(found)


def groups_of_returns(rng: Generator) -> tuple[Array, int, float]:
    return (
        rng.integers(0, 4, 5).astype(float),
        int(rng.choice([1, 2, 5])),
        float(rng.choice([-9.0, 2.0])),
    )


def _keep_best(returns: Array, keep: int, threshold: float) -> Array:
    place = np.argsort(np.argsort(-returns, kind="stable"), kind="stable")
    return (place < keep) & (returns >= threshold)


@exercise(
    "imitation",
    groups_of_returns,
    {
        "of equal returns the first ones are kept, and no more than `keep`": (
            lambda returns, keep, threshold: (
                (returns >= np.sort(returns)[-keep]) & (returns >= threshold)
            )
        ),
        "a return that equals the threshold is kept": lambda returns, keep, threshold: (
            _keep_best(returns, keep, threshold) & (returns > threshold)
        ),
        "both rules hold: among the best, and not below the threshold": (
            lambda returns, keep, threshold: _keep_best(returns, keep, -np.inf)
        ),
    },
    page="rejection_sampling 1",
)
def kept_episodes(returns: Array, keep: int, threshold: float) -> Array:
    """Which episodes of a group rejection sampling clones: [G], 1 or 0.

    returns [G] are theirs. At most `keep` are taken, those with the largest returns, of equal ones
    the first; and none whose return is below the threshold.
    """
    rows = select_best(tensor(returns), len(returns), keep=keep, least=threshold)
    return np.isin(np.arange(len(returns)), rows.numpy()).astype(float)


@exercise(
    "imitation",
    lambda rng: (float(rng.choice([0.1, 0.3, 0.6])), int(rng.integers(2, 9))),
    {
        "with a threshold only right answers are cloned, so all are right afterwards": (
            lambda p, n: [p, 1 - (1 - p) ** n]
        ),
        "the best of n is wrong only where all n are": lambda p, n: [1.0, p**n],
    },
    page="rejection_sampling 3",
)
def after_cloning(p: float, n: int) -> Array:
    """The probability of a right answer after the kept ones were cloned perfectly: [2], with a
    threshold, and with the best of n.

    Before, an answer is right with the probability p. A right answer pays 1, a wrong one 0.
    """
    return np.array([1.0, 1 - (1 - p) ** n])


@exercise(
    "imitation",
    lambda rng: (int(rng.integers(2, 40)),),
    {
        "the deviation divides by n": lambda n: (n - 1) / np.sqrt(n),
        "the mean is not 0, and the deviation is not 1": lambda n: 1.0,
    },
    page="rce 3",
)
def largest_standardised_score(n: int) -> float:
    """The largest standardised score that one of n beams can have.

    A score less the mean of the n scores, divided by their standard deviation (which divides by n).
    """
    scores = np.eye(n)[0]
    return float((scores[0] - scores.mean()) / scores.std())


def walks(rng: Generator) -> tuple[Array, Array, float]:
    one, other = (rng.integers(-2, 3, rng.integers(1, 6)).astype(float) for _ in range(2))
    return one, other, float(rng.integers(1, 4))


@exercise(
    "preferences",
    walks,
    {
        "the constant is added at every step, so the longer walk gains more": lambda a, b, c: (
            a.sum() - b.sum()
        ),
        "the constant is added once a step, and not once a walk": lambda a, b, c: (
            a.sum() + c - b.sum()
        ),
    },
    page="reward_model 3",
)
def shifted_difference(one: Array, other: Array, c: float) -> float:
    """The difference of two walks' returns after c was added to the reward of every step.

    one [T] and other [T'] are the rewards before, of walks that may differ in length.
    """
    return float((one + c).sum() - (other + c).sum())


@exercise(
    "preferences",
    lambda rng: (float(rng.choice([0.05, 0.1, 0.2, 0.5])),),
    {
        "the square is 0 where Δ is 1/(2β)": lambda beta: 1 / beta,
        "β divides: a small one lets Δ grow far": lambda beta: beta / 2,
    },
    page="dpo 3",
)
def where_ipo_stops(beta: float) -> float:
    """The difference Δ of log-ratios at which the loss of IPO, (Δ − 1/(2β))², is smallest."""
    return 1 / (2 * beta)


@exercise(
    "learning-from-data",
    lambda rng: (
        rng.normal(size=4).round(2),
        rng.normal(size=4).round(2),
        float(rng.choice([2.0, 5.0])),
    ),
    {
        "the logits are divided by T within the softmax, so the slope has a factor 1/T": (
            lambda z, teacher, T: bandits.softmax(z / T) - bandits.softmax(teacher / T)
        ),
        "both are softened": lambda z, teacher, T: (
            (bandits.softmax(z) - bandits.softmax(teacher)) / T
        ),
        "it points from the teacher to the student": lambda z, teacher, T: (
            (bandits.softmax(teacher / T) - bandits.softmax(z / T)) / T
        ),
    },
    page="distillation 3",
)
def soft_gradient(logits: Array, teacher: Array, T: float) -> Array:
    """The gradient of KL(teacher ‖ student) with respect to the student's logits, [A], without the
    factor T².

    Both distributions are softened: the softmax of the logits divided by the temperature T. Look at
    how its length falls with T: by about T², which the factor makes up for.
    """
    leaf = tensor(logits).requires_grad_()
    probs = torch.softmax(tensor(teacher) / T, 0)
    (probs * (probs.log() - torch.log_softmax(leaf / T, 0))).sum().backward()
    assert leaf.grad is not None
    return leaf.grad.numpy()


@exercise(
    "groups",
    lambda rng: (float(rng.choice([0.0, 0.05, 0.5, 0.9, 1.0])), int(rng.choice([2, 4, 8, 16]))),
    {
        "a group in which all are wrong says nothing, either": lambda p, G: p**G,
        "a group in which all are right says nothing, either": lambda p, G: (1 - p) ** G,
        "two answers of a group differ in more ways than one: take the groups in which all are alike": (
            lambda p, G: 1 - 2 * p * (1 - p)
        ),
    },
    page="grpo 1",
)
def silent_groups(p: float, G: int) -> float:
    """The share of groups in which all G answers earn the same, so that no advantage differs from 0.

    An answer is right with the probability p, whatever the others are; a right one pays 1, a wrong
    one 0.
    """
    return p**G + (1 - p) ** G


@exercise(
    "groups",
    lambda rng: (rng.normal(size=rng.choice([2, 3, 4])).round(2),),
    {
        "the mean of the group holds the answer's own return, which makes the advantage smaller": (
            lambda returns: len(returns) / (len(returns) - 1)
        ),
        "what is asked for is the ratio of the advantages, and not the weight of one return": (
            lambda returns: 1 / len(returns)
        ),
    },
    page="grpo 3",
)
def factor_of_the_mean(returns: Array) -> float:
    """By which factor the advantages of GRPO (with scale = none) differ from those with the mean of
    the others as the baseline.

    returns [G] are those of one group; the factor is the same for each of them.
    """
    group = tensor(returns)
    advantage = group_advantage(group, len(returns), scale="none")
    return float((advantage / leave_one_out_advantage(group, len(returns)))[0])


@exercise(
    "language-models",
    lambda rng: (int(rng.integers(2, 7)), float(rng.choice([0.5, 0.9, 1.0]))),
    {
        "the reward comes after the last token, so it is the first that is discounted most": (
            lambda tokens, gamma: gamma ** np.arange(tokens)
        ),
        "the last token is paid at once, without a discount": lambda tokens, gamma: (
            gamma ** np.arange(tokens, 0, -1)
        ),
    },
    page="ppo 3",
)
def token_credit(tokens: int, gamma: float) -> Array:
    """The return of each token of an answer, [T], where a reward of 1 comes with the last one."""
    return gamma ** np.arange(tokens - 1, -1, -1)


@exercise(
    "imitation",
    lambda rng: (float(rng.choice([0.2, 0.5, 0.75, 0.9])),),
    {
        "both kinds of step have a term": lambda D: -np.log(D),
        "each term is the logarithm of the probability of the right label": lambda D: (
            -np.log(D) + np.log(1 - D)
        ),
    },
    page="gail 2",
)
def blind_discriminator(D: float) -> float:
    """The loss of a discriminator that says D of every step, whoever took it, in nats.

    The loss is the mean of −log D over the expert's steps plus the mean of −log(1 − D) over the
    learner's. Look for the D that makes it smallest: there, nothing is left to learn.
    """
    return float(-np.log(D) - np.log(1 - D))


@exercise(
    "offline",
    lambda rng: (float(rng.choice([0.2, 0.5, 0.8])), float(rng.choice([0.7, 0.9]))),
    {
        "this is the mean, the expectile with τ = 1/2": lambda p, tau: p,
        "values above e weigh τ": lambda p, tau: (1 - tau) * p / ((1 - tau) * p + tau * (1 - p)),
        "this is the quantile; an expectile weighs squares": lambda p, tau: float(1 - p < tau),
    },
    page="iql 3",
)
def luck_of_an_action(p: float, tau: float) -> float:
    """The expectile with τ of what an action pays: 1 with the probability p, and otherwise 0.

    A value above e weighs τ, one below it 1 − τ. Compare it with an action that always pays more
    than p.
    """
    return tau * p / (tau * p + (1 - tau) * (1 - p))


@exercise(
    "learning-from-data",
    lambda rng: (*rng.dirichlet(np.ones(3) * 2, 2),),
    {
        "the forward KL weighs by the teacher's probabilities, the reverse one by the student's": (
            lambda teacher, student: [_kl(student, teacher), _kl(teacher, student)]
        ),
        "nats are asked for, and not bits": lambda teacher, student: [
            _kl(teacher, student) / np.log(2),
            _kl(student, teacher) / np.log(2),
        ],
    },
    page="distillation 1",
)
def two_divergences(teacher: Array, student: Array) -> Array:
    """The forward and the reverse KL divergence of teacher [A] and student [A], in nats: [2].

    The forward one is KL(teacher ‖ student), the reverse one KL(student ‖ teacher).
    """
    given = tensor(np.log(student)), tensor(np.log(teacher))
    return np.array([float(forward_kl(*given)), float(reverse_kl(*given))])


def _kl(p: Array, q: Array) -> float:
    return float(p @ np.log(p / q))


@exercise(
    "imitation",
    lambda rng: (rng.uniform(0.05, 1.0, 4).round(2),),
    {
        "the logarithms are averaged, and not the probabilities": lambda p: -np.log(p.mean()),
        "nats are asked for, and not bits": lambda p: -np.log2(p).mean(),
        "it is the mean over the actions": lambda p: -np.log(p).sum(),
    },
    page="behavior_cloning 3",
)
def cloning_loss(p: Array) -> float:
    """The loss of behaviour cloning in nats.

    p [B] are the probabilities that the policy gives to the recorded actions.
    """
    return float(negative_log_likelihood_loss(tensor(np.log(p))))


@exercise(
    "preferences",
    lambda rng: (*rng.integers(-2, 3, (2, 4)) / 2,),
    {
        "a tie counts as wrong": lambda better, worse: [
            np.log1p(np.exp(worse - better)).mean(),
            (better >= worse).mean(),
        ],
        "the loss is the mean of −log σ of the difference": lambda better, worse: [
            1 - (1 / (1 + np.exp(worse - better))).mean(),
            (better > worse).mean(),
        ],
    },
    page="reward_model 1",
)
def loss_and_accuracy(better: Array, worse: Array) -> Array:
    """The loss and the accuracy of a reward model on some pairs: [2].

    better [B] and worse [B] are its scores. The loss is the mean of −log σ(better − worse); a pair is
    right if the better one has the larger score, and a tie is wrong.
    """
    loss = float(bradley_terry_loss(tensor(better), tensor(worse)))
    return np.array([loss, (better > worse).mean()])


@exercise(
    "imitation",
    lambda rng: (rng.integers(-3, 4, 2).astype(float),),
    {
        "the norm of the gradient less 1 is squared, and not the square of the norm less 1": (
            lambda x: (x @ x - 1) ** 2
        ),
        "the gradient of half the square is x itself": lambda x: (np.sqrt(x @ x) / 2 - 1) ** 2,
    },
    page="gail 3",
)
def square_penalty(x: Array) -> float:
    """The gradient penalty (‖∇f(x)‖ − 1)² of f(x) = ½ ‖x‖² at x [2]."""
    rows = tensor(x)[None]
    share = torch.ones(1, dtype=torch.float64)
    penalty = gradient_penalty(lambda row: 0.5 * (row**2).sum(dim=-1), rows, rows, share)
    return float(penalty.detach())


def _bracket(q: Array, action: int) -> float:
    return float(np.log(np.exp(q).sum()) - q[action])


@exercise(
    "offline",
    lambda rng: (
        rng.integers(-3, 4, 4) / 2,
        int(rng.integers(4)),
        float(rng.integers(-2, 5)),
        float(rng.choice([0.0, 0.01, 1.0, 100.0])),
    ),
    {
        "the squared error counts half": lambda q, a, y, alpha: (
            (q[a] - y) ** 2 + alpha * _bracket(q, a)
        ),
        "the bracket is added: it is to become small": lambda q, a, y, alpha: (
            (q[a] - y) ** 2 / 2 - alpha * _bracket(q, a)
        ),
        "the soft maximum is over all actions, the recorded one included": lambda q, a, y, alpha: (
            (q[a] - y) ** 2 / 2 + alpha * (np.log(np.exp(np.delete(q, a)).sum()) - q[a])
        ),
    },
    page="cql 1",
)
def loss_of_cql(q: Array, action: int, y: float, alpha: float) -> float:
    """The loss of CQL of one recorded step: ½ (q(a) − y)² + alpha [ln Σ exp q(b) − q(a)].

    q [A] are the action values of its state, y is the target. Which algorithm is left with alpha = 0?
    """
    rows = tensor(q)[None]
    return 0.5 * (q[action] - y) ** 2 + alpha * float(
        conservative_gap(rows, torch.tensor([action]))
    )


@exercise(
    "offline",
    lambda rng: (rng.integers(-3, 4, 3) / 2, rng.permutation(3) + 1),
    {
        "the slope of ln Σ exp q(b) is the softmax": lambda q, counts: -counts / counts.sum(),
        "what was recorded is pushed up, so its share is subtracted": lambda q, counts: (
            counts / counts.sum() - bandits.softmax(q)
        ),
        "it is the mean over the recordings": lambda q, counts: (
            counts.sum() * bandits.softmax(q) - counts
        ),
    },
    page="cql 2",
)
def slope_of_the_bracket(q: Array, counts: Array) -> Array:
    """The gradient of CQL's bracket with respect to the action values of one state: [A].

    counts [A] say how often each action was recorded there. The bracket is ln Σ exp q(b) − q(a),
    averaged over the recordings. Where is it 0, and which policy is softmax(q) then?
    """
    actions = torch.from_numpy(np.repeat(np.arange(len(q)), counts))
    leaf = tensor(q).requires_grad_()
    conservative_gap(leaf.expand(len(actions), -1), actions).backward()
    assert leaf.grad is not None
    return leaf.grad.numpy()


@exercise(
    "offline",
    lambda rng: (
        rng.integers(-2, 4, 4).astype(float),
        float(rng.integers(-1, 2)),
        float(rng.choice([0.0, 1.0, 3.0])),
    ),
    {
        "no weight is above 100": lambda q, v, beta: np.exp(beta * (q - v)),
        "the value of the state is subtracted": lambda q, v, beta: np.minimum(
            np.exp(beta * q), 100
        ),
        "β multiplies; with 0 all weights are 1": lambda q, v, beta: np.minimum(
            np.exp((q - v) / beta if beta else 0 * q), 100
        ),
    },
    page="iql 2",
)
def cloning_weights(q: Array, v: float, beta: float) -> Array:
    """How much each recorded action weighs in the policy's loss of IQL: [B], exp(beta (q − v)), at
    most 100.

    q [B] are the values of the recorded actions, v is that of their state. Which algorithm is left
    with beta = 0?
    """
    return advantage_weights(tensor(q - v), beta).numpy()


@exercise(
    "imitation",
    lambda rng: (rng.choice([0.05, 0.3, 0.5, 0.7, 0.95], 4),),
    {
        "`survival` is −log(1 − D), which is above 0 for every D": lambda D: [
            np.log(D),
            np.log(D / (1 - D)),
        ],
        "first `survival`, then `log_ratio`": lambda D: [np.log(D / (1 - D)), -np.log(1 - D)],
    },
    page="gail 1",
)
def two_rewards_of_gail(D: Array) -> Array:
    """What GAIL pays for some steps: [2, B], first with `survival`, −log(1 − D), then with
    `log_ratio`, log D − log(1 − D).

    D [B] are the probabilities that the discriminator gives to the step being the expert's. What does
    one step more bring an agent that the discriminator sees through, with each of the two?
    """
    logit = tensor(np.log(D) - np.log(1 - D))
    return torch.stack([survival_reward(logit), log_ratio_reward(logit)]).numpy()


@exercise(
    "preferences",
    lambda rng: (
        *rng.integers(3, size=(2, rng.integers(2, 8))),
        int(rng.integers(3, 6)),
        int(rng.integers(3, 5)),
    ),
    {
        "a pair that was taken twice is one pair": lambda s, a, S, A: S * A - len(s),
        "an action belongs to its state: count pairs": lambda s, a, S, A: (
            (S - len(np.unique(s))) * A
        ),
        "those that no trajectory took are asked for": lambda s, a, S, A: len(np.unique(A * s + a)),
    },
    page="reward_model 2",
)
def untried_pairs(states: Array, actions: Array, S: int, A: int) -> int:
    """How many pairs of a state and an action the trajectories of a reward model never took.

    states [n] and actions [n] are those of all their steps, numbered from 0; there are S states with
    A actions each. What the reward model says of the untried pairs, no comparison has checked.
    """
    taken = set(zip(states.tolist(), actions.tolist(), strict=True))
    return S * A - len(taken)


def label_case(rng: Generator) -> tuple[Array, Array, Array, Array]:
    return (
        rng.dirichlet(np.ones(3), 4),
        rng.dirichlet(np.ones(3), 4).round(3),
        rng.integers(3, size=4),
        rng.random(4) < 0.5,
    )


def _label_loss(student: Array, labels: Array) -> float:
    return float(-np.log(student[np.arange(len(labels)), labels]).mean())


@exercise(
    "learning-from-data",
    label_case,
    {
        "where the student acted, its own action is no label: it would learn to stay as it is": (
            lambda student, teacher, action, by_student: _label_loss(student, action)
        ),
        "where the teacher acted, the label is what it did": (
            lambda student, teacher, action, by_student: _label_loss(
                student, teacher.argmax(axis=1)
            )
        ),
        "labels are hard: the logarithm of one probability for each state": (
            lambda student, teacher, action, by_student: float(
                -(teacher * np.log(student)).sum(axis=1).mean()
            )
        ),
    },
    page="distillation 2",
)
def hard_label_loss(student: Array, teacher: Array, action: Array, by_student: Array) -> float:
    """The loss of distillation with hard labels, in nats: the mean of −log student(label).

    student [B, A] and teacher [B, A] are their probabilities in some states, action [B] is what was
    done there, by the student where by_student [B] says so, and otherwise by the teacher. The label
    is the teacher's action, or, where the student acted, the teacher's most probable one.
    """
    labels = np.where(by_student, teacher.argmax(axis=1), action)
    picked = student[np.arange(len(labels)), labels]
    return float(negative_log_likelihood_loss(tensor(np.log(picked))))


def draw_scores(rng: Generator) -> tuple[Array, float]:
    scores = rng.integers(0, 6, 4).astype(float)
    scores[0] = scores[1] + 1  # not all alike
    return scores, float(rng.choice([0.5, 1.0, 2.0]))


@exercise(
    "imitation",
    draw_scores,
    {
        "scores are standardised first": lambda scores, tau: bandits.softmax(scores / tau),
        "the deviation divides the squares by n": lambda scores, tau: bandits.softmax(
            (scores - scores.mean()) / scores.std(ddof=1) / tau
        ),
        "a small τ leaves the best alone, so it divides": lambda scores, tau: bandits.softmax(
            (scores - scores.mean()) / scores.std() * tau
        ),
    },
    page="rce 1",
)
def beams_by_their_scores(scores: Array, tau: float) -> Array:
    """How much RCE weighs each of n beams: [n], the softmax of the standardised scores, divided by
    tau.

    Standardised is: less their mean, and divided by their standard deviation (which divides the
    squares by n). The scores [n] are not all alike.
    """
    everything = torch.ones(1, len(scores), dtype=torch.bool)
    return score_weights(tensor(scores)[None], everything, tau)[0].numpy()


@exercise(
    "learning-from-data",
    lambda rng: (rng.normal(size=3).round(2), rng.normal(size=3).round(2)),
    {
        "it points from the other student's distribution to one's own": lambda own, other: (
            bandits.softmax(other) - bandits.softmax(own)
        ),
        "the distributions differ, whatever constant their logits have": lambda own, other: (
            own - other
        ),
        "the teacher of this one is the other": lambda own, other: bandits.softmax(own),
    },
    page="co_distillation 1",
)
def lesson_of_a_student(own: Array, other: Array) -> Array:
    """The gradient of KL(other ‖ own) with respect to a student's own logits: [A].

    own [A] and other [A] are the logits of two students in one state. What is left of the lesson if
    the two are the same?
    """
    leaf = tensor(own).requires_grad_()
    forward_kl(leaf, tensor(other)).backward()
    assert leaf.grad is not None
    return leaf.grad.numpy()


@exercise(
    "imitation",
    lambda rng: (float(rng.choice([0.1, 0.3, 1.0])), int(rng.integers(2, 6))),
    {
        "a random action may be the expert's, too": lambda epsilon, A: [
            1 - epsilon,
            epsilon / (A - 1),
        ],
        "the random action is drawn from all A": lambda epsilon, A: [
            1 - epsilon + epsilon / A,
            epsilon / (A - 1),
        ],
    },
    page="behavior_cloning 2",
)
def clone_of_a_noisy_expert(epsilon: float, A: int) -> Array:
    """What a perfect clone of a noisy expert does in a state: [2], the probability of the expert's
    own action, and that of each other one.

    With the probability epsilon the recording took a random action, drawn from all A. Which of them
    does the greedy clone take?
    """
    return np.array([1 - epsilon + epsilon / A, epsilon / A])


@exercise(
    "imitation",
    lambda rng: (float(rng.choice([0.001, 0.05, 0.3])), int(rng.choice([4, 8, 16]))),
    {
        "one good episode is enough": lambda p, G: p**G,
        "probabilities of events that may come together do not add up": lambda p, G: p * G,
        "the other way round: this is a group from which nothing is kept": lambda p, G: (
            (1 - p) ** G
        ),
    },
    page="rejection_sampling 2",
)
def chance_of_a_kept_episode(p: float, G: int) -> float:
    """The probability that a threshold keeps at least one episode of a group of G.

    An episode reaches the threshold with the probability p, whatever the others do. `keep` = 1
    always keeps one.
    """
    return 1 - (1 - p) ** G


@exercise(
    "preferences",
    lambda rng: (
        *rng.normal(size=(2, 3)).round(2),
        float(rng.integers(1, 9)),
        float(rng.choice([0.1, 0.5])),
    ),
    {
        "both log-ratios fall, so their difference stays what it was": (
            lambda chosen, rejected, fall, beta: _dpo(chosen - fall - rejected, beta)
        ),
        "β multiplies the difference": lambda chosen, rejected, fall, beta: _dpo(
            chosen - rejected, 1.0
        ),
        "the loss is −log σ, and not −σ": lambda chosen, rejected, fall, beta: float(
            -(1 / (1 + np.exp(-beta * (chosen - rejected)))).mean()
        ),
    },
    page="dpo 1",
)
def loss_after_a_fall(chosen: Array, rejected: Array, fall: float, beta: float) -> float:
    """The loss of DPO after all log-ratios have fallen by `fall` nats: the mean of
    −log σ(beta (chosen − rejected)).

    chosen [B] and rejected [B] are the log-ratios log π / π_ref of the better and of the worse
    answers before.
    """
    ratios = tensor(chosen - fall), tensor(rejected - fall)
    zero = torch.zeros_like(ratios[0])
    return float(dpo_loss(*ratios, zero, zero, beta=beta))


def _dpo(difference: Array, beta: float) -> float:
    return float(np.log1p(np.exp(-beta * difference)).mean())
