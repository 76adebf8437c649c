"""Exercises of the algorithms' pages on policies and critics: from DQN to GRPO. The right answers
are the library's own functions, wherever it has one."""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, tensor
from rlbook.functional import advantages, bandits, divergences, natural_gradient
from rlbook.functional.maximum_entropy import expected_soft_value
from rlbook.functional.policy_losses import clip_fraction, deterministic_policy_loss
from rlbook.functional.value_losses import smoothed_action


@exercise(
    "maximum-entropy",
    lambda rng: (rng.integers(-2, 3, 4).astype(float), float(rng.choice([0.5, 1.0, 20.0]))),
    {
        "nats are asked for, and not bits": lambda q, alpha: (
            _entropy(bandits.softmax(q / alpha)) / np.log(2)
        ),
        "α divides the action values": lambda q, alpha: _entropy(bandits.softmax(q * alpha)),
        "the logarithms are weighted by the probabilities, and not all alike": lambda q, alpha: (
            -np.log(bandits.softmax(q / alpha)).mean()
        ),
    },
    page="sac 2",
)
def entropy_of_the_best(q: Array, alpha: float) -> float:
    """The entropy, in nats, of the policy that is best for SAC: the softmax of q / alpha.

    q [A] are the action values, alpha the temperature. Look at what becomes of it for a small and
    for a large one; the most that it can be is ln A.
    """
    return float(divergences.categorical_entropy(torch.log_softmax(tensor(q) / alpha, -1)))


def _entropy(p: Array) -> float:
    return float(-p @ np.log(p))


def soft_critics(rng: Generator) -> tuple[Array, Array, float]:
    return (
        rng.normal(size=(2, 3)).round(2) * 2,
        rng.dirichlet(np.ones(3)),
        float(rng.choice([0.2, 0.5])),
    )


def _soft(q: Array, p: Array, alpha: float) -> float:
    return float(p @ (q - alpha * np.log(p)))


@exercise(
    "maximum-entropy",
    soft_critics,
    {
        "the lower one is taken for each action, and not of the two critics' values of the state": (
            lambda q, p, alpha: [
                min(_soft(q[0], p, alpha), _soft(q[1], p, alpha)),
                _soft(q[0], p, alpha),
            ]
        ),
        "the entropy counts, too": lambda q, p, alpha: [p @ q.min(axis=0), p @ q[0]],
        "the second number is of the first critic alone": lambda q, p, alpha: [
            _soft(q.min(axis=0), p, alpha),
            _soft(q.mean(axis=0), p, alpha),
        ],
    },
    page="sac 3",
)
def with_one_critic(q: Array, p: Array, alpha: float) -> Array:
    """The value of a state in SAC, Σ p (q − alpha log p): [2], first with the lower of the two
    critics' values of each action, then with the first critic's.

    q [2, A] are the values of the two critics, p [A] the policy's probabilities. The second number is
    at least the first.
    """
    log_p = tensor(np.log(p))[None]
    values = [expected_soft_value(tensor(row)[None], log_p, alpha) for row in (q.min(axis=0), q[0])]
    return torch.cat(values).numpy()


@exercise(
    "maximum-entropy",
    lambda rng: (
        rng.uniform(-1, 1, 3).round(2),
        rng.normal(size=3).round(2),
        float(rng.choice([0.2, 0.5])),
    ),
    {
        "the noise is clipped before it is added": lambda action, noise, limit: np.clip(
            action + noise, -1, 1
        ),
        "the sum is clipped, too: actions lie in [−1, 1]": lambda action, noise, limit: (
            action + np.clip(noise, -limit, limit)
        ),
        "the limit is that of the noise, and not that of the action": lambda action, noise, limit: (
            np.clip(action + noise, -limit, limit)
        ),
    },
    page="td3 1",
)
def smooth_the_target(action: Array, noise: Array, limit: float) -> Array:
    """The action in TD3's target: [A], the target policy's action with clipped noise.

    action [A] and the result lie in [−1, 1]; noise [A] counts up to `limit` in size.
    """
    return smoothed_action(tensor(action)[None], tensor(noise)[None], limit)[0].numpy()


