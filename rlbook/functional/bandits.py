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
