"""Estimators of KL(π ‖ π_ref) from single samples a ~ π, and entropies.

With x = log π(a) - log π_ref(a):   k1 = x,   k2 = ½ x²,   k3 = exp(-x) - 1 + x.

As *values*, k1 and k3 are unbiased, and k3 varies far less while π is near π_ref. As *losses* they
behave otherwise: the gradient of k1 has mean zero whatever π_ref is, the gradient of k2 is that of
the KL, and the gradient of k3 is that of KL(π_ref ‖ π). "k1+" and "k3+" have the value of k1 and k3
and the gradient of k2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rlbook.functional._shapes import check_same_shape, zero_outside_mask

Estimator = Callable[..., Tensor]


def k1(log_prob: Tensor, reference_log_prob: Tensor, mask: Tensor | None = None) -> Tensor:
    """k1 = log π - log π_ref: unbiased; may be negative.

    Args:
        log_prob: any shape. log π(a|s) in nats of actions drawn from π.
        reference_log_prob: same shape. log π_ref(a|s).
        mask: same shape, bool. None means all.

    Returns:
        Same shape, in nats; 0 outside the mask.

    Source: Schulman 2020, "Approximating KL Divergence", the estimator k1.
    """
    check_same_shape(log_prob=log_prob, reference_log_prob=reference_log_prob, mask=mask)
    return zero_outside_mask(log_prob - reference_log_prob, mask)


def k2(log_prob: Tensor, reference_log_prob: Tensor, mask: Tensor | None = None) -> Tensor:
    """k2 = ½ (log π - log π_ref)²: biased, never negative; its gradient is unbiased.

    Shapes as in `k1`.

    Source: Schulman 2020, "Approximating KL Divergence", the estimator k2.
    """
    return 0.5 * k1(log_prob, reference_log_prob, mask).square()


def k3(log_prob: Tensor, reference_log_prob: Tensor, mask: Tensor | None = None) -> Tensor:
    """k3 = exp(-x) - 1 + x with x = log π - log π_ref: unbiased, never negative, of low variance.

    Shapes as in `k1`. expm1 is accurate near x = 0, where exp(-x) - 1 loses its digits. The result
    is not clamped, so that a token which π_ref finds e^80 times likelier can be seen in the log.

    Source: Schulman 2020, "Approximating KL Divergence", the estimator k3; Shao et al. 2024
    (GRPO), arXiv:2402.03300, eq. 4.
    """
    x = k1(log_prob, reference_log_prob, mask)
    return torch.expm1(-x) + x


def k1_plus(log_prob: Tensor, reference_log_prob: Tensor, mask: Tensor | None = None) -> Tensor:
    """The value of k1 with the gradient of k2. Shapes as in `k1`.

    Source: Tang and Munos 2025, arXiv:2506.09477 (why k2's gradient); the straight-through form
    is verl's `k1+`.
    """
    value, gradient = (k(log_prob, reference_log_prob, mask) for k in (k1, k2))
    return _straight_through(value, gradient)


def k3_plus(log_prob: Tensor, reference_log_prob: Tensor, mask: Tensor | None = None) -> Tensor:
    """The value of k3 with the gradient of k2. Shapes as in `k1`.

    Source: as `k1_plus`; verl's `k3+`.
    """
    value, gradient = (k(log_prob, reference_log_prob, mask) for k in (k3, k2))
    return _straight_through(value, gradient)


ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3, "k1+": k1_plus, "k3+": k3_plus}
"""Name → estimator, as hyper-parameters spell them."""


CLAMPED_LOG_RATIO = 20.0
"""The largest |x| inside k3 where estimates are clamped; verl's number."""


def find_estimator(name: str, clamp: float | None = None) -> Estimator:
    """An estimator by its name, with each estimate inside ± `clamp`, in nats.

    k3 grows with e^-x: one token that π_ref finds e^12 times likelier than π outweighs ten thousand
    others. A clamped estimate is biased, and has no gradient beyond the clamp; the gradient of k1+
    and k3+ is k2's all the same. None clamps nothing.

    Source: verl 0.9.1, `kl_penalty_forward`, whose low_var_kl has log-ratios inside ±20 and
    estimates inside ±10, and whose other estimators have no clamp; OpenRLHF clamps all of them to
    ±10. TRL has no clamp.
    """
    if clamp is None:
        return ESTIMATORS[name]
    plain, low, high = ESTIMATORS[name.removesuffix("+")], -clamp, clamp

    def estimate(
        log_prob: Tensor, reference_log_prob: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        x = k1(log_prob, reference_log_prob, mask)
        if name.startswith("k3"):
            x = x.clamp(-CLAMPED_LOG_RATIO, CLAMPED_LOG_RATIO)
        value = plain(x, torch.zeros_like(x)).clamp(low, high)
        if not name.endswith("+"):
            return value
        return _straight_through(value, k2(log_prob, reference_log_prob, mask))

    return estimate


def check_estimator(name: str, where: str) -> None:
    """Rejects k1 as a loss term (`where` = "loss"), because the expectation of its gradient is
    zero.

    Raises:
        ValueError: in one sentence.

    Source: Tang and Munos 2025, arXiv:2506.09477: E[∇ log π(a)] = ∇ Σ_a π(a) = 0.
    """
    if where == "loss" and name == "k1":
        allowed = ", ".join(repr(other) for other in ESTIMATORS if other != "k1")
        raise ValueError(
            f"kl_estimator must be one of {allowed} where kl_in is 'loss', got 'k1': its "
            "gradient has mean zero, so the penalty would have no effect"
        )


def adapted_kl_coef(
    kl_coef: float, kl: float, *, target: float, share: float, low: float, high: float
) -> float:
    """Adapts the coefficient of a KL penalty: increases it if the KL is above its target, decreases
    it if below.

    β ← clip( β (1 + clip(KL / target - 1, -0.2, 0.2) n / horizon), low, high )

    Without bounds a policy that cannot reach the target drives β to 0 or to infinity.

    Args:
        kl_coef: β, in reward units per nat.
        kl: the KL that was measured, in nats.
        target: what it should be, in nats, > 0.
        share: n / horizon, how many samples were measured out of how many that a change takes.
        low, high: the bounds of β.

    Source: Ziegler et al. 2019, arXiv:1909.08593, section 2.2, whose K_β is the share; verl's
    `AdaptiveKLController`. The bounds are ours.
    """
    error = min(max(kl / target - 1.0, -0.2), 0.2)
    return min(max(kl_coef * (1.0 + error * share), low), high)


def banded_kl_coef(
    kl_coef: float, kl: float, *, band: tuple[float, float], factor: float, low: float, high: float
) -> float:
    """Adapts the coefficient of a KL penalty: increases it if the KL is above a band, decreases it
    if below.

    β ← clip( β f, low, high ) above the band,  clip( β / f, low, high ) below it,  β inside

    Without bounds β grows by f each time for as long as the KL stays above, whatever β has reached:
    after n times by f^n.

    Args:
        kl_coef: β, in reward units per nat.
        kl: the KL that was measured, in nats.
        band: from where to where it is left alone, in nats.
        factor: f, > 1.
        low, high: the bounds of β.

    Source: the rule of PPO's adaptive penalty, Schulman et al. 2017, arXiv:1707.06347, section 4,
    with f = 2 and a band of d_targ / 1.5 to 1.5 d_targ there. The bounds are ours.
    """
    if kl > band[1]:
        kl_coef = kl_coef * factor
    elif kl < band[0]:
        kl_coef = kl_coef / factor
    return min(max(kl_coef, low), high)


def temperature_of_kl(kl: float, *, band: tuple[float, float], range: tuple[float, float]) -> float:
    """Maps a KL to a temperature τ: the first value of `range` at or below the band's lower end,
    the second at or above its upper end, and log-linear interpolation in between.

    τ = τ_0 (τ_1 / τ_0)^u,   u = clip( log(KL / low) / log(high / low), 0, 1 )

    Args:
        kl: the KL that was measured, in nats, ≥ 0.
        band: low and high, in nats, 0 < low < high.
        range: τ_0 and τ_1, > 0.

    Source: ours; recipes that let a temperature follow the KL state no formula.
    """
    if kl <= band[0]:
        return range[0]
    used = min(math.log(kl / band[0]) / math.log(band[1] / band[0]), 1.0)
    return range[0] * (range[1] / range[0]) ** used


def _straight_through(value: Tensor, gradient: Tensor) -> Tensor:
    """The value of the first argument with the gradient of the second."""
    return value.detach() + (gradient - gradient.detach())


def categorical_entropy(log_prob: Tensor) -> Tensor:
    """H = -Σ_a π(a) log π(a).

    It is finite, and so is its gradient, where forbidden actions have a probability of 0.

    Args:
        log_prob: [..., A]. log π(·|s), in nats; -inf adds 0.

    Returns:
        [...], in nats, in [0, log A].

    Source: Shannon 1948, section 6; as a bonus, Mnih et al. 2016 (A3C), arXiv:1602.01783,
    section 4; of the allowed actions, Huang and Ontañón 2022, arXiv:2006.14171, section 3.
    """
    finite = log_prob.clamp(min=torch.finfo(log_prob.dtype).min)
    return -(log_prob.exp() * finite).sum(-1)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """H = Σ_i ( ½ log(2πe) + log σ_i ): the entropy of a diagonal Gaussian.

    Args:
        log_std: [..., A]. log σ of each action component.

    Returns:
        [...], in nats (a differential entropy: it depends on the actions' unit and may be
        negative).

    Source: Shannon 1948, section 20.
    """
    return (log_std + 0.5 * math.log(2.0 * math.pi * math.e)).sum(-1)
