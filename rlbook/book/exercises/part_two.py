"""Exercises on features and networks. The right answers are the library's own functions, wherever
it has one."""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, tensor
from rlbook.functional import linear_td, maximum_entropy, rainbow, value_losses
from rlbook.functional.advantages import gae as library_gae
from rlbook.functional.policy_losses import clipped_surrogate_loss


def features(rng: Generator) -> tuple[Array, Array, float, Array, bool]:
    x, following = rng.integers(0, 3, (2, 3)).astype(float)
    return (
        rng.normal(size=3).round(2),
        x,
        float(rng.integers(-2, 3)),
        following,
        bool(rng.random() < 0.3),
    )


@exercise(
    "linear-approximation",
    features,
    {
        "the gradient of the estimate is x, the features of the state before the step": (
            lambda w, x, r, after, over: (
                w + 0.1 * (r + 0.9 * (not over) * w @ after - w @ x) * after
            )
        ),
        "the weights move along the features: a feature of 0 leaves its weight alone, "
        "and one of 2 counts twice": lambda w, x, r, after, over: (
            w + 0.1 * (r + 0.9 * (not over) * w @ after - w @ x) * (x > 0)
        ),
        "where the episode has terminated nothing follows": lambda w, x, r, after, over: (
            w + 0.1 * (r + 0.9 * w @ after - w @ x) * x
        ),
    },
)
def linear_td_step(w: Array, x: Array, reward: float, next_x: Array, terminated: bool) -> Array:
    """The weights after one step of semi-gradient TD: [D], with step size 0.1 and discount 0.9.

    w [D] are the weights, x [D] and next_x [D] the features of the two states. A state is worth w ·
    x.
    """
    return linear_td.semi_gradient_update(
        w, x, reward, np.zeros_like(next_x) if terminated else next_x, gamma=0.9, alpha=0.1
    )


@exercise(
    "value-networks",
    lambda rng: ((rng.normal(size=5) * 2).round(2),),
    {
        "it is half of the square for small errors": lambda errors: np.where(
            np.abs(errors) <= 1, errors**2, np.abs(errors) - 0.5
        ),
        "the line continues the parabola without a jump: |e| − ½": lambda errors: np.where(
            np.abs(errors) <= 1, 0.5 * errors**2, np.abs(errors)
        ),
    },
)
def huber(errors: Array) -> Array:
    """The Huber loss of each error: [B]. A square up to 1, a straight line beyond, joined without a
    jump or a kink."""
    return np.array(
        [float(value_losses.huber_loss(tensor([error]), tensor([0.0]))) for error in errors]
    )


@exercise(
    "rainbow",
    lambda rng: (rng.integers(1, 9, 4).astype(float), float(rng.choice([0.4, 1.0]))),
    {
        "the largest weight is 1: divide by the maximum, and not by the sum": lambda p, beta: (
            (len(p) * p / p.sum()) ** -beta / ((len(p) * p / p.sum()) ** -beta).sum()
        ),
        "what is drawn often counts less": lambda p, beta: (p / p.max()) ** beta,
    },
)
def replay_weights(priorities: Array, beta: float) -> Array:
    """The importance weights of all rows of a prioritised buffer: [N], of which the largest is 1.

    Rows are drawn with probabilities P in proportion to their priorities [N]. A row's weight is (N
    P)^−β, divided by the largest; beta says how much of the uneven drawing is made up for. (DQN
    has the rows of a minibatch only, and divides by the largest of them.)
    """
    return rainbow.importance_weights(
        tensor(priorities / priorities.sum()), len(priorities), beta
    ).numpy()


def distribution(rng: Generator) -> tuple[Array, float, bool]:
    return (
        rng.multinomial(8, np.full(4, 0.25)) / 8,
        float(rng.integers(-4, 8)) / 4,
        bool(rng.random() < 0.3),
    )