@exercise(
    "maximum-entropy",
    lambda rng: (float(rng.integers(-2, 3)), rng.normal(size=4).round(2), float(rng.integers(4))),
    {
        "the chain rule: the action's own slope with respect to θ is s": lambda theta, s, best: (
            -2 * (theta * s - best)
        ).mean(),
        "the critic's slope is taken at the action that the policy takes": lambda theta, s, best: (
            2 * best * s
        ).mean(),
        "Q is to rise, so the sign is that of a gradient to ascend": lambda theta, s, best: (
            2 * (theta * s - best) * s
        ).mean(),
    },
    page="ddpg 1",
)
def policy_slope(theta: float, states: Array, best: float) -> float:
    """The derivative with respect to θ of what DDPG's policy makes large: the mean of Q(s, μ(s)).

    The policy is μ(s) = θ s, the critic Q(s, a) = −(a − best)², and states [B] are drawn from the
    buffer. No return and no log π occurs in it.
    """
    leaf = tensor(theta).requires_grad_()
    loss = deterministic_policy_loss(-((leaf * tensor(states) - best) ** 2))
    loss.backward()
    assert leaf.grad is not None
    return -float(leaf.grad)


@exercise(
    "value-networks",
    lambda rng: (rng.integers(-9, 10, rng.integers(5, 9)).astype(float), int(rng.integers(1, 4))),
    {
        "the copy is made after the update that is counted, and used from the next one on": (
            lambda online, period: _copies(online, period, 0)
        ),
        "this is DQN without a target network": lambda online, period: online[:-1],
        "the first copy is the one before the first update": lambda online, period: [
            online[max(k - period, 0)] for k in range(len(online) - 1)
        ],
    },
    page="dqn 1",
)
def weights_of_the_target(online: Array, period: int) -> Array:
    """Which weight the target network has during each update: [T].

    online [T + 1] is the network's one weight, first before any update and then after each of them.
    The target network is a copy of it at first, and is copied again after every `period` updates.
    (DQN's `target_period` counts environment steps, and not updates.)
    """
    return _copies(online, period, 1)


