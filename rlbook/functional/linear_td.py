"""Linear TD learning, v(s) = w·x(s): its updates, their expectations and their fixed points.

ρ is the importance ratio π(a|s) / b(a|s) of the action that b took; 1 on-policy. x' is 0 where the
episode terminated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def td_error(weights: Array, x: Array, reward: float, next_x: Array, gamma: float) -> float:
    """δ = r + γ w·x' - w·x.

    Args:
        weights: w, [d], in reward units.
        x: x(s), [d].
        reward: r, in reward units.
        next_x: x(s'), [d].
        gamma: γ, discount per environment step, in [0, 1].

    Returns:
        In reward units.

    Source: Sutton & Barto 2018, eq. 11.3.
    """
    return reward + gamma * float(weights @ next_x) - float(weights @ x)


def semi_gradient_update(
    weights: Array,
    x: Array,
    reward: float,
    next_x: Array,
    *,
    gamma: float,
    alpha: float,
    ratio: float = 1.0,
) -> Array:
    """w ← w + α ρ δ x. Off-policy it may diverge.

    Args:
        weights, x, reward, next_x, gamma: as in `td_error`.
        alpha: α, step size, > 0.
        ratio: ρ, at least 0.

    Returns:
        w, [d].

    Source: Sutton & Barto 2018, eq. 11.2.
    """
    return weights + alpha * ratio * td_error(weights, x, reward, next_x, gamma) * x


def tdc_update(
    weights: Array,
    helper: Array,
    x: Array,
    reward: float,
    next_x: Array,
    *,
    gamma: float,
    alpha: float,
    beta: float,
    ratio: float = 1.0,
) -> tuple[Array, Array]:
    """TD with gradient correction (TDC): a stochastic gradient of the projected Bellman error.

    w ← w + α ρ (δ x - γ x' (x·h)),   h ← h + β ρ (δ - h·x) x

    h is a second learner, of the TD error: x·h estimates it from the features of s.

    Args:
        weights, x, reward, next_x, gamma: as in `td_error`.
        helper: h, [d], in reward units.
        alpha, beta: step sizes of w and of h, > 0.
        ratio: ρ, at least 0.

    Returns:
        w and h, [d] each.

    Source: Sutton et al. 2009, doi:10.1145/1553374.1553501; Sutton & Barto 2018, section 11.7.
    """
    error, estimate = td_error(weights, x, reward, next_x, gamma), float(helper @ x)
    step = error * x - gamma * estimate * next_x
    return weights + alpha * ratio * step, helper + beta * ratio * (error - estimate) * x


def gtd2_update(
    weights: Array,
    helper: Array,
    x: Array,
    reward: float,
    next_x: Array,
    *,
    gamma: float,
    alpha: float,
    beta: float,
    ratio: float = 1.0,
) -> tuple[Array, Array]:
    """GTD2: a stochastic gradient of the same error, without a TD step.

    w ← w + α ρ (x - γ x') (x·h),   h ← h + β ρ (δ - h·x) x

    Arguments and result as for `tdc_update`.

    Source: Sutton et al. 2009, doi:10.1145/1553374.1553501; Sutton & Barto 2018, section 11.7.
    """
    error, estimate = td_error(weights, x, reward, next_x, gamma), float(helper @ x)
    step = estimate * (x - gamma * next_x)
    return weights + alpha * ratio * step, helper + beta * ratio * (error - estimate) * x


class TDSystem(NamedTuple):
    """Expected updates in matrix form: E[ρ δ x] = b - A w, and C = E[x xᵀ]."""

    a: Array  # [d, d]
    b: Array  # [d], in reward units
    c: Array  # [d, d]


def td_system(x: Array, visits: Array, chain: Array, rewards: Array, gamma: float) -> TDSystem:
    """A = Xᵀ D (I - γ P) X,   b = Xᵀ D r,   C = Xᵀ D X

    Args:
        x: X, [S, d], a row of features for each state.
        visits: the diagonal of D, [S]: how often each state is learned from.
        chain: P, [S, S], of the policy whose values are learned, without what ends the episode.
        rewards: r, [S], expected under that policy, in reward units.
        gamma: γ, discount per environment step, in [0, 1].

    Source: Sutton & Barto 2018, eq. 9.11 and section 11.4.
    """
    weighted = x.T * visits
    return TDSystem(weighted @ (x - gamma * chain @ x), weighted @ rewards, weighted @ x)


def least_squares_solution(a: Array, b: Array) -> Array:
    """Solves A w = b by least squares; if several w solve it equally well, the one of smallest
    norm.

    Of sums over steps, A = Σ x (x - γ x')ᵀ and b = Σ r x, this is LSTD; of `td_system`, TD's fixed
    point.

    Args:
        a: A, [d, d].
        b: [d].

    Returns:
        [d].

    Source: Bradtke & Barto 1996, doi:10.1007/BF00114723; Sutton & Barto 2018, eq. 9.12 and 9.20.
    """
    return np.linalg.lstsq(a, b, rcond=None)[0].astype(np.float64)


def mean_tdc_update(
    system: TDSystem, weights: Array, helper: Array, *, alpha: float, beta: float
) -> tuple[Array, Array]:
    """The expected update of `tdc_update`.

    w ← w + α (b - A w - (C - Aᵀ) h),   h ← h + β (b - A w - C h),   C - Aᵀ = γ E[ρ x' xᵀ]

    Source: Sutton & Barto 2018, section 11.7, the derivation of TDC.
    """
    a, b, c = system
    error = b - a @ weights
    return weights + alpha * (error - (c - a.T) @ helper), helper + beta * (error - c @ helper)


def value_error(weights: Array, x: Array, values: Array, visits: Array) -> float:
    """VE = Σ_s μ(s) (v_π(s) - w·x(s))², in reward units squared.

    Args:
        weights: w, [d].
        x: X, [S, d].
        values: v_π, [S], in reward units.
        visits: μ, [S].

    Source: Sutton & Barto 2018, eq. 9.1.
    """
    return float(visits @ (values - x @ weights) ** 2)


def projected_bellman_error(weights: Array, system: TDSystem) -> float:
    """PBE = (b - A w)ᵀ C⁻¹ (b - A w), in reward units squared; 0 at TD's fixed point.

    Where C is singular, its pseudoinverse takes the inverse's place.

    Source: Sutton & Barto 2018, eq. 11.26.
    """
    error = system.b - system.a @ weights
    return float(error @ np.linalg.pinv(system.c, hermitian=True) @ error)
