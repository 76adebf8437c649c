"""Kahneman-Tversky optimisation (KTO): losses on episodes that are individually labelled good or
bad; minimised."""

from __future__ import annotations

from torch import Tensor

from rlbook.functional._shapes import check_same_shape
from rlbook.functional.averages import Average, per_token, weighted_sum
from rlbook.functional.post_training.preference_losses import log_ratios


def kto_loss(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    kl: Tensor,
    *,
    beta: float = 0.1,
    good_weight: float = 1.0,
    average: Average = per_token,
) -> Tensor:
    """The KTO loss: gains and losses relative to a reference point z.

    L = ½ mean( w (1 - σ(β (x_w - z))) + 1 - σ(β (z - x_l)) )

    Each episode counts for itself; nobody need have compared the two. Its gradient vanishes for
    what is far from z on either side, and so for labels that are plainly wrong.

    Args:
        chosen, rejected, reference_chosen, reference_rejected, beta, average: as in `dpo_loss`.
        kl: z, a scalar without gradient, at least 0: an estimate of KL(π ‖ π_ref) over episodes, in
            nats; see `mismatched_kl`.
        good_weight: w, dimensionless, > 0.

    Returns:
        A scalar in [0, (1 + w) / 2]; a quarter of 1 + w where policy and reference agree.

    Source: Ethayarajh et al. 2024, arXiv:2402.01306, eq. 7 and 8; w is λ_D / λ_U.
    """
    better, worse = log_ratios(chosen, rejected, reference_chosen, reference_rejected)
    loss = good_weight * _regret(better, kl, 1.0, beta) + _regret(worse, kl, -1.0, beta)
    return weighted_sum(0.5 * loss, None, average)


def labelled_kto_loss(
    log_prob: Tensor,
    reference_log_prob: Tensor,
    good: Tensor,
    kl: Tensor,
    *,
    beta: float = 0.1,
    good_weight: float = 1.0,
    average: Average = per_token,
) -> Tensor:
    """KTO with unpaired data: each episode has its own label, good or bad.

    L = mean( w (1 - σ(β (x - z))) where it is good, 1 - σ(β (z - x)) where it is bad ),
    x = log π - log π_ref

    As many good episodes as bad ones, in pairs, make it `kto_loss`.

    Args:
        log_prob: [B]. log π of the episodes, summed, in nats; carries gradient.
        reference_log_prob: [B]. The same under the reference policy.
        good: [B], bool.
        kl: z, as in `kto_loss`.
        beta: β, as in `kto_loss`.
        good_weight: w, dimensionless, > 0; where good episodes are rare, the authors want w times
            their number between 1 and 4/3 of the number of bad ones.
        average: how the episodes become one number.

    Returns:
        A scalar, in [0, max(1, w)]; ½ where policy and reference agree and w is 1.

    Source: Ethayarajh et al. 2024, arXiv:2402.01306, eq. 7 and 8; w is λ_D / λ_U.
    """
    check_same_shape(log_prob=log_prob, reference_log_prob=reference_log_prob, good=good)
    side = 2 * good.to(log_prob.dtype) - 1
    regret = _regret(log_prob - reference_log_prob, kl, side, beta)
    return weighted_sum(regret.where(~good, good_weight * regret), None, average)


def _regret(ratio: Tensor, kl: Tensor, side: Tensor | float, beta: float) -> Tensor:
    """1 - σ(β s (x - z)): [B], with s = 1 for good and -1 for bad episodes."""
    return (-beta * side * (ratio - kl)).sigmoid()


def mismatched_kl(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
    """KTO's reference point z, estimated from mismatched pairs of prompt and answer.

    z = max(0, mean( log π - log π_ref ))

    Args:
        log_prob, reference_log_prob: [B], summed over the episode, in nats.

    Returns:
        A scalar, in nats, without gradient.

    Source: Ethayarajh et al. 2024, arXiv:2402.01306, section 4.1.
    """
    check_same_shape(log_prob=log_prob, reference_log_prob=reference_log_prob)
    return (log_prob - reference_log_prob).mean().clamp(min=0.0).detach()
