"""Exercises of the algorithms' pages on imitation and on policies' gradients: which samples teach,
and how much. The right answers are the library's own functions, wherever it has one."""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, tensor
from rlbook.functional import bandits
from rlbook.functional.advantages import leave_one_out_advantage
from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.functional.post_training.distillation_losses import forward_kl, soft_label_loss
from rlbook.functional.post_training.preference_losses import dpo_loss
from rlbook.functional.score_weights import score_weights


def recording_case(rng: Generator) -> tuple[Array, Array, Array]:
    logits, size = rng.integers(-2, 3, (4, 3)).astype(float), int(rng.integers(2, 6))
    return logits, rng.integers(0, 3, size), rng.integers(0, 3, size)  # state 3 is never recorded


def _rows_softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _clone(
    logits: Array, states: Array, actions: Array, *, pull: float = 1.0, summed: bool = False
) -> Array:
    after, probs = logits.copy(), _rows_softmax(logits)
    for state, action in zip(states, actions, strict=True):
        step = np.eye(3)[action] - pull * probs[state]
        after[state] += step if summed else step / len(states)
    return _rows_softmax(after)


@exercise(
    "imitation",
    recording_case,
    {
        "the loss is a mean over the recording": lambda logits, states, actions: _clone(
            logits, states, actions, summed=True
        ),
        "the slope of log π(a|s) in the logits is 1 for a, less the probability of each action": (
            lambda logits, states, actions: _clone(logits, states, actions, pull=0.0)
        ),
        "a table shares nothing: what was never recorded stays as it was": (
            lambda logits, states, actions: np.vstack(
                [_clone(logits, states, actions)[:3], np.full(3, 1 / 3)]
            )
        ),
    },
    page="behavior_cloning 1",
)
def clone_after_one_step(logits: Array, states: Array, actions: Array) -> Array:
    """The probabilities of a cloned table of logits after one gradient step: [S, A].

    logits [S, A] are those before, states [B] and actions [B] the recording. The loss is the mean of
    −log π(a|s) over the recording, the step size is 1. What has the clone learned for a state in
    which the recording never was?
    """
    leaf = tensor(logits).requires_grad_()
    log_prob = leaf.log_softmax(-1)[torch.from_numpy(states), torch.from_numpy(actions)]
    negative_log_likelihood_loss(log_prob).backward()
    assert leaf.grad is not None
    return _rows_softmax(logits - leaf.grad.numpy())


def student_case(rng: Generator) -> tuple[Array, Array, Array, float]:
    own, peer = rng.integers(-2, 3, (2, 4, 3)).astype(float)
    return own, peer, rng.integers(3, size=4), float(rng.choice([0.0, 1.0]))


def _student_loss(own: Array, peer: Array, labels: Array, soft_coef: float, *, rows: int) -> float:
    log_own, log_peer = (np.log(_rows_softmax(logits)) for logits in (own, peer))
    hard = -log_own[np.arange(rows), labels[:rows]].mean()
    return float(hard + soft_coef * (np.exp(log_peer) * (log_peer - log_own)).sum(axis=1).mean())


@exercise(
    "learning-from-data",
    student_case,
    {
        "a student has the labels of its own half only": lambda own, peer, labels, soft_coef: (
            _student_loss(own, peer, labels, soft_coef, rows=4)
        ),
        "the divergence is that from the other student to one's own, KL(peer ‖ own)": (
            lambda own, peer, labels, soft_coef: (
                _student_loss(own, peer, labels, 0.0, rows=2)
                + soft_coef * float(forward_kl(tensor(peer), tensor(own)).mean())
            )
        ),
        "the other student is heard on the whole minibatch": (
            lambda own, peer, labels, soft_coef: _student_loss(
                own[:2], peer[:2], labels, soft_coef, rows=2
            )
        ),
    },
    page="co_distillation 2",
)
def loss_of_the_first_student(own: Array, peer: Array, labels: Array, soft_coef: float) -> float:
    """What the first of two students minimises on a minibatch of four, in nats.

    It is the mean of −log own(label) over its own labels, those of the first two rows, plus
    soft_coef times the mean of KL(peer ‖ own) over all four. own [4, A] and peer [4, A] are the
    students' logits, labels [4] the recorded actions. What does it know of the last two rows with
    soft_coef = 0?
    """
    log_prob = tensor(own).log_softmax(-1)[torch.arange(2), torch.from_numpy(labels[:2])]
    hard = negative_log_likelihood_loss(log_prob)
    return float(hard + soft_coef * soft_label_loss(tensor(own), tensor(peer)))


def _kl(first: Array, second: Array) -> float:
    return float((first * np.log(first / second)).sum())


