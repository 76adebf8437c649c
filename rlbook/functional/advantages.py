"""Advantage estimates: how much better an action was than the policy's average."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from rlbook.functional._shapes import check_same_shape, zero_outside_mask
from rlbook.functional.returns import backward_sum, td_target

Scale = Literal["std", "batch", "none"]
Baseline = Literal["mean", "leave-one-out", "batch", "none"]


@torch.no_grad()
def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    valid: Tensor | None = None,
) -> Tensor:
    """Generalised advantage estimation.

    A_t = δ_t + γλ A_{t+1},   δ_t = r_t + γ V(s_{t+1}) - V(s_t)

    Either flag ends the recursion, but only termination stops bootstrapping. λ = 0 is the TD error,
    λ = 1 the discounted return minus V(s_t).

    Steps that are not valid are skipped as if they were absent: a tool's tokens between two of the
    model's, or an environment that waits for the others. The running advantage and the value to
    bootstrap from pass through such a gap unchanged and undiscounted, and the steps in it get 0. So
    the last valid step before a gap bootstraps from `value` at the first valid step after it; its
    own `next_value` belongs to a state within the gap. If the episode or the data end within the
    gap, the `next_value` of that row is used instead. Rewards in a gap are not counted.

    Args:
        reward: [T] or [T, N], in reward units.
        value: same shape. V(s_t), in reward units.
        next_value: same shape. V at the true successor, also where the episode was cut by a
            time limit.
        terminated, truncated: same shape, bool. Both at once count as terminated.
        gamma: γ, discount per environment step, in [0, 1].
        gae_lambda: λ, dimensionless, in [0, 1].
        valid: same shape, bool. None means all.

    Returns:
        Same shape, in reward units, without gradient. A + V is the λ-return, the critic's target.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16. Gaps: as verl's
    `compute_gae_advantage_return`.
    """
    check_same_shape(
        reward=reward,
        value=value,
        next_value=next_value,
        terminated=terminated,
        truncated=truncated,
        valid=valid,
    )
    ended = terminated | truncated
    if valid is not None and not valid.all():
        next_value = _value_after_gaps(value, next_value, terminated, ended, valid)
    delta = td_target(reward, terminated, next_value, gamma) - value
    return backward_sum(delta, ended, gamma * gae_lambda, valid)


def _value_after_gaps(
    value: Tensor, next_value: Tensor, terminated: Tensor, ended: Tensor, valid: Tensor
) -> Tensor:
    """`next_value`, except that at the last valid step before a gap it is the value of the step
    after the gap.
    """
    before_gap = torch.zeros_like(valid)
    before_gap[:-1] = valid[:-1] & ~valid[1:] & ~ended[:-1]
    if not before_gap.any():
        return next_value
    successor = next_value.masked_fill(terminated, 0.0)
    after = successor[-1]
    result = next_value.clone()
    for t in range(len(value) - 1, -1, -1):
        result[t] = torch.where(before_gap[t], after, next_value[t])
        after = torch.where(valid[t], value[t], torch.where(ended[t], successor[t], after))
    return result


@torch.no_grad()
def explained_variance(advantage: Tensor, target: Tensor, mask: Tensor) -> float:
    """The fraction of the targets' variance that a critic V explains.

    1 - Var(target - V) / Var(target):  1 is a perfect critic, 0 no better than a constant

    Args:
        advantage: any shape. target - V, in reward units.
        target: same shape. What V is trained towards, in reward units.
        mask: same shape, bool; True marks the elements that count.

    Returns:
        A number of at most 1, without unit; NaN for fewer than two elements, which do not vary.

    Source: the coefficient of determination, R².
    """
    if int(mask.sum()) < 2:
        return math.nan
    left, whole = advantage[mask].var(), target[mask].var()
    return 1.0 - float(left / whole.clamp(min=1e-12))


def group_advantage(
    reward: Tensor,
    group_size: int,
    *,
    scale: Scale = "std",
    baseline: Baseline = "mean",
    ddof: int = 1,
    eps: float = 1e-4,
) -> Tensor:
    """GRPO's advantage: an episode's return relative to the other episodes with the same start.

    A_i = (r_i - b_i) / (std(r) + ε)   within each group,   b_i = mean(r), or the mean of the others

    A group whose rewards are all equal gets exactly 0 with a baseline of its own; with another one
    it would be divided by ε. These two baselines differ by a factor only:

    r_i - mean of r_j over j ≠ i  =  G / (G - 1) · (r_i - mean(r))

    With the mean of the others the gradient is unbiased. With the mean of all, which includes r_i
    itself, the gradient is (G - 1) / G times that. The step is then smaller, and a penalty that is
    not scaled with it (GRPO's KL term in the loss) acts G / (G - 1) times as strongly as its
    coefficient says.
    Special cases: scale="none" is Dr. GRPO; eps=1e-6 is verl's; ddof=0 the paper's. REINFORCE++,
    whose mean and deviation are those of the batch too, judges steps: `reward_to_go_advantage`.

    Args:
        reward: [B], one an episode, in reward units; each group's G rows are neighbours.
        group_size: G, at least 2; divides B.
        scale: "std" divides by the group's standard deviation, "batch" by the whole batch's,
            "none" by nothing.
        baseline: "mean" of the whole group, "leave-one-out", the mean of the others, "batch", the
            mean of all B, or "none", 0.
        ddof: 1 divides the sum of squares by G - 1, 0 by G.
        eps: added to the standard deviation, in reward units.

    Returns:
        [B], without gradient.

    Source: Shao et al. 2024 (GRPO), arXiv:2402.03300, section 4.1.2. Liu et al. 2025 (Dr. GRPO),
    arXiv:2503.20783, section 3.2. ddof=1 and ε=1e-4 are TRL's.
    """
    if group_size < 2:
        raise ValueError(f"group_size must be an integer of at least 2, got {group_size!r}")
    if reward.dim() != 1 or len(reward) % group_size:
        raise ValueError(
            f"reward must have shape [B] with B a multiple of group_size {group_size}, "
            f"got {list(reward.shape)}"
        )
    group = reward.view(-1, group_size)
    # measured from the first of each, equal rewards are exactly 0, even where rounding moves means
    group = group - group[:, :1]
    if baseline in ("mean", "leave-one-out"):
        centred = group - group.mean(1, keepdim=True)
        if baseline == "leave-one-out":
            centred = group_size / (group_size - 1) * centred
    elif baseline == "batch":
        shifted = reward - reward[:1]
        centred = (shifted - shifted.mean()).view_as(group)
    elif baseline == "none":
        centred = reward.view_as(group)
    else:
        allowed = "'mean', 'leave-one-out', 'batch', 'none'"
        raise ValueError(f"baseline must be one of {allowed}, got {baseline!r}")
    if scale == "none":
        return centred.flatten()
    if scale == "std":
        spread = group.std(1, correction=ddof, keepdim=True)
    elif scale == "batch":
        spread = (reward - reward[:1]).std(correction=ddof)
    else:
        raise ValueError(f"scale must be one of 'std', 'batch', 'none', got {scale!r}")
    return (centred / (spread + eps)).flatten()


def leave_one_out_advantage(reward: Tensor, group_size: int) -> Tensor:
    """RLOO's advantage: the baseline of an episode is the mean return of the *other* episodes in
    its group.

    A_i = r_i - mean of r_j over j ≠ i

    An episode's own reward is not in its baseline, so the baseline leaves the gradient unbiased.

    Args:
        reward: [B], one an episode, in reward units; each group's G rows are neighbours.
        group_size: G, at least 2; divides B.

    Returns:
        [B], in reward units, without gradient.

    Source: Kool et al. 2019, "Buy 4 REINFORCE Samples, Get a Baseline for Free!"; for language
    models (RLOO), Ahmadian et al. 2024, arXiv:2402.14740.
    """
    return group_advantage(reward, group_size, scale="none", baseline="leave-one-out")


@torch.no_grad()
def whiten(
    x: Tensor, mask: Tensor | None = None, *, shift: bool = True, ddof: int = 1, eps: float = 1e-8
) -> Tensor:
    """Scales the unmasked elements to unit variance, and shifts them to zero mean.

    (x - mean) / √(var + ε)  [+ mean, without the shift]

    `normalize` differs in ε alone, which stands outside of its root.

    Args:
        x: any shape, such as advantages or rewards.
        mask: same shape, bool; mean and variance are those of the elements it marks. None: all.
        shift: false leaves the mean where it is, as for rewards: a constant taken off every step
            would change how long an episode should last.
        ddof: 1 divides the sum of squares by n - 1 (TRL, verl), 0 by n (OpenRLHF).
        eps: ε, in the unit of x squared.

    Returns:
        Same shape, without gradient; 0 outside the mask. Fewer than two elements stay as they are.

    Source: Ziegler et al. 2019, arXiv:1909.08593, in their code; TRL's and verl's `masked_whiten`.
    Outside the mask verl leaves what the formula gives there, which nothing may use.
    """
    check_same_shape(x=x, mask=mask)
    counted = x.flatten() if mask is None else x[mask]
    if len(counted) < 2:
        return zero_outside_mask(x, mask)
    variance, mean = torch.var_mean(counted, correction=ddof)
    scaled = (x - mean) * (variance + eps).rsqrt()
    return zero_outside_mask(scaled if shift else scaled + mean, mask)


def reward_to_go_advantage(reward: Tensor, mask: Tensor) -> Tensor:
    """REINFORCE++'s advantage: the reward-to-go of each step, standardised over the steps of all
    episodes.

    A_t = (G_t - mean G) / √(var G + 1e-8),   G_t = r_t + r_{t+1} + … to the end of the episode

    With a penalty -β KL_t in r_t, a step is charged for what comes after it and not for what was
    before. Long episodes count more in mean and variance, since they have more steps.

    Args:
        reward: [B, T], in reward units.
        mask: [B, T], bool; True marks the steps that count. G passes over the others.

    Returns:
        [B, T], without gradient; 0 outside the mask.

    Source: Hu 2025, arXiv:2501.03262, eq. 4 and 5; verl's
    `compute_reinforce_plus_plus_outcome_advantage` with γ = 1, where steps that do not count end
    the sum.
    """
    check_same_shape(reward=reward, mask=mask)
    never = torch.zeros_like(mask.T)
    return whiten(backward_sum(reward.T, never, 1.0, valid=mask.T).T, mask)


@torch.no_grad()
def normalize(
    advantage: Tensor, mask: Tensor | None = None, *, ddof: int = 1, eps: float = 1e-8
) -> Tensor:
    """Shifts and scales the unmasked elements to zero mean and unit variance.

    Fewer than two elements have no variance; they stay as they are.

    Args:
        advantage: any shape, in reward units.
        mask: same shape, bool; True marks the elements that count. None means all.
        ddof: 1 divides the sum of squares by n - 1, 0 by n.
        eps: added to the standard deviation, in reward units.

    Returns:
        Same shape, dimensionless, without gradient; 0 outside the mask.

    Source: Huang et al. 2022, "The 37 Implementation Details of PPO", detail 7.
    """
    check_same_shape(advantage=advantage, mask=mask)
    counted = advantage.flatten() if mask is None else advantage[mask]
    if len(counted) < 2:
        return zero_outside_mask(advantage, mask)
    # Measured from one of them, equal advantages give exactly 0, whatever their mean rounds to.
    origin = counted[0]
    std, mean = torch.std_mean(counted - origin, correction=ddof)
    return zero_outside_mask((advantage - origin - mean) / (std + eps), mask)
