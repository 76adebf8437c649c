"""Losses on episodes ranked by preference. All are minimised.

Three teach a reward model, from the scores that it gives. The others teach a policy, from pairs:
with the log-ratios of the chosen and the rejected episode,

    x_w = log π(chosen) - log π_ref(chosen),   x_l = log π(rejected) - log π_ref(rejected)

in nats, most of them depend on the policy only through Δ = x_w - x_l. log π of an episode is the
sum over its actions (`sequence_log_prob`), or their mean (`mean_log_prob`). SimPO and ORPO know no
reference.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from rlbook.functional._shapes import check_same_shape, zero_outside_mask
from rlbook.functional.averages import Average, per_token, weighted_sum


def sequence_log_prob(log_prob: Tensor, mask: Tensor) -> Tensor:
    """log π of a whole episode: [B, T] → [B], in nats, summed over the unmasked actions."""
    check_same_shape(log_prob=log_prob, mask=mask)
    return zero_outside_mask(log_prob, mask).sum(-1)


def mean_log_prob(log_prob: Tensor, mask: Tensor) -> Tensor:
    """The mean of log π over an episode's unmasked actions: [B, T] → [B], in nats; 0 for an episode
    without any."""
    check_same_shape(log_prob=log_prob, mask=mask)
    return zero_outside_mask(log_prob, mask).sum(-1) / mask.sum(-1).clamp(min=1)


def dpo_loss(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    average: Average = per_token,
) -> Tensor:
    """Direct preference optimisation; log 2 if the policy equals the reference.

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
    return weighted_sum(loss, None, average)


def ipo_loss(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    *,
    beta: float = 0.1,
    average: Average = per_token,
) -> Tensor:
    """Identity preference optimisation: regresses Δ to 1 / (2β), where DPO would increase it
    without bound.

    L = mean( (Δ - 1 / (2β))² )

    Args:
        chosen, rejected, reference_chosen, reference_rejected, average: as in `dpo_loss`. The
            paper writes sums over the episode; its authors' results, and TRL, are with means
            (`mean_log_prob`).
        beta: β (the paper's τ), in 1/nats, > 0.

    Returns:
        A scalar, in nats squared.

    Source: Azar et al. 2023, arXiv:2310.12036, eq. 17.
    """
    delta = _delta(chosen, rejected, reference_chosen, reference_rejected)
    return weighted_sum((delta - 0.5 / beta).square(), None, average)