@exercise(
    "learning-from-data",
    lambda rng: tuple(rng.choice([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]], 2, replace=False)),
    {
        "the other student stands first: the first one is taught by the second": (
            lambda first, second: [_kl(first, second), _kl(second, first)]
        ),
        "in nats: the natural logarithm": lambda first, second: [
            _kl(second, first) / np.log(2),
            _kl(first, second) / np.log(2),
        ],
        "the divergence is not the same in both directions": lambda first, second: (
            [_kl(second, first)] * 2
        ),
    },
    page="co_distillation 3",
)
def lessons_of_two_students(first: Array, second: Array) -> Array:
    """How far each of two students is from what the other teaches: [2], KL(second ‖ first) and
    KL(first ‖ second), in nats.

    first [A] and second [A] are their probabilities in one state. Who has more to learn, the certain
    student or the uncertain one?
    """
    logits = [tensor(np.log(probs)) for probs in (first, second)]
    return np.array([float(forward_kl(*logits)), float(forward_kl(*logits[::-1]))])


def _share_off(slip: float, T: int, first: int = 0) -> float:
    return float((1 - (1 - slip) ** np.arange(first, T + first)).mean())


@exercise(
    "imitation",
    lambda rng: (
        float(rng.choice([0.0, 0.3, 1.0])),
        float(rng.choice([0.01, 0.1])),
        int(rng.integers(5, 40)),
    ),
    {
        "β is the probability that the expert acts": lambda beta, error, T: _share_off(
            beta * error, T
        ),
        "it has left the way if any step before went wrong": lambda beta, error, T: (
            (1 - beta) * error
        ),
        "the first state is still on the way": lambda beta, error, T: _share_off(
            (1 - beta) * error, T, 1
        ),
    },
    page="dagger 1",
)
def labels_off_the_way(beta: float, error: float, T: int) -> float:
    """The share of DAgger's labels that are for states off the expert's way, on average.

    An episode has T states, all labelled. In each the expert acts with probability beta, and
    otherwise the learner, who errs with probability `error` and then stays off the way to the end.
    The first state is on the way. What does the learner never see with beta = 1, as in behaviour
    cloning?
    """
    return _share_off((1 - beta) * error, T)


def agreement_case(rng: Generator) -> tuple[Array, float]:
    return rng.choice([0.6, 0.8, 0.95, 1.0], rng.integers(3, 9), p=[0.2, 0.2, 0.2, 0.4]), float(
        rng.choice([0.7, 0.9])
    )


@exercise(
    "imitation",
    agreement_case,
    {
        "the agreement may fall again: look for the last fit below the threshold": (
            lambda agreement, enough: (
                int((agreement >= enough).argmax())
                if (agreement >= enough).any()
                else len(agreement)
            )
        ),
        "the fits between count, too, in which the learner happened to agree": (
            lambda agreement, enough: (agreement < enough).sum()
        ),
        "count the fits, from 1": lambda agreement, enough: max(
            np.flatnonzero(agreement < enough), default=-1
        ),
    },
    page="dagger 3",
)
def fits_with_news(agreement: Array, enough: float) -> int:
    """After how many of its fits DAgger could have stopped asking the expert.

    agreement [K] is the share of each fit's new states in which the learner already did as the
    expert. It could have stopped when, from then on, the agreement never was below `enough` again; 0
    if it never was. How could a learner notice this while it is learning?
    """
    return int(np.flatnonzero(np.append(True, agreement < enough))[-1])


def _pulls(delta: Array, beta: float) -> Array:
    return -beta / (1 + np.exp(beta * delta))


@exercise(
    "preferences",
    lambda rng: (rng.integers(-20, 21, rng.integers(2, 5)) / 2, float(rng.choice([0.1, 0.5]))),
    {
        "the loss is a mean over the pairs": _pulls,
        "a pair that is in the right order already is pulled less": lambda delta, beta: (
            _pulls(-delta, beta) / len(delta)
        ),
        "β multiplies Δ in the loss, and so the slope, too": lambda delta, beta: (
            _pulls(delta, beta) / beta / len(delta)
        ),
        "a larger Δ lowers the loss": lambda delta, beta: -_pulls(delta, beta) / len(delta),
    },
    page="dpo 2",
)
def pull_on_each_pair(delta: Array, beta: float) -> Array:
    """The slope of DPO's loss in the Δ of each pair: [B].

    delta [B] is how much the log-ratio of the better answer exceeds that of the worse one. The loss
    is the mean of −log σ(beta Δ). Which pair is pulled harder, one with Δ = 1.5 or one with −0.5?
    """
    leaf = tensor(delta).requires_grad_()
    zero = torch.zeros_like(leaf)
    dpo_loss(leaf, zero, zero, zero, beta=beta).backward()
    assert leaf.grad is not None
    return leaf.grad.numpy()


