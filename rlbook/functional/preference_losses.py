"""Losses on pairs of episodes of which one is preferred. All are minimised.

All depend on the policy only through

    Δ = (log π(chosen) - log π_ref(chosen)) - (log π(rejected) - log π_ref(rejected)),   in nats

where log π of an episode is the sum over its actions (`sequence_log_prob`).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from rlbook.functional._shapes import same_shape, where_masked
from rlbook.functional.averages import Average, averaged, per_token


def sequence_log_prob(log_prob: Tensor, mask: Tensor) -> Tensor:
    """log π of a whole episode: [B, T] → [B], in nats, summed over the unmasked actions."""
    same_shape(log_prob=log_prob, mask=mask)
    return where_masked(log_prob, mask).sum(-1)


def dpo_loss(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, *,
    beta: float = 0.1, label_smoothing: float = 0.0, average: Average = per_token,
) -> Tensor:
    """Direct preference optimisation; log 2 where policy and reference agree.

    L = -mean( (1-ε) log σ(β Δ) + ε log σ(-β Δ) )

    Args:
        chosen, rejected: [B]. log π of the preferred and the other episode, summed, in nats;
            carry gradient.
        reference_chosen, reference_rejected: [B]. The same under the reference policy.
        beta: β, dimensionless, > 0; the larger, the closer the policy stays to the reference.
        label_smoothing: ε in [0, 0.5), the share of labels believed to be wrong; above 0 this
            is conservative DPO (cDPO).
        average: how the pairs become one number; see functional/averages.py.

    Returns:
        A scalar, in nats.

    Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 7. cDPO: Mitchell 2023, "A note on DPO
    with noisy preferences".
    """
    margin = beta * _delta(chosen, rejected, reference_chosen, reference_rejected)
    loss = -(1.0 - label_smoothing) * F.logsigmoid(margin) - label_smoothing * F.logsigmoid(-margin)
    return averaged(loss, None, average)


def ipo_loss(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, *,
    beta: float = 0.1, average: Average = per_token,
) -> Tensor:
    """Identity preference optimisation: pulls Δ to 1 / (2β), where DPO would increase it for ever.

    L = mean( (Δ - 1 / (2β))² )

    Args:
        chosen, rejected, reference_chosen, reference_rejected, average: as in `dpo_loss`. The
            paper sums log-probabilities over the episode; its authors' code divides each by its
            length, which the caller may do.
        beta: β (the paper's τ), in 1/nats, > 0.

    Returns:
        A scalar, in nats squared.

    Source: Azar et al. 2023, arXiv:2310.12036, eq. 17.
    """
    delta = _delta(chosen, rejected, reference_chosen, reference_rejected)
    return averaged((delta - 0.5 / beta).square(), None, average)


def hinge_preference_loss(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, *,
    beta: float = 0.1, average: Average = per_token,
) -> Tensor:
    """The hinge loss: zero for a pair whose margin β Δ is at least 1.

    L = mean( max(0, 1 - β Δ) )

    Args:
        chosen, rejected, reference_chosen, reference_rejected, beta, average: as in `dpo_loss`.

    Returns:
        A scalar, dimensionless.

    Source: Zhao et al. 2023 (SLiC-HF), arXiv:2305.10425, eq. 1, with DPO's Δ in place of the
    plain log-probabilities.
    """
    margin = beta * _delta(chosen, rejected, reference_chosen, reference_rejected)
    return averaged((1.0 - margin).relu(), None, average)


def implicit_reward(log_prob: Tensor, reference_log_prob: Tensor, beta: float = 0.1) -> Tensor:
    """The reward under which the policy would be optimal, up to a constant of the prompt.

    r = β (log π - log π_ref)

    Args:
        log_prob, reference_log_prob: [B], summed over the episode, in nats.
        beta: β, as in `dpo_loss`.

    Returns:
        [B], without gradient.

    Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 5.
    """
    same_shape(log_prob=log_prob, reference_log_prob=reference_log_prob)
    return beta * (log_prob - reference_log_prob).detach()


def preference_accuracy(reward_chosen: Tensor, reward_rejected: Tensor) -> Tensor:
    """The share of pairs, in [0, 1], whose chosen episode has the higher reward ([B] each).

    A tie counts as wrong.
    """
    same_shape(reward_chosen=reward_chosen, reward_rejected=reward_rejected)
    return (reward_chosen > reward_rejected).to(torch.get_default_dtype()).mean()


def _delta(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor
) -> Tensor:
    same_shape(
        chosen=chosen, rejected=rejected, reference_chosen=reference_chosen,
        reference_rejected=reference_rejected,
    )  # fmt: skip
    if chosen.dim() != 1:
        shape = list(chosen.shape)
        raise ValueError(f"chosen must have shape [B], one sum an episode, got {shape}")
    return (chosen - reference_chosen) - (rejected - reference_rejected)
