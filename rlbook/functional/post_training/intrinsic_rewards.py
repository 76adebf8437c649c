"""Intrinsic rewards, computed from the policy itself: its confidence, and the probability that it
gives to a reference answer."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlbook.functional._shapes import check_same_shape, zero_outside_mask


def self_certainty(log_probs: Tensor) -> Tensor:
    """A policy's confidence, measured as its divergence from uniform: KL(U ‖ π), where U is
    uniform.

    KL(U ‖ π) = -log A - mean_a log π(a|s)

    It grows with every action that π rules out. Intuitor leaves out the constant -log A.

    Args:
        log_probs: [..., A]. log π(·|s), in nats, all finite.

    Returns:
        [...], in nats, at least 0.

    Source: Zhao et al. 2025 (Intuitor), arXiv:2505.19590, eq. 2; Kang et al. 2025,
    arXiv:2502.18581.
    """
    return -math.log(log_probs.shape[-1]) - log_probs.mean(-1)


def mean_over_steps(value: Tensor, mask: Tensor) -> Tensor:
    """The mean over each episode's unmasked steps.

    Args:
        value: [B, T].
        mask: [B, T], bool.

    Returns:
        [B]; 0 for an episode without such a step.

    Source: the definition of a mean.
    """
    check_same_shape(value=value, mask=mask)
    return zero_outside_mask(value, mask).sum(-1) / mask.sum(-1).clamp(min=1)


def mean_probability(log_prob: Tensor, mask: Tensor) -> Tensor:
    """RLPR's reward for an answer: the mean probability of its tokens.

    The n-th root of their product, exp(mean log π), is 0 as soon as one token is; the mean only
    loses that token's share.

    Args:
        log_prob: [B, T]. log π(a|s), in nats.
        mask: [B, T], bool; True marks the tokens of the answer.

    Returns:
        [B], in [0, 1]; 0 where there is no such token.

    Source: Yu et al. 2025 (RLPR), arXiv:2506.18254, eq. 3.
    """
    return mean_over_steps(zero_outside_mask(log_prob, mask).exp(), mask)


def debias(score: Tensor, baseline: Tensor) -> Tensor:
    """The increase of the answer's probability due to the reasoning: clip(r - r', 0, 1).

    Args:
        score: r [B], the answer's probability after the reasoning.
        baseline: r' [B], the same without any.

    Returns:
        [B], in [0, 1].

    Source: Yu et al. 2025 (RLPR), arXiv:2506.18254, eq. 4, whose notation clip(0, 1, x) names the
    bounds first.
    """
    check_same_shape(score=score, baseline=baseline)
    return torch.clamp(score - baseline, 0.0, 1.0)
