"""Adversarial imitation: a discriminator separates the expert's steps from the policy's, and its
output is the policy's reward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from rlbook.functional._shapes import check_same_shape


def discriminator_loss(expert_logit: Tensor, policy_logit: Tensor) -> Tensor:
    """Logistic loss of a discriminator between the expert's steps and the policy's; lower is
    better.

    L = -mean log D(s_E, a_E) - mean log(1 - D(s_π, a_π)),   D = σ(f)

    With as many steps of either its minimum is at f = log( ρ_E(s, a) / ρ_π(s, a) ), the log ratio
    of how often the two take that step.

    Args:
        expert_logit: [B]. f of the expert's steps, in nats; carries gradient.
        policy_logit: [C]. f of the policy's steps, in nats; carries gradient.

    Returns:
        A scalar in nats; 2 ln 2 where nothing can be told apart.

    Source: Ho & Ermon 2016, arXiv:1606.03476, eq. 15, with D for the expert (theirs is for the
    policy); the minimum: Goodfellow et al. 2014, arXiv:1406.2661, proposition 1.
    """
    return F.softplus(-expert_logit).mean() + F.softplus(policy_logit).mean()


def gradient_penalty(
    logit: Callable[[Tensor], Tensor], expert: Tensor, policy: Tensor, share: Tensor
) -> Tensor:
    """Penalises a discriminator whose gradient norm differs from 1 at points between the expert's
    steps and the policy's.

    P = mean( (‖∇_x f(x)‖₂ - 1)² ),   x = u x_E + (1 - u) x_π

    The gradient is taken by the input and its norm for each sample; it stays in the graph, so that
    the penalty can be differentiated by the weights.

    Args:
        logit: f: [B, X] → [B].
        expert: [B, X]. Steps of the expert, as the discriminator sees them.
        policy: [B, X]. Steps of the policy.
        share: u, [B], in [0, 1]; drawn uniformly.

    Returns:
        A scalar, at least 0.

    Source: Gulrajani et al. 2017, arXiv:1704.00028, eq. 3; for imitation: Kostrikov et al. 2019,
    arXiv:1809.02925, section 4.2.
    """
    check_same_shape(expert=expert, policy=policy)
    check_same_shape(share=share, rows=expert[:, 0])
    u = share[:, None]
    between = (u * expert + (1.0 - u) * policy).detach().requires_grad_()  # [B, X]
    (slope,) = torch.autograd.grad(logit(between).sum(), between, create_graph=True)
    return (slope.norm(dim=-1) - 1.0).square().mean()


def log_ratio_reward(logit: Tensor) -> Tensor:
    """r = log D - log(1 - D) = f: takes either sign, so it favours neither long nor short episodes.

    Args:
        logit: f, [...], in nats.

    Returns:
        [...], in nats.

    Source: Fu, Luo & Levine 2018 (AIRL), arXiv:1710.11248, section 4.
    """
    return logit


def survival_reward(logit: Tensor) -> Tensor:
    """r = -log(1 - D) ≥ 0: rewards every step, so it favours long episodes.

    Args:
        logit: f, [...], in nats.

    Returns:
        [...], in nats, at least 0.

    Source: Ho & Ermon 2016, arXiv:1606.03476, algorithm 1, as its authors' code has it; the bias:
    Kostrikov et al. 2019, arXiv:1809.02925, section 4.1.
    """
    return F.softplus(logit)


def hurry_reward(logit: Tensor) -> Tensor:
    """r = log D ≤ 0: penalises every step, so it favours short episodes.

    Args:
        logit: f, [...], in nats.

    Returns:
        [...], in nats, at most 0.

    Source: Ho & Ermon 2016, arXiv:1606.03476, algorithm 1, eq. 18, with D for the expert; the
    bias: Kostrikov et al. 2019, arXiv:1809.02925, section 4.1.
    """
    return -F.softplus(-logit)
