"""Policy losses, which make good actions more likely. All are minimised."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.functional._shapes import check_same_shape, zero_outside_mask
from rlbook.functional.averages import Average, per_token, weighted_sum

MAX_LOG_RATIO = 20.0
"""The largest log ρ; exp(20) = 4.9e8.

An overflow of ρ to inf would turn the gradient of even a clipped element into NaN.
"""


def clipped_surrogate_loss(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
    mask: Tensor | None = None,
    average: Average = per_token,
) -> Tensor:
    """PPO's clipped policy loss; lower is better.

    L = -mean( min(ρ A, clip(ρ, 1-ε, 1+ε) A) ),   ρ = exp(log_prob - old_log_prob)

    Args:
        log_prob: [B] or [B, T]. log π(a|s) under the current weights, in nats; carries gradient.
        old_log_prob: same shape. log π(a|s) under the weights that acted, in nats.
        advantage: same shape, in reward units or normalised.
        clip: ε, a dimensionless bound on ρ - 1.
        clip_high: ε for the upper side alone (DAPO's clip-higher). None means `clip`.
        dual_clip: c ≥ 1; where A < 0, the element's loss is at most -c A. None means no bound.
        mask: same shape, bool; True marks the elements that count. None means all.
        average: how the elements become one number; see functional/averages.py.

    Returns:
        A scalar; zero if nothing is unmasked.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7. clip_high: Yu et al. 2025,
    arXiv:2503.14476, eq. 10. dual_clip: Ye et al. 2020, arXiv:1912.09729, eq. 5. The mask is
    ours, and so is the bound on log ρ (`MAX_LOG_RATIO`, as in verl).
    """
    check_same_shape(log_prob=log_prob, old_log_prob=old_log_prob, advantage=advantage, mask=mask)
    advantage = zero_outside_mask(advantage, mask)
    ratio = _ratio(log_prob, old_log_prob, mask)
    clipped = ratio.clamp(1.0 - clip, 1.0 + (clip if clip_high is None else clip_high))
    gain = torch.minimum(ratio * advantage, clipped * advantage)
    if dual_clip is not None:
        gain = torch.where(advantage < 0, torch.maximum(gain, dual_clip * advantage), gain)
    return -weighted_sum(gain, mask, average)


def clip_fraction(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor | None,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    mask: Tensor | None = None,
    average: Average = per_token,
) -> Tensor:
    """The fraction of elements at which the clip is active and the gradient is therefore zero.

    mean( [clip(ρ, 1-ε, 1+ε) A < ρ A] ):  ρ > 1+ε where A > 0, and ρ < 1-ε where A < 0

    A ratio that has left [1-ε, 1+ε] on the other side is not held: the loss brings it back. A
    diagnostic in [0, 1], without gradient.

    Args:
        log_prob, old_log_prob: [B] or [B, T], in nats.
        advantage: same shape, in any unit. None: the clip bounds a weight (`clipped_weight_loss`),
            on both sides and whatever the advantage.
        clip, clip_high, mask, average: as in `clipped_surrogate_loss`.

    Source: Huang et al. 2022, "The 37 Implementation Details of PPO", detail 12, where any ratio
    outside the interval counts; by the sign of the advantage as in TRL and in verl's `pg_clipfrac`.
    """
    check_same_shape(log_prob=log_prob, old_log_prob=old_log_prob, advantage=advantage, mask=mask)
    ratio = _ratio(log_prob.detach(), old_log_prob, mask)
    low = ratio < 1.0 - clip
    high = ratio > 1.0 + (clip if clip_high is None else clip_high)
    if advantage is not None:
        low, high = low & (advantage < 0), high & (advantage > 0)
    return weighted_sum((low | high).to(log_prob.dtype), mask, average)


def _ratio(log_prob: Tensor, old_log_prob: Tensor, mask: Tensor | None) -> Tensor:
    """The importance ratio ρ, and 1 outside the mask.

    Masked before the exponential: after it, a NaN in the padding would reach the gradient.
    """
    return zero_outside_mask(log_prob - old_log_prob, mask).clamp(max=MAX_LOG_RATIO).exp()


def episode_log_ratio(
    log_prob: Tensor, old_log_prob: Tensor, mask: Tensor, *, mean: bool = True
) -> Tensor:
    """The log importance ratio of the whole episode, repeated at each of its steps.

    log ρ = mean over its steps of log π(a|s) - log π_old(a|s);  or, without `mean`, their sum

    In `clipped_surrogate_loss`, against an `old_log_prob` of 0, it clips whole episodes (GSPO). Its
    gradient reaches all steps of the episode alike. verl instead gives each step the same value
    with the step's own gradient; where the steps of an episode weigh alike, which they do in all of
    `functional/averages.py`, the two losses have the same value and the same gradient.

    Args:
        log_prob, old_log_prob: [B, T], in nats.
        mask: [B, T], bool; True marks the steps that count.
        mean: the geometric mean of the steps' ratios, or their product, which is the ratio of the
            episodes' probabilities.

    Returns:
        [B, T], in nats; equal within a row. 0 for a row without a step that counts.

    Source: Zheng et al. 2025 (GSPO), arXiv:2507.18071, eq. 7; the sum: TRL's RLOO.
    """
    check_same_shape(log_prob=log_prob, old_log_prob=old_log_prob, mask=mask)
    total = zero_outside_mask(log_prob - old_log_prob, mask).sum(-1, keepdim=True)
    length = mask.sum(-1, keepdim=True).clamp(min=1) if mean else 1
    return (total / length).expand(log_prob.shape)


def clipped_weight_loss(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    *,
    clip: float = 1.0,
    clip_high: float | None = None,
    mask: Tensor | None = None,
    average: Average = per_token,
) -> Tensor:
    """CISPO: the policy gradient with a clipped importance weight; lower is better.

    L = -mean( sg[clip(ρ, 1-ε, 1+ε_high)] A log π(a|s) ),   ρ = exp(log_prob - old_log_prob)

    sg stops the gradient. The clip bounds how much an element weighs, and never switches its
    gradient off, as `clipped_surrogate_loss` does. A `clip` of 1 sets no lower bound.

    Args:
        log_prob, old_log_prob, advantage: as in `clipped_surrogate_loss`.
        clip: ε of the lower side, and of the upper one where `clip_high` is None.
        clip_high: ε of the upper side: the cap is 1 + ε, as in verl. TRL's `epsilon_high` is
            here the cap itself: its recommended 5 is a `clip_high` of 4.
        mask, average: as in `clipped_surrogate_loss`.

    Returns:
        A scalar; zero if nothing is unmasked.

    Source: MiniMax 2025 (CISPO), arXiv:2506.13585, eq. 4 and 5.
    """
    check_same_shape(log_prob=log_prob, old_log_prob=old_log_prob, advantage=advantage, mask=mask)
    ratio = _ratio(log_prob.detach(), old_log_prob, mask)
    weight = ratio.clamp(1.0 - clip, 1.0 + (clip if clip_high is None else clip_high))
    gain = weight * zero_outside_mask(advantage, mask) * zero_outside_mask(log_prob, mask)
    return -weighted_sum(gain, mask, average)


@torch.no_grad()
def truncated_importance_weight(
    log_prob: Tensor,
    behaviour_log_prob: Tensor,
    mask: Tensor,
    *,
    cap: float = 2.0,
    episode: bool = False,
) -> Tensor:
    """Truncated importance weights, for elements sampled by another program such as an inference
    engine.

    w = min(π_old(a|s) / μ(a|s), C)

    π_old is the policy that learns, before its update, as the learner computes it; μ is the same
    policy as the sampler computed it. The truncation bounds the variance, for a bias.

    Args:
        log_prob: [B, T]. log π_old(a|s), in nats.
        behaviour_log_prob: [B, T]. log μ(a|s), in nats; NaN, where nobody knows it, counts as
            equal to `log_prob`.
        mask: [B, T], bool; True marks the elements that count.
        cap: C, the largest weight, above 0.
        episode: the product over the steps of an episode, at each of them, in place of each
            step's own.

    Returns:
        [B, T], without gradient; 1 outside the mask.

    Source: Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL
    Training"; truncation: Ionides 2008. verl's `rollout_is`, with its cap of 2; TRL's
    `token_truncate` and `sequence_truncate`.
    """
    check_same_shape(log_prob=log_prob, behaviour_log_prob=behaviour_log_prob, mask=mask)
    known = mask & ~behaviour_log_prob.isnan()
    difference = zero_outside_mask(log_prob - behaviour_log_prob, known)
    if episode:
        difference = difference.sum(-1, keepdim=True).expand(mask.shape)
    return difference.clamp(max=MAX_LOG_RATIO).exp().clamp(max=cap).masked_fill(~mask, 1.0)


def regularised_loss(
    loss: Tensor,
    entropy: Tensor | None,
    kl: Tensor | None,
    *,
    entropy_coef: float = 0.0,
    kl_coef: float = 0.0,
) -> Tensor:
    """Adds an entropy bonus and a penalty for the divergence from the reference policy to a policy
    loss.

    L' = L - c_e H(π) + β KL(π ‖ π_ref)

    Args:
        loss: L, a scalar to be minimised.
        entropy: H, a scalar: the mean entropy in nats; None for no bonus.
        kl: a scalar: the mean of a KL estimator in nats; None for no penalty.
        entropy_coef: c_e, in units of the loss per nat, at least 0.
        kl_coef: β, in units of the loss per nat, at least 0.

    Returns:
        A scalar. [B] or [B, T] is averaged before; see functional/averages.py.

    Source: Mnih et al. 2016 (A3C), arXiv:1602.01783, section 4, for the bonus; Shao et al. 2024
    (GRPO), arXiv:2402.03300, eq. 3, for the penalty.
    """
    check_same_shape(loss=loss, entropy=entropy, kl=kl)
    if entropy is not None and entropy_coef:
        loss = loss - entropy_coef * entropy
    if kl is not None and kl_coef:
        loss = loss + kl_coef * kl
    return loss


def policy_gradient_loss(
    log_prob: Tensor, advantage: Tensor, *, mask: Tensor | None = None, average: Average = per_token
) -> Tensor:
    """The policy-gradient theorem as a loss: its gradient is minus that of the expected return.

    L = -mean( A log π(a|s) )

    Args:
        log_prob: [B] or [B, T]. log π(a|s), in nats; carries gradient.
        advantage: same shape, in reward units or normalised; the return itself makes this
            REINFORCE.
        mask, average: as in `clipped_surrogate_loss`, of which this is the gradient at ρ = 1.

    Returns:
        A scalar; zero if nothing is unmasked.

    Source: Williams 1992, section 4; Sutton and Barto 2018, eq. 13.8 (without its γ^t).
    """
    check_same_shape(log_prob=log_prob, advantage=advantage, mask=mask)
    return -weighted_sum(
        zero_outside_mask(log_prob, mask) * zero_outside_mask(advantage, mask), mask, average
    )


def negative_log_likelihood_loss(
    log_prob: Tensor, *, mask: Tensor | None = None, average: Average = per_token
) -> Tensor:
    """Negative log-likelihood of the actions taken, for behaviour cloning. In nats per element.

    L = -mean( log π(a|s) )

    Args:
        log_prob: [B] or [B, T]. log π(a|s) of the action to imitate, in nats; carries gradient.
        mask, average: as in `clipped_surrogate_loss`.

    Returns:
        A scalar; zero if nothing is unmasked.

    Source: Pomerleau 1991 (behaviour cloning); as DPO's anchor, Pang et al. 2024,
    arXiv:2404.19733, eq. 1.
    """
    check_same_shape(log_prob=log_prob, mask=mask)
    return -weighted_sum(zero_outside_mask(log_prob, mask), mask, average)


def deterministic_policy_loss(q: Tensor) -> Tensor:
    """The deterministic policy gradient as a loss: minus the critic's value of the policy's action.

    L = -mean Q(s, μ(s)),   ∇L = -mean ∇_a Q(s, a) ∇ μ(s)   at a = μ(s)

    Args:
        q: [B]. Q(s, μ(s)), in reward units; carries the gradient of μ through the action.

    Returns:
        A scalar, in reward units.

    Source: Lillicrap et al. 2016 (DDPG), arXiv:1509.02971, eq. 6; Silver et al. 2014, eq. 9.
    """
    return -q.mean()


def cross_entropy_loss(log_prob: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy with a target distribution over actions, for imitation. In nats.

    L = -mean Σ_a π(a|s) log p(a|s)        the mean is over [B]

    Args:
        log_prob: [B, A]. log p(·|s), in nats; carries gradient.
        target: [B, A]. π(·|s): probabilities.

    Returns:
        A scalar.

    Source: Silver et al. 2017, doi:10.1038/nature24270, eq. 1, its second term.
    """
    check_same_shape(log_prob=log_prob, target=target)
    return -(target * log_prob).sum(-1).mean()