@exercise(
    "rainbow",
    distribution,
    {
        "of two returns the nearer one gets more": lambda p, r, over: _favour_the_farther(
            p, r, over
        ),
        "where the episode has terminated, the return is the reward alone, for certain": (
            lambda p, r, over: _project(p, r, False)
        ),
    },
)
def project(p: Array, reward: float, terminated: bool) -> Array:
    """The distribution of r + 0.5 Z on the returns 0, 1, 2, 3: [4].

    p [4] is the distribution of Z on the same returns. What falls between two of them is shared,
    the nearer one getting more; what falls outside goes to the end.
    """
    return _project(p, reward, terminated)


def _favour_the_farther(p: Array, reward: float, terminated: bool) -> Array:
    found = np.zeros(4)
    for z, share in enumerate(p):
        place = float(np.clip(reward + 0.5 * z * (not terminated), 0.0, 3.0))
        below, part = int(place), place % 1
        found[below] += share * (part or 1.0)
        found[min(below + 1, 3)] += share * (1.0 - part) * (part > 0.0)
    return found


def _project(p: Array, reward: float, terminated: bool) -> Array:
    support = tensor([0.0, 1.0, 2.0, 3.0])
    return rainbow.categorical_projection(
        tensor(p)[None], tensor([reward]), torch.tensor([terminated]), 0.5, support
    )[0].numpy()


@exercise(
    "policy-gradient",
    lambda rng: (rng.normal(size=3).round(2), int(rng.integers(3))),
    {
        "the probabilities of all actions are taken off, that of the action itself too": (
            lambda logits, action: (np.arange(3) == action) * 1.0
        ),
        "it points to the action that was taken": lambda logits, action: (
            np.exp(logits) / np.exp(logits).sum() - (np.arange(3) == action)
        ),
    },
)
def score(logits: Array, action: int) -> Array:
    """The gradient of log π(action) with respect to the logits: [A], where π is their softmax."""
    leaf = tensor(logits).requires_grad_()
    torch.log_softmax(leaf, 0)[action].backward()
    assert leaf.grad is not None
    return leaf.grad.numpy()


def rollout(rng: Generator) -> tuple[Array, Array, float, bool]:
    return (
        rng.integers(-2, 3, 4).astype(float),
        rng.integers(-3, 4, 4).astype(float),
        float(rng.integers(-3, 4)),
        bool(rng.random() < 0.5),
    )


def _gae(
    rewards: Array, values: Array, last_value: float, terminated: bool, lam: float = 0.8
) -> Array:
    following, ends = np.append(values[1:], last_value), torch.zeros(4, 1, dtype=torch.bool)
    ended = ends.clone()
    ended[-1] = terminated
    reward, value, next_value = (tensor(column)[:, None] for column in (rewards, values, following))
    return library_gae(reward, value, next_value, ended, ends, gamma=0.9, gae_lambda=lam)[
        :, 0
    ].numpy()


@exercise(
    "policy-gradient",
    rollout,
    {
        "where the rollout was only cut, the value of the last state counts": (
            lambda r, v, last, over: _gae(r, v, last, True)
        ),
        "where the episode has terminated nothing follows": lambda r, v, last, over: _gae(
            r, v, last, False
        ),
        "each TD error reaches back by γλ a step; this is λ = 1": lambda r, v, last, over: _gae(
            r, v, last, over, 1.0
        ),
        "each TD error reaches back by γλ a step; this is λ = 0": lambda r, v, last, over: _gae(
            r, v, last, over, 0.0
        ),
    },
)
def gae(rewards: Array, values: Array, last_value: float, terminated: bool) -> Array:
    """Generalised advantage estimates of a rollout: [T], with discount 0.9 and λ = 0.8.

    rewards [T]; values [T] are those of the states before each step, last_value is that of the
    state after the last one. If the rollout terminated there, nothing follows; otherwise it was
    only cut.
    """
    return _gae(rewards, values, last_value, terminated)


def ratios(rng: Generator) -> tuple[Array, Array]:
    return rng.uniform(0.5, 1.6, 5).round(2), rng.integers(-2, 3, 5).astype(float)


