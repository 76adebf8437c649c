"""Losses for critics, and targets for deep Q-learning. All losses are minimised.

The squared losses carry the factor ½, as the Huber loss does: switching between them, or clipping,
does not change the scale.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from rlbook.functional._shapes import check_same_shape, zero_outside_mask
from rlbook.functional.action_masks import masked_logits, masked_max
from rlbook.functional.averages import Average, per_token, weighted_sum
from rlbook.functional.returns import td_target


def squared_value_loss(
    value: Tensor, target: Tensor, *, mask: Tensor | None = None, average: Average = per_token
) -> Tensor:
    """Half the mean squared error; lower is better.

    L = ½ mean( (V - y)² )

    Args:
        value: [B] or [B, T]. V(s) or Q(s, a), in reward units; carries gradient.
        target: same shape, in reward units.
        mask: same shape, bool; True marks the elements that count. None means all.
        average: how the elements become one number; see functional/averages.py.

    Returns:
        A scalar, in reward units squared; zero if nothing is unmasked.

    Source: Sutton and Barto 2018, eq. 9.1.
    """
    check_same_shape(value=value, target=target, mask=mask)
    square = (zero_outside_mask(value, mask) - zero_outside_mask(target, mask)).square()
    return 0.5 * weighted_sum(square, mask, average)


def clipped_value_loss(
    value: Tensor,
    old_value: Tensor,
    target: Tensor,
    *,
    clip: float = 0.2,
    mask: Tensor | None = None,
    average: Average = per_token,
) -> Tensor:
    """Half the mean squared error, with V's change from its old value clipped to ε (PPO's value
    clipping).

    L = ½ mean( max( (V - y)², (V_old + clip(V - V_old, -ε, ε) - y)² ) )

    Args:
        value: [B] or [B, T]. V(s), in reward units; carries gradient.
        old_value: same shape. V(s) under the weights that acted.
        target: same shape, in reward units.
        clip: ε, in reward units (so it depends on their scale).
        mask, average: as in `squared_value_loss`.

    Returns:
        A scalar, in reward units squared; zero if nothing is unmasked.

    Source: Huang et al. 2022, "The 37 Implementation Details of PPO", detail 9, as in CleanRL
    and verl. Stable-Baselines3 leaves out the max.
    """
    check_same_shape(value=value, old_value=old_value, target=target, mask=mask)
    near = old_value + (value - old_value).clamp(-clip, clip)
    square = zero_outside_mask(value - target, mask).square()
    clipped = zero_outside_mask(near - target, mask).square()
    return 0.5 * weighted_sum(torch.maximum(square, clipped), mask, average)


def huber_loss(
    value: Tensor,
    target: Tensor,
    *,
    delta: float = 1.0,
    mask: Tensor | None = None,
    average: Average = per_token,
) -> Tensor:
    """Squared for small errors and linear for large ones, so that the gradient of an outlier is
    bounded.

    L = mean( ½ e² if |e| ≤ δ else δ (|e| - ½ δ) ),   e = V - y

    Args:
        value: [B] or [B, T]. Q(s, a) or V(s), in reward units; carries gradient.
        target: same shape, in reward units.
        delta: δ, where the square becomes a line, in reward units.
        mask, average: as in `squared_value_loss`; `given(weights)` makes it prioritised
            replay's weighted loss.

    Returns:
        A scalar; zero if nothing is unmasked.

    Source: Huber 1964; with δ = 1 the error clipping of Mnih et al. 2015 (DQN),
    doi:10.1038/nature14236, Methods.
    """
    check_same_shape(value=value, target=target, mask=mask)
    error = zero_outside_mask(value - target, mask)
    loss = F.huber_loss(error, torch.zeros_like(error), reduction="none", delta=delta)
    return weighted_sum(loss, mask, average)


def expectile_loss(
    value: Tensor,
    target: Tensor,
    expectile: float,
    *,
    mask: Tensor | None = None,
    average: Average = per_token,
) -> Tensor:
    """Half the squared error, weighted differently above and below; V becomes the τ-expectile of
    the targets.

    L = ½ mean( |τ - 1[u < 0]| u² ),   u = y - V

    With τ = ½ it is half of `squared_value_loss`, whose minimum is the mean. A target above V
    counts τ / (1 - τ) times as much as one below, so that V rises with τ towards the largest
    target.

    Args:
        value: [B] or [B, T]. V(s), in reward units; carries gradient.
        target: same shape. y, such as Q(s, a) of recorded actions, in reward units.
        expectile: τ, in (0, 1).
        mask, average: as in `squared_value_loss`.

    Returns:
        A scalar, in reward units squared; zero if nothing is unmasked.

    Source: Newey and Powell 1987, doi:10.2307/1911031; Kostrikov et al. 2021 (IQL),
    arXiv:2110.06169, eq. 5. The factor ½ is ours.
    """
    check_same_shape(value=value, target=target, mask=mask)
    error = zero_outside_mask(target, mask) - zero_outside_mask(value, mask)
    weight = torch.where(error < 0, 1.0 - expectile, expectile)
    return 0.5 * weighted_sum(weight * error.square(), mask, average)


def q_target(
    reward: Tensor,
    terminated: Tensor,
    next_q: Tensor,
    gamma: float | Tensor,
    next_action_mask: Tensor | None = None,
) -> Tensor:
    """Q-learning's target with a target network.

    y = r + γ max_a' Q⁻(s', a'),   a' among the allowed actions

    Args:
        reward: [B] or [B, T], in reward units.
        terminated: same shape, bool; alone stops bootstrapping.
        next_q: [..., A]. Q⁻(s', ·) of the target network, in reward units.
        gamma: γ, discount per environment step, in [0, 1]; of n-step targets γᵐ, one each.
        next_action_mask: [..., A], bool; True marks the actions allowed in s'. None means all.

    Returns:
        Same shape as reward, in reward units, without gradient.

    Source: Mnih et al. 2015 (DQN), doi:10.1038/nature14236, algorithm 1. The mask is ours.
    """
    return td_target(reward, terminated, masked_max(next_q, next_action_mask), gamma)


def double_q_target(
    reward: Tensor,
    terminated: Tensor,
    next_q: Tensor,
    next_q_online: Tensor,
    gamma: float | Tensor,
    next_action_mask: Tensor | None = None,
) -> Tensor:
    """Double DQN's target: the online network selects the action, the target network evaluates it.

    The error that makes an action look best to one is then not also in the value of the other.

    y = r + γ Q⁻(s', argmax_a' Q(s', a')),   a' among the allowed actions

    Args:
        reward: [B] or [B, T], in reward units.
        terminated: same shape, bool; alone stops bootstrapping.
        next_q: [..., A]. Q⁻(s', ·) of the target network, in reward units.
        next_q_online: [..., A]. Q(s', ·) of the network being trained.
        gamma: γ, discount per environment step, in [0, 1]; of n-step targets γᵐ, one each.
        next_action_mask: as in `q_target`.

    Returns:
        Same shape as reward, in reward units, without gradient.

    Source: van Hasselt et al. 2016, arXiv:1509.06461, eq. 4, with the target network as the
    one that evaluates.
    """
    check_same_shape(next_q=next_q, next_q_online=next_q_online)
    chosen = masked_logits(next_q_online, next_action_mask).argmax(-1, keepdim=True)
    return td_target(reward, terminated, next_q.gather(-1, chosen).squeeze(-1), gamma)


def smoothed_action(action: Tensor, noise: Tensor, limit: float) -> Tensor:
    """The target policy's action plus clipped noise, which smooths the critic over similar actions.

    a' = clip( μ⁻(s') + clip(ε, -c, c), -1, 1 )

    Args:
        action: [B, A]. μ⁻(s') of the target policy, in [-1, 1].
        noise: same shape. ε, in the same unit.
        limit: c, how far the noise may reach.

    Returns:
        [B, A], in [-1, 1].

    Source: Fujimoto et al. 2018 (TD3), arXiv:1802.09477, eq. 14, and its algorithm 1 for the
    clipping to the box.
    """
    check_same_shape(action=action, noise=noise)
    return (action + noise.clamp(-limit, limit)).clamp(-1.0, 1.0)


def conservative_gap(q: Tensor, action: Tensor, action_mask: Tensor | None = None) -> Tensor:
    """The conservative penalty of CQL: how far the soft maximum over actions exceeds the recorded
    action's value.

    L = mean( log Σ_b exp Q(s, b) - Q(s, a) ),   ∂L/∂Q(s, b) = ( softmax Q(s, ·)_b - 1[b = a] ) / B

    with b among the allowed actions.

    Args:
        q: [B, A]. Q(s, ·), in reward units; carries gradient.
        action: [B], int64. The recorded actions, which are allowed.
        action_mask: [B, A], bool; True marks the allowed actions. None means all.

    Returns:
        A scalar, at least 0, in reward units.

    Source: Kumar et al. 2020, arXiv:2006.04779, eq. 4, CQL(H), without its weight α. The mask is
    ours.
    """
    check_same_shape(q=q[:, 0], action=action)
    soft_maximum = masked_logits(q, action_mask).logsumexp(-1)  # [B]
    return (soft_maximum - q.gather(-1, action[:, None]).squeeze(-1)).mean()
