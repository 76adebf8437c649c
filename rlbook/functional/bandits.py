"""Formulas for multi-armed bandits, in which each action has a single value.

Every function takes one problem [A] or many side by side [..., A].
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[np.float64]


def random_argmax(scores: Array, rng: Generator) -> NDArray[np.int64]:
    """The index of the largest score; ties are broken uniformly at random.

    Args:
        scores: [..., A]; infinite scores are allowed.
        rng: draws one uniform number for each problem.

    Returns:
        [...] int.

    Source: Sutton & Barto 2018, eq. 2.2, "with ties broken arbitrarily"; evenly here.
    """
    best = scores == scores.max(axis=-1, keepdims=True)
    place = np.floor(rng.random(scores.shape[:-1]) * best.sum(axis=-1))  # of those that tie
    return ((best.cumsum(axis=-1) > place[..., None]) & best).argmax(axis=-1)


def upper_confidence_bound(values: Array, counts: NDArray[np.int64], confidence: float) -> Array:
    """The UCB score of each action, an optimistic estimate of its value; untried actions come
    first.

    U(a) = Q(a) + c √(ln t / N(a)),   t = 1 + Σ_a N(a)

    Args:
        values: [..., A]. Q(a), in reward units.
        counts: [..., A]. N(a), how often each action was tried.
        confidence: c, in reward units.

    Returns:
        [..., A], in reward units; infinite where N(a) = 0.

    Source: Sutton & Barto 2018, eq. 2.10; Auer et al. 2002, doi:10.1023/A:1013689704352, with
    c = √2.
    """
    time = 1 + counts.sum(axis=-1, keepdims=True)
    width = np.sqrt(np.log(time) / np.maximum(counts, 1))
    return np.where(counts > 0, values + confidence * width, np.inf)


def normal_posterior(
    means: Array,
    counts: NDArray[np.int64],
    prior_mean: float = 0.0,
    prior_std: float = 1.0,
    noise_std: float = 1.0,
) -> tuple[Array, Array]:
    """The posterior of each action's mean reward, if rewards are N(q*(a), σ²) and q*(a) has the
    prior N(m, s²): again a normal distribution.

    std(a) = 1 / √(1/s² + N(a)/σ²),   mean(a) = std(a)² (m/s² + N(a) Q(a)/σ²)

    Args:
        means: [..., A]. Q(a), the mean of the N(a) rewards of a, in reward units.
        counts: [..., A]. N(a).
        prior_mean, prior_std: m and s, in reward units.
        noise_std: σ, in reward units.

    Returns:
        Its means and standard deviations: two arrays [..., A], in reward units.

    Source: Russo et al. 2018, arXiv:1707.02038, section 4.
    """
    precision = 1.0 / prior_std**2 + counts / noise_std**2
    weighted = prior_mean / prior_std**2 + counts * means / noise_std**2
    return weighted / precision, 1.0 / np.sqrt(precision)


def beta_posterior(means: Array, counts: NDArray[np.int64]) -> tuple[Array, Array]:
    """The posterior of each action's mean reward, if rewards are 0 or 1 and the prior is uniform:
    Beta(1 + ones, 1 + zeros).

    Args:
        means: [..., A]. Q(a), the share of ones among the N(a) rewards of a, in [0, 1].
        counts: [..., A]. N(a).

    Returns:
        Its two parameters: arrays [..., A].

    Source: Thompson 1933, doi:10.1093/biomet/25.3-4.285; Agrawal & Goyal 2012, arXiv:1111.1797,
    algorithm 1.
    """
    ones = counts * means
    return 1.0 + ones, 1.0 + counts - ones


def lai_robbins_rate(means: Array) -> float:
    """The lower bound on the regret per ln t in the long run, for any method that is consistent on
    all problems with rewards 0 or 1.

    Σ_a Δ(a) / KL(μ(a), μ*)   over the actions below the best, Δ(a) = μ* - μ(a)

    Args:
        means: [A]. μ(a), the probability of a 1, in (0, 1).

    Returns:
        Reward units per unit of ln t.

    Source: Lai & Robbins 1985, doi:10.1016/0196-8858(85)90002-8, theorem 2.
    """
    best = means.max()
    worse = means[means < best]
    divergence = worse * np.log(worse / best) + (1 - worse) * np.log((1 - worse) / (1 - best))
    return float(((best - worse) / divergence).sum())


def softmax(preferences: Array) -> Array:
    """π(a) = exp H(a) / Σ_b exp H(b): [..., A] → [..., A].

    Source: Sutton & Barto 2018, eq. 2.11.
    """
    odds = np.exp(preferences - preferences.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def preference_gradient(
    preferences: Array,
    action: NDArray[np.int64] | int,
    reward: Array | float,
    baseline: Array | float,
) -> Array:
    """One sample of the gradient of the expected reward with respect to the preferences.

    (R - b) ∂ ln π(a) / ∂ H(·) = (R - b) (1[· = a] - π(·))

    Any baseline that does not depend on the action leaves its mean as it is, which is
    ∂ Σ_a π(a) q*(a) / ∂ H(·) = π(·) (q*(·) - Σ_a π(a) q*(a)).

    Args:
        preferences: [..., A]. H(a), without a unit.
        action: [...] int. The action taken, drawn from π = softmax(H).
        reward: [...]. R, in reward units.
        baseline: [...] or a number. b, in reward units.

    Returns:
        [..., A], in reward units.

    Source: Sutton & Barto 2018, eq. 2.12 and the box on page 38.
    """
    taken = np.arange(preferences.shape[-1]) == np.asarray(action)[..., None]
    return np.asarray(np.subtract(reward, baseline))[..., None] * (taken - softmax(preferences))
