"""Losses on episodes in order of preference. All are minimised.

Two teach a reward model, from the scores that it gives. The others teach a policy, from pairs,
and depend on it only through

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


def bradley_terry_loss(
    better: Tensor, worse: Tensor, *, margin: float = 0.0, average: Average = per_token
) -> Tensor:
    """How surprising the preferences are if p(w ≻ l) = σ(r_w - r_l).

    It is log 2 where all scores are equal.

    L = -mean( log σ(r_w - r_l - m) )

    Args:
        better, worse: [B]. r, the scores of the preferred and the other episode of each pair;
            carry gradient.
        margin: m, in the scores' units; by how much the better one should win before the loss
            falls below log 2.
        average: how the pairs become one number; see functional/averages.py.

    Returns:
        A scalar, in nats.

    Source: Bradley & Terry 1952, "Rank analysis of incomplete block designs"; Christiano et al.
        2017, arXiv:1706.03741, eq. 1. The margin: Touvron et al. 2023, arXiv:2307.09288, eq. 2.
    """
    same_shape(better=better, worse=worse)
    if better.dim() != 1:
        raise ValueError(f"better must have shape [B], got {list(better.shape)}")
    return averaged(-F.logsigmoid(better - worse - margin), None, average)


def plackett_luce_loss(score: Tensor, mask: Tensor, *, average: Average = per_token) -> Tensor:
    """How surprising an order of preference is if each place is drawn from those not yet placed,
    with the softmax of their scores.

    L = -mean_b( Σ_i log( exp r_i / Σ_{j ≥ i} exp r_j ) )

    Two episodes make it `bradley_terry_loss` without a margin; equal scores of G episodes make it
    log G!.

    Args:
        score: [B, G]. r, the scores of each group's episodes, the best first; carries gradient.
        mask: [B, G], bool; false behind the end of a smaller group.
        average: how the losses [B] of the groups become one number; see
            functional/averages.py.

    Returns:
        A scalar, in nats.

    Source: Plackett 1975, "The analysis of permutations"; as a loss: Xia et al. 2008, "Listwise
        approach to learning to rank", section 4.
    """
    same_shape(score=score, mask=mask)
    if score.dim() != 2:
        raise ValueError(f"score must have shape [B, G], got {list(score.shape)}")
    score, size = where_masked(score, mask), score.shape[1]
    square = torch.ones(size, size, dtype=torch.bool, device=score.device)
    itself = square.triu() & square.tril()
    left = square.triu() & (mask[:, None, :] | itself)                       # [B, G, G]
    total = score[:, None, :].masked_fill(~left, -torch.inf).logsumexp(-1)   # [B, G]
    return averaged(where_masked(total - score, mask).sum(-1), None, average)


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