def _copies(online: Array, period: int, first: int) -> Array:
    updates = np.arange(1, len(online))
    return online[(updates - first) // period * period]


@exercise(
    "policy-gradient",
    lambda rng: (
        int(rng.integers(2, 30)),
        int(rng.choice([1, 4, 8])),
        int(rng.choice([1, 5, 64])),
    ),
    {
        "every environment takes so many steps before an update": lambda rollouts, N, T: [
            rollouts * N,
            T,
        ],
        "an update learns from the steps of all environments": lambda rollouts, N, T: [rollouts, T],
    },
    page="a2c 1",
)
def updates_and_rows(rollouts: int, num_envs: int, rollout_steps: int) -> Array:
    """How often A2C updates, and how many steps each update learns from: [2].

    The budget is rollouts · num_envs · rollout_steps steps, counted in all environments together. An
    update comes after rollout_steps steps of each environment.
    """
    return np.array([rollouts, num_envs * rollout_steps])


def _gae(errors: Array, gamma: float, decay: float) -> Array:
    none = torch.zeros(len(errors) - 1, 1, dtype=torch.bool)
    value = tensor(errors)[:, None]
    zero = torch.zeros_like(value[1:])
    found = advantages.gae(zero, value[:-1], value[1:], none, none, gamma=gamma, gae_lambda=decay)
    return found[:, 0].numpy()


@exercise(
    "policy-gradient",
    lambda rng: (
        rng.integers(-3, 4, 4).astype(float),
        float(rng.choice([0.9, 1.0])),
        float(rng.choice([0.5, 0.8])),
    ),
    {
        "with λ = 1 only the last state's error and the step's own are left": (
            lambda errors, gamma, decay: _gae(errors, gamma, 1.0)
        ),
        "this is λ = 0, one step": lambda errors, gamma, decay: _gae(errors, gamma, 0.0),
        "V(s) is subtracted, so its own error counts with a minus sign": (
            lambda errors, gamma, decay: _gae(errors, gamma, decay) + 2 * errors[:-1]
        ),
    },
    page="a2c 2",
)
def errors_of_advantages(errors: Array, gamma: float, decay: float) -> Array:
    """By how much each advantage is wrong where the critic is: [T].

    errors [T + 1] say how much the critic's values of s₀, s₁, … s_T are too high. The advantages are
    the generalised ones with λ = decay, of T steps that no end interrupts. Advantages are linear in
    the values. Try λ = 0 and λ = 1.
    """
    return _gae(errors, gamma, decay)


def ratios(rng: Generator) -> tuple[Array, Array, float]:
    return (
        rng.uniform(0.4, 1.6, 6).round(2),
        rng.choice([-1.0, 1.0, 2.0], 6),
        float(rng.choice([0.1, 0.3, 1e9])),
    )


@exercise(
    "trust-regions",
    ratios,
    {
        "a ratio that has left the interval on the other side is brought back, and not held": (
            lambda ratio, A, clip: ((ratio > 1 + clip) | (ratio < 1 - clip)).mean()
        ),
        "it is the other way round: a good action is held where it has become likelier": (
            lambda ratio, A, clip: (
                ((ratio > 1 + clip) & (A < 0)) | ((ratio < 1 - clip) & (A > 0))
            ).mean()
        ),
        "bad actions are held, too, where they have become less likely": lambda ratio, A, clip: (
            (ratio > 1 + clip) & (A > 0)
        ).mean(),
    },
    page="ppo 1",
)
def held_by_the_clip(ratio: Array, A: Array, clip: float) -> float:
    """The share of steps that PPO's clip holds, so that they have no gradient.

    ratio [B] is π(a|s) / π_old(a|s), A [B] the advantages, none of which is 0. In the first epoch all
    ratios are 1. What does a clip of 10⁹ hold?
    """
    log_ratio = tensor(np.log(ratio))
    found = clip_fraction(log_ratio, torch.zeros_like(log_ratio), tensor(A), clip=clip)
    return float(found)


@exercise(
    "trust-regions",
    lambda rng: (rng.integers(-3, 4, 5).astype(float), rng.permutation(5).astype(float)),
    {
        "a constant error of the critic is not counted: it is the variance of the errors": (
            lambda values, G: 1 - ((G - values) ** 2).mean() / G.var()
        ),
        "what is explained is what the errors leave: 1 − the ratio": lambda values, G: (
            (G - values).var() / G.var()
        ),
        "the whole is the variance of the returns, and not of the values": lambda values, G: (
            values.var() / G.var()
        ),
    },
    page="ppo 2",
)
def explained_share(values: Array, G: Array) -> float:
    """Which share of the returns' variance the critic explains: 1 − Var(G − V) / Var(G).

    values [B] are the critic's, G [B] the returns that they are compared with.
    """
    target = tensor(G)
    everything = torch.ones(len(G), dtype=torch.bool)
    return advantages.explained_variance(target - tensor(values), target, everything)


def _kl(p: Array, q: Array) -> float:
    return float(p @ np.log(p / q))


def _quadratic(p: Array, d: Array) -> float:
    return float(d @ (np.diag(p) - np.outer(p, p)) @ d)


@exercise(
    "trust-regions",
    lambda rng: (
        rng.normal(size=3).round(1),
        rng.normal(size=3).round(2) * float(rng.choice([0.1, 3.0])),
    ),
    {
        "the old policy comes first: KL(old ‖ new)": lambda z, d: [
            _kl(bandits.softmax(z + d), bandits.softmax(z)),
            _quadratic(bandits.softmax(z), d) / 2,
        ],
        "the second derivative of the KL is F, so there is a ½": lambda z, d: [
            _kl(bandits.softmax(z), bandits.softmax(z + d)),
            _quadratic(bandits.softmax(z), d),
        ],
        "F is that of the old policy": lambda z, d: [
            _kl(bandits.softmax(z), bandits.softmax(z + d)),
            _quadratic(bandits.softmax(z + d), d) / 2,
        ],
    },
    page="trpo 2",
)
def predicted_divergence(logits: Array, d: Array) -> Array:
    """The KL divergence KL(old ‖ new) of a step, and what TRPO predicts of it: [2], in nats.

    The policy is the softmax of the logits [A] in one state, and the step adds d [A] to them. The
    prediction is ½ dᵀ F d with F = diag(p) − p pᵀ, p of the old policy. Compare the two for a small
    step and for a large one.
    """
    p = bandits.softmax(logits)
    return np.array([_kl(p, bandits.softmax(logits + d)), _quadratic(p, d) / 2])


def systems(rng: Generator) -> tuple[Array, Array]:
    root = rng.integers(-2, 3, (3, 3)).astype(float)
    return root @ root.T + np.eye(3), rng.permutation(3) + 1.0


@exercise(
    "trust-regions",
    systems,
    {
        "one iteration does not solve the system: it goes along g alone": lambda F, g: (
            np.linalg.solve(F, g)
        ),
        "how far it goes is gᵀg / gᵀFg": lambda F, g: g,
        "a g stands in the numerator twice": lambda F, g: g / (g @ F @ g),
    },
    page="trpo 3",
)
def one_conjugate_step(F: Array, g: Array) -> Array:
    """What the method of conjugate gradients says after one iteration: [P].

    It solves F s = g, begins with s = 0, and its first direction is g. It goes as far along it as
    makes the error of the system smallest: by the factor gᵀg / gᵀFg.
    """
    matrix = tensor(F)
    return natural_gradient.conjugate_gradient(
        lambda v: matrix @ v, tensor(g), iterations=1
    ).numpy()


def draw_returns(rng: Generator) -> tuple[Array]:
    returns = rng.integers(0, 5, rng.integers(2, 6)).astype(float)
    returns[0] = returns[1] + 1  # not all alike
    return (returns,)


def _others(returns: Array) -> Array:
    return returns - (returns.sum() - returns) / (len(returns) - 1)


@exercise(
    "policy-gradient",
    draw_returns,
    {
        "the mean of the others leaves the episode's own return out": lambda returns: [
            returns - returns.mean(),
            returns - returns.mean(),
        ],
        "first the mean of the others, then that of all": lambda returns: [
            returns - returns.mean(),
            _others(returns),
        ],
        "the others are one fewer": lambda returns: [
            returns - (returns.sum() - returns) / len(returns),
            returns - returns.mean(),
        ],
    },
    page="reinforce 1",
)
def two_baselines(returns: Array) -> Array:
    """The advantages of some episodes: [2, n], with the mean of the other episodes as the baseline,
    and with the mean of all.

    returns [n] are theirs.
    """
    group = tensor(returns)
    found = (
        advantages.leave_one_out_advantage(group, len(group)),
        advantages.group_advantage(group, len(group), scale="none"),
    )
    return torch.stack(found).numpy()


@exercise(
    "groups",
    draw_returns,
    {
        "the deviation divides the squares by G − 1": lambda returns: [
            (returns - returns.mean()) / returns.std(),
            returns - returns.mean(),
        ],
        "the advantages are divided by the deviation, and not by the variance": lambda returns: [
            (returns - returns.mean()) / returns.var(ddof=1),
            returns - returns.mean(),
        ],
        "without a scale the mean is subtracted all the same": lambda returns: [
            (returns - returns.mean()) / returns.std(ddof=1),
            returns,
        ],
    },
    page="grpo 2",
)
def two_scales(returns: Array) -> Array:
    """GRPO's advantages of a group: [2, G], first with `scale` = std, then with `scale` = none.

    returns [G] are not all alike. The standard deviation is that of a sample, which divides the sum
    of squares by G − 1; nothing is added to it.
    """
    group = tensor(returns)
    found = [
        advantages.group_advantage(group, len(group), scale=scale, eps=0.0)
        for scale in ("std", "none")
    ]
    return torch.stack(found).numpy()
