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
from rlbook.functional.adversarial import gradient_penalty
from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.functional.post_training.distillation_losses import forward_kl, reverse_kl
from rlbook.functional.post_training.preference_losses import bradley_terry_loss


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