def score_case(rng: Generator) -> tuple[Array, Array, float]:
    scores = rng.integers(0, 6, 5).astype(float)
    scores[0] = scores[1] + 1  # not all alike
    return rng.integers(0, 3, 5), scores, float(rng.choice([0.1, 1.0, 1e6]))


@exercise(
    "imitation",
    score_case,
    {
        "a score counts by its weight": lambda actions, scores, tau: (
            np.bincount(actions, minlength=3) / len(actions)
        ),
        "with a large τ the best one is not alone: all are cloned": lambda actions, scores, tau: (
            np.eye(3)[actions[scores.argmax()]]
        ),
        "scores are standardised first": lambda actions, scores, tau: np.bincount(
            actions, bandits.softmax(scores / tau), minlength=3
        ),
    },
    page="rce 2",
)
def cloned_shares(actions: Array, scores: Array, tau: float) -> Array:
    """The probabilities of three first actions in a perfect clone by RCE: [3].

    actions [n] are the first actions of n beams, scores [n] what the beams scored. A beam's weight is
    the softmax of its standardised score, divided by tau; an action's probability is the sum of the
    weights of its beams. What is cloned with tau = 1 000 000?
    """
    everything = torch.ones(1, len(scores), dtype=torch.bool)
    weights = score_weights(tensor(scores)[None], everything, tau)[0].numpy()
    return np.bincount(actions, weights, minlength=3)


def _moments(p: float, paid: Array, baseline: float) -> tuple[float, float]:
    probs = np.array([1 - p, p])
    estimates = (np.arange(2) - p) * (paid - baseline)
    return float(probs @ estimates), float(probs @ estimates**2)


@exercise(
    "policy-gradient",
    lambda rng: (
        float(rng.choice([0.2, 0.5, 0.9])),
        rng.integers(-4, 5, 2) + 6.0,
        float(rng.choice([0.0, 5.0])),
    ),
    {
        "the square of the mean is subtracted": lambda *case: list(_moments(*case)),
        "the baseline has no part in the mean": lambda p, paid, baseline: [
            p * (1 - p) * (paid[1] - paid[0] - baseline),
            _moments(p, paid, baseline)[1] - _moments(p, paid, baseline)[0] ** 2,
        ],
        "the baseline is subtracted from what was paid": lambda p, paid, baseline: [
            _moments(p, paid, 0.0)[0],
            _moments(p, paid, 0.0)[1] - _moments(p, paid, 0.0)[0] ** 2,
        ],
    },
    page="reinforce 2",
)
def noise_of_the_gradient(p: float, paid: Array, baseline: float) -> Array:
    """The mean and the variance of REINFORCE's gradient from one episode of one step: [2].

    There are two actions; the second is taken with probability p, and paid [2] is what each pays.
    The gradient in the second action's logit is (1 − p) times the advantage where that action was
    taken, and −p times it where the other was; the advantage is what was paid less the baseline.
    Which of the two numbers does the baseline change?
    """
    mean, square = _moments(p, paid, baseline)
    return np.array([mean, square - mean**2])


def group_case(rng: Generator) -> tuple[Array, Array, int]:
    return (
        rng.integers(0, 5, 6).astype(float),
        rng.integers(1, 5, 6).astype(float),
        int(rng.choice([2, 3])),
    )


def _others(returns: Array, G: int) -> Array:
    groups = returns.reshape(-1, G)
    return ((groups - groups.mean(axis=1, keepdims=True)) * G / (G - 1)).ravel()


@exercise(
    "groups",
    group_case,
    {
        "the baseline is the mean of the others, without the episode's own return": (
            lambda returns, lengths, G: _others(returns, G) * (G - 1) / G / len(returns)
        ),
        "the steps of an episode are added up, and not averaged (`average` = constant)": (
            lambda returns, lengths, G: _others(returns, G) / lengths / len(returns)
        ),
        "the loss is a mean over episodes, and not over all steps": (
            lambda returns, lengths, G: _others(returns, G) / lengths.sum()
        ),
        "the others are those of the same group": lambda returns, lengths, G: (
            _others(returns, len(returns)) / len(returns)
        ),
    },
    page="reinforce 3",
)
def weight_of_a_token(returns: Array, lengths: Array, G: int) -> Array:
    """How much RLOO weighs a token of each episode: [B], the factor of ∇ log π in the gradient.

    returns [B] are the returns of the episodes, those of a group of G next to each other; lengths [B]
    are how many tokens they have. The baseline is the mean of the other episodes of the group, the
    gradient a mean over the episodes of the sum over their tokens. Which settings of `grpo` decide
    on each of these?
    """
    del lengths
    return (leave_one_out_advantage(tensor(returns), G) / len(returns)).numpy()