def hinge_preference_loss(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    *,
    beta: float = 0.1,
    average: Average = per_token,
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
    return weighted_sum((1.0 - margin).relu(), None, average)


def robust_dpo_loss(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.1,
    average: Average = per_token,
) -> Tensor:
    """DPO corrected for label noise: its expectation over the noise is DPO's loss on the true
    labels.

    L = -mean( (1-ε) log σ(β Δ) - ε log σ(-β Δ) ) / (1 - 2ε)

    cDPO adds the second term, so it stops at a finite Δ; this subtracts it.

    Args:
        chosen, rejected, reference_chosen, reference_rejected, beta, average: as in `dpo_loss`.
        label_smoothing: ε in [0, 0.5), the share of labels believed to be wrong.

    Returns:
        A scalar, in nats, of either sign.

    Source: Chowdhury et al. 2024, arXiv:2403.00409, eq. 12.
    """
    margin = beta * _delta(chosen, rejected, reference_chosen, reference_rejected)
    right, wrong = F.logsigmoid(margin), F.logsigmoid(-margin)
    loss = -(1.0 - label_smoothing) * right + label_smoothing * wrong
    return weighted_sum(loss / (1.0 - 2.0 * label_smoothing), None, average)


def exo_loss(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 1e-3,
    average: Average = per_token,
) -> Tensor:
    """Efficient exact optimisation: the reverse KL between the policy's pairwise preference and the
    labels'.

    L = mean( p log(p / (1-ε)) + (1-p) log((1-p) / ε) ),   p = σ(β Δ)

    DPO is the forward KL, which covers modes; this seeks one.

    Args:
        chosen, rejected, reference_chosen, reference_rejected, beta, average: as in `dpo_loss`.
        label_smoothing: ε in (0, 0.5), the share of labels believed to be wrong.

    Returns:
        A scalar, in nats, at least 0.

    Source: Ji et al. 2024, arXiv:2402.00856, eq. 16.
    """
    margin = beta * _delta(chosen, rejected, reference_chosen, reference_rejected)
    log_p, log_q = F.logsigmoid(margin), F.logsigmoid(-margin)
    right, wrong = math.log1p(-label_smoothing), math.log(label_smoothing)
    loss = log_p.exp() * (log_p - right) + log_q.exp() * (log_q - wrong)
    return weighted_sum(loss, None, average)


def apo_zero_loss(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    *,
    beta: float = 0.1,
    average: Average = per_token,
) -> Tensor:
    """Anchored preference optimisation (APO-zero), for chosen episodes that are better than the
    policy's own.

    L = mean( 1 - σ(β x_w) + σ(β x_l) )

    The better episode becomes likelier and the worse one less likely, each for itself; DPO may
    lower both.

    Args:
        chosen, rejected, reference_chosen, reference_rejected, beta, average: as in `dpo_loss`.

    Returns:
        A scalar in [0, 2]; 1 where policy and reference agree.

    Source: D'Oosterlinck et al. 2024, arXiv:2408.06266, eq. 7.
    """
    better, worse = log_ratios(chosen, rejected, reference_chosen, reference_rejected)
    loss = (-beta * better).sigmoid() + (beta * worse).sigmoid()
    return weighted_sum(loss, None, average)


def apo_down_loss(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    *,
    beta: float = 0.1,
    average: Average = per_token,
) -> Tensor:
    """Anchored preference optimisation (APO-down), for chosen episodes that are worse than the
    policy's own.

    L = mean( σ(β x_w) + 1 - σ(β Δ) )

    Both episodes become less likely, the rejected one by more.

    Args:
        chosen, rejected, reference_chosen, reference_rejected, beta, average: as in `dpo_loss`.

    Returns:
        A scalar in [0, 2]; 1 where policy and reference agree.

    Source: D'Oosterlinck et al. 2024, arXiv:2408.06266, eq. 8.
    """
    better, worse = log_ratios(chosen, rejected, reference_chosen, reference_rejected)
    loss = (beta * better).sigmoid() + (-beta * (better - worse)).sigmoid()
    return weighted_sum(loss, None, average)


def simpo_loss(
    chosen: Tensor,
    rejected: Tensor,
    *,
    beta: float = 2.0,
    margin: float = 0.5,
    average: Average = per_token,
) -> Tensor:
    """Simple preference optimisation: DPO without a reference policy, on length-normalised
    log-probabilities.

    L = -mean( log σ(β (log π(chosen) - log π(rejected)) - γ) )

    Args:
        chosen, rejected: [B]. log π of the episodes, divided by their lengths, in nats; carry
            gradient.
        beta: β, dimensionless, > 0.
        margin: γ, dimensionless; by how much the better episode should win.
        average: how the pairs become one number.

    Returns:
        A scalar, in nats.

    Source: Meng et al. 2024, arXiv:2405.14734, eq. 6.
    """
    check_same_shape(chosen=chosen, rejected=rejected)
    return weighted_sum(-F.logsigmoid(beta * (chosen - rejected) - margin), None, average)


def orpo_loss(
    chosen: Tensor, rejected: Tensor, *, beta: float = 0.1, average: Average = per_token
) -> Tensor:
    """The odds-ratio term of ORPO, which is added to the likelihood of the chosen episode.

    L = -β mean( log σ( log odds(chosen) - log odds(rejected) ) ),   odds = π / (1 - π)

    Args:
        chosen, rejected: [B]. log π of the episodes, divided by their lengths, in nats, < 0; carry
            gradient.
        beta: β (the paper's λ), > 0.
        average: how the pairs become one number.

    Returns:
        A scalar, in nats.

    Source: Hong et al. 2024, arXiv:2403.07691, eq. 7.
    """
    check_same_shape(chosen=chosen, rejected=rejected)
    odds = chosen - rejected - (_log1mexp(chosen) - _log1mexp(rejected))
    return weighted_sum(-beta * F.logsigmoid(odds), None, average)


def _log1mexp(x: Tensor) -> Tensor:
    """log(1 - eˣ) for x < 0, accurate at both ends; x is clamped below 0, where the result would be
    infinite."""
    x = x.clamp(max=-1e-6)
    near = x > -math.log(2.0)  # each branch only sees what it is accurate for
    small, large = x.masked_fill(~near, -0.1), x.masked_fill(near, -1.0)
    return torch.where(near, torch.log(-torch.expm1(small)), torch.log1p(-torch.exp(large)))


def bradley_terry_loss(
    better: Tensor, worse: Tensor, *, margin: float | Tensor = 0.0, average: Average = per_token
) -> Tensor:
    """Negative log-likelihood of the preferences under the Bradley-Terry model, p(w ≻ l) = σ(r_w -
    r_l).

    It is log 2 where all scores are equal.

    L = -mean( log σ(r_w - r_l - m) )

    Args:
        better, worse: [B]. r, the scores of the preferred and the other episode of each pair;
            carry gradient.
        margin: m, in the scores' units; by how much the better one should win before the loss
            falls below log 2. One for all pairs, or [B].
        average: how the pairs become one number; see functional/averages.py.

    Returns:
        A scalar, in nats.

    Source: Bradley & Terry 1952, "Rank analysis of incomplete block designs"; Christiano et al.
        2017, arXiv:1706.03741, eq. 1. The margin: Touvron et al. 2023, arXiv:2307.09288, eq. 2.
    """
    check_same_shape(
        better=better, worse=worse, margin=margin if isinstance(margin, Tensor) else None
    )
    if better.dim() != 1:
        raise ValueError(f"better must have shape [B], got {list(better.shape)}")
    return weighted_sum(-F.logsigmoid(better - worse - margin), None, average)


def centring_loss(better: Tensor, worse: Tensor, *, average: Average = per_token) -> Tensor:
    """Fixes the zero of the scores, which preferences leave undetermined: the two scores of a pair
    should sum to 0.

    L = mean( (r_w + r_l)² )

    Args:
        better, worse, average: as in `bradley_terry_loss`, beside which it stands with a weight.

    Returns:
        A scalar, in the scores' units squared.

    Source: Eisenstein et al. 2023, arXiv:2312.09244, section 2.
    """
    check_same_shape(better=better, worse=worse)
    return weighted_sum((better + worse).square(), None, average)


def plackett_luce_loss(
    score: Tensor, mask: Tensor, *, level: Tensor | None = None, average: Average = per_token
) -> Tensor:
    """Negative log-likelihood of a ranking under the Plackett-Luce model: each place is drawn from
    the remaining episodes with the softmax of their scores.

    L = -mean_b( Σ_i log( exp r_i / Σ_{j ≥ i} exp r_j ) )

    Two episodes make it `bradley_terry_loss` without a margin; equal scores of G episodes make it
    log G!. Of episodes that are tied each is drawn as if the others were not there, so that only
    those below it count: a tie is not a preference, and a group of ties costs 0.

    Args:
        score: [B, G]. r, the scores of each group's episodes, the best first; carries gradient.
        mask: [B, G], bool; false after the end of a smaller group.
        level: [B, G], in any unit. What the order was made of; equal ones are tied. None: no ties.
        average: how the losses [B] of the groups become one number; see
            functional/averages.py.

    Returns:
        A scalar, in nats.

    Source: Plackett 1975, "The analysis of permutations"; as a loss: Xia et al. 2008, "Listwise
        approach to learning to rank", section 4. The ties are ours.
    """
    check_same_shape(score=score, mask=mask, level=level)
    if score.dim() != 2:
        raise ValueError(f"score must have shape [B, G], got {list(score.shape)}")
    score, size = zero_outside_mask(score, mask), score.shape[1]
    square = torch.ones(size, size, dtype=torch.bool, device=score.device)
    itself = square.triu() & square.tril()
    left = square.triu() & mask[:, None, :]  # [B, G, G]
    if level is not None:
        left = left & (level[:, :, None] != level[:, None, :])
    left = left | itself
    total = score[:, None, :].masked_fill(~left, -torch.inf).logsumexp(-1)  # [B, G]
    return weighted_sum(zero_outside_mask(total - score, mask).sum(-1), None, average)


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
    check_same_shape(log_prob=log_prob, reference_log_prob=reference_log_prob)
    return beta * (log_prob - reference_log_prob).detach()


def preference_accuracy(reward_chosen: Tensor, reward_rejected: Tensor) -> Tensor:
    """The fraction of pairs, in [0, 1], whose chosen episode has the higher reward ([B] each).

    A tie counts as wrong.
    """
    check_same_shape(reward_chosen=reward_chosen, reward_rejected=reward_rejected)
    return (reward_chosen > reward_rejected).to(reward_chosen.dtype).mean()


def _delta(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor
) -> Tensor:
    better, worse = log_ratios(chosen, rejected, reference_chosen, reference_rejected)
    return better - worse


def log_ratios(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor
) -> tuple[Tensor, Tensor]:
    """The log-ratios x_w and x_l of pairs, [B] each, in nats."""
    check_same_shape(
        chosen=chosen,
        rejected=rejected,
        reference_chosen=reference_chosen,
        reference_rejected=reference_rejected,
    )
    if chosen.dim() != 1:
        shape = list(chosen.shape)
        raise ValueError(f"chosen must have shape [B], one sum an episode, got {shape}")
    return chosen - reference_chosen, rejected - reference_rejected