@exercise(
    "trust-regions",
    ratios,
    {
        "the smaller of the two products counts; clipping alone lets a bad action off": (
            lambda ratio, A: -(np.clip(ratio, 0.8, 1.2) * A).mean()
        ),
        "a loss is made small, so it is minus the objective": (
            lambda ratio, A: np.minimum(ratio * A, np.clip(ratio, 0.8, 1.2) * A).mean()
        ),
        "this is the loss without clipping": lambda ratio, A: -(ratio * A).mean(),
    },
)
def ppo_loss(ratio: Array, advantage: Array) -> float:
    """PPO's loss, the mean over the batch, with the clip range 0.2.

    ratio [B] is how much likelier each action has become, advantage [B] how much better it was than
    expected.
    """
    return float(
        clipped_surrogate_loss(
            tensor(np.log(ratio)),
            torch.zeros(len(ratio), dtype=torch.float64),
            tensor(advantage),
            clip=0.2,
        )
    )


@exercise(
    "maximum-entropy",
    lambda rng: (
        rng.integers(-2, 3, 3).astype(float),
        rng.dirichlet(np.ones(3) * 3).round(3) + 1e-3,
        float(rng.choice([0.2, 0.5])),
    ),
    {
        "the entropy is added: minus the logarithm of the probability": lambda q, p, alpha: float(
            p @ (q + alpha * np.log(p))
        ),
        "α weighs the entropy": lambda q, p, alpha: float(p @ (q - np.log(p))),
    },
)
def soft_value(q: Array, p: Array, alpha: float) -> float:
    """The value of a state that counts entropy: Σ p (q − α log p).

    q [A] are the action values, p [A] the probabilities (above 0), alpha the temperature.
    """
    return float(
        maximum_entropy.expected_soft_value(tensor(q)[None], tensor(np.log(p))[None], alpha)
    )


@exercise(
    "maximum-entropy",
    lambda rng: (
        float(rng.normal() * 2),
        float(rng.choice([-0.3, 0.5])),
        float(rng.choice([0.8, 1.5])),
    ),
    {
        "squashing changes the density: log(1 − tanh²(u)) is taken off": lambda u, mu, sigma: (
            _normal(u, mu, sigma)
        ),
        "it is taken off, and not added": lambda u, mu, sigma: (
            _normal(u, mu, sigma) + np.log(1 - np.tanh(u) ** 2)
        ),
    },
)
def squashed_log_prob(u: float, mu: float, sigma: float) -> float:
    """The log-density of the action tanh(u), where u is drawn from a normal distribution with mean
    mu and deviation sigma."""
    return float(_normal(u, mu, sigma) - maximum_entropy.log_slope_of_tanh(tensor(u)))


def _normal(u: float, mu: float, sigma: float) -> float:
    return float(-0.5 * ((u - mu) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi))


@exercise(
    "offline",
    lambda rng: (rng.normal(size=(3, 4)).round(2), rng.integers(0, 4, 3)),
    {
        "the value of the action in the data is taken off": lambda q, actions: np.log(
            np.exp(q).sum(axis=1)
        ),
        "a soft maximum is a logarithm of a sum of exponentials": lambda q, actions: (
            q.max(axis=1) - q[np.arange(3), actions]
        ),
    },
)
def conservative_gap(q: Array, actions: Array) -> Array:
    """What CQL makes small, for each row: [B]. The soft maximum of the action values, less the
    value of the action in the data.

    The soft maximum is the logarithm of the sum of the exponentials. q [B, A] are the action
    values, actions [B] those of the data.
    """
    rows = zip(tensor(q), torch.as_tensor(actions), strict=True)
    return np.array(
        [float(value_losses.conservative_gap(row[None], action[None])) for row, action in rows]
    )


@exercise(
    "learned-models",
    lambda rng: (
        rng.normal(size=(6, 2)).round(2),
        rng.permutation(6).astype(float),
        int(rng.integers(2, 5)),
    ),
    {
        "the best are those with the largest returns": (
            lambda x, G, best: x[np.argsort(G)[:best]].mean(axis=0)
        ),
        "only the best count": lambda x, G, best: x.mean(axis=0),
    },
)
def refitted_mean(plans: Array, G: Array, best: int) -> Array:
    """The mean from which the cross-entropy method draws next: [H].

    plans [N, H] were tried and had the returns G [N]. Those with the largest returns are kept, as
    many as `best` says.
    """
    return plans[np.argsort(-G)[:best]].mean(axis=0)
