"""Maximum-entropy reinforcement learning: every nat of a policy's entropy counts as α reward units.

The optimal policy is then not greedy but soft, π(a|s) ∝ exp(Q(s, a) / α), and a state's value is
the expected Q plus α times the entropy.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from rlbook.functional._shapes import check_same_shape


def soft_value(q: Tensor, log_prob: Tensor, alpha: float | Tensor) -> Tensor:
    """A single-sample, unbiased estimate of the soft value V(s), from one action drawn from the
    policy.

    V(s) = Q(s, a) - α log π(a|s),   a ~ π(·|s)

    SAC's critics have γ V(s') in their target, and its policy maximises V(s).

    Args:
        q: [B]. Q(s, a), in reward units.
        log_prob: [B]. log π(a|s), in nats.
        alpha: α, the temperature, in reward units per nat.

    Returns:
        [B], in reward units, with the gradient of both.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eq. 3.
    """
    check_same_shape(q=q, log_prob=log_prob)
    return q - alpha * log_prob


def expected_soft_value(q: Tensor, log_probs: Tensor, alpha: float | Tensor) -> Tensor:
    """The exact expectation of `soft_value` over discrete actions, so that none needs to be
    sampled.

    V(s) = Σ_a π(a|s) ( Q(s, a) - α log π(a|s) )

    It is highest, with the value α log Σ_a exp(Q(s, a) / α), where π(a|s) ∝ exp(Q(s, a) / α).

    Args:
        q: [B, A]. Q(s, ·), in reward units.
        log_probs: [B, A]. log π(·|s), in nats; an action of probability 0 adds 0.
        alpha: α, the temperature, in reward units per nat.

    Returns:
        [B], in reward units, with the gradient of both.

    Source: Christodoulou 2019, arXiv:1910.07207, eq. 10.
    """
    check_same_shape(q=q, log_probs=log_probs)
    finite = log_probs.masked_fill(log_probs == -math.inf, 0.0)
    return (log_probs.exp() * (q - alpha * finite)).sum(-1)


def temperature_loss(log_alpha: Tensor, entropy: Tensor, target_entropy: float | Tensor) -> Tensor:
    """Loss of the temperature α: raises α if the policy's entropy is below its target, lowers it if
    above.

    L = log α · mean( H - H̄ )

    Args:
        log_alpha: a scalar, the logarithm of α in reward units per nat; carries gradient.
        entropy: [B]. H(π(·|s)) or its estimate -log π(a|s), in nats; its gradient is not used.
        target_entropy: H̄, in nats; where it differs from state to state, its mean.

    Returns:
        A scalar, minimised; its gradient in log α is mean(H) - H̄.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eq. 18, with log α in place of α, as in the
    authors' code: the same sign, and steps of one size however small α is.
    """
    return log_alpha * (entropy.detach().mean() - target_entropy)


def log_slope_of_tanh(u: Tensor) -> Tensor:
    """The log-derivative of tanh at u, log(1 - tanh² u), used in the change of variables.

    log(1 - tanh² u) = 2 (log 2 - u - softplus(-2u))

    The right-hand side is precise where tanh u rounds to ±1 and the left-hand side to log 0.

    Args:
        u: any shape.

    Returns:
        Same shape, in nats, at most 0.

    Source: 1 - tanh² u = 4 / (e^u + e^-u)²; Haarnoja et al. 2018, arXiv:1812.05905, appendix C,
    eq. 26 has the left-hand side.
    """
    return 2.0 * (math.log(2.0) - u - F.softplus(-2.0 * u))
