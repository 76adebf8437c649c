"""The formulas of the components that Rainbow adds to a deep Q-network.

Overview: Hessel et al. 2018, arXiv:1710.02298; double Q-learning's target is in `value_losses`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.functional._shapes import check_same_shape
from rlbook.functional.action_masks import masked_argmax


def dueling_action_values(value: Tensor, advantage: Tensor) -> Tensor:
    """Combines the state value and the advantages of a dueling network into Q.

    Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a')

    The mean is taken off because a constant could else move between V and A unnoticed: so V(s)
    is the mean of Q(s, ·).

    Args:
        value: [..., 1, K]. K is 1, or the atoms of a distributional network.
        advantage: [..., A, K].

    Returns:
        [..., A, K]: in reward units, or logits of a distributional network.

    Source: Wang et al. 2016, arXiv:1511.06581, eq. 9.
    """
    check_same_shape(value=value[..., 0, :], advantage=advantage[..., 0, :])
    return value + advantage - advantage.mean(-2, keepdim=True)


@torch.no_grad()
def n_step_reward(reward: Tensor, counted: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """The discounted sum of the rewards before the state that an n-step target bootstraps from.

    R = r_0 + γ r_1 + … + γᵐ⁻¹ r_{m-1},   y = R + γᵐ max_a Q(s_m, a)

    Args:
        reward: [B, n], in reward units.
        counted: [B, n], bool; True for the first m ≥ 1 of each row.
        gamma: γ, discount per environment step, in [0, 1].

    Returns:
        R [B], in reward units, and γᵐ [B].

    Source: Sutton 1988, doi:10.1007/BF00115009; Sutton and Barto 2018, eq. 7.1.
    """
    check_same_shape(reward=reward, counted=counted)
    powers = reward.new_tensor([gamma**k for k in range(reward.shape[1])])
    total = (reward.masked_fill(~counted, 0.0) * powers).sum(1)
    return total, gamma * powers[counted.sum(1) - 1]


def importance_weights(probability: Tensor, size: int, beta: float) -> Tensor:
    """Importance weights that correct the gradient for non-uniform sampling.

    w = (N · P)^-β / max w

    Args:
        probability: [B]. P, the probability of each row that was drawn, > 0.
        size: N, rows in the buffer.
        beta: β, in [0, 1]; 1 makes up for the uneven drawing entirely, 0 not at all.

    Returns:
        [B], in (0, 1]; the largest of the minibatch is 1.

    Source: Schaul et al. 2016, arXiv:1511.05952, section 3.4.
    """
    weight = (size * probability) ** -beta
    return weight / weight.max()


def categorical_mean(log_prob: Tensor, support: Tensor) -> Tensor:
    """The mean of distributions over atoms: log-probabilities [..., K], atoms [K] → [...].

    Source: Bellemare et al. 2017, arXiv:1707.06887, section 4: Q(s, a) = Σ_i z_i p_i(s, a).
    """
    return (log_prob.exp() * support).sum(-1)


@torch.no_grad()
def categorical_projection(
    prob: Tensor, reward: Tensor, terminated: Tensor, gamma: float | Tensor, support: Tensor
) -> Tensor:
    """Projects the distribution of r + γ Z onto the network's fixed atoms.

    The atom z_j goes to r + γ z_j, cut to the support, and is shared between the two atoms around
    it, the nearer one getting more. Within the support the mean is that of r + γ Z.

    Args:
        prob: [B, K]. p_j, the probability that the return Z from the successor is z_j.
        reward: [B], in reward units.
        terminated: [B], bool; no return comes after these, whatever `prob` says.
        gamma: γ, discount per environment step, in [0, 1], or [B], one for each row.
        support: [K], z evenly spaced, rising, in reward units; K ≥ 2.

    Returns:
        [B, K], without gradient.

    Source: Bellemare et al. 2017 (C51), arXiv:1707.06887, eq. 7 and algorithm 1.
    """
    check_same_shape(reward=reward, terminated=terminated, prob=prob[:, 0])
    check_same_shape(support=support, prob=prob[0])
    step, last = support[1] - support[0], len(support) - 1
    moved = _shifted_support(reward, terminated, gamma, support)  # [B, K]
    place = ((moved - support[0]) / step).clamp(0, last)
    lower = place.floor().clamp(max=last - 1).long()  # of place K - 1 the upper gets all
    upper_share = prob * (place - lower)
    start = torch.arange(len(prob), device=prob.device)[:, None] * len(support)
    flat, place = torch.zeros_like(prob).flatten(), (start + lower).flatten()
    flat.scatter_add_(0, place, (prob - upper_share).flatten())
    return flat.scatter_add_(0, place + 1, upper_share.flatten()).view_as(prob)


@torch.no_grad()
def clipped_mass(
    prob: Tensor, reward: Tensor, terminated: Tensor, gamma: float | Tensor, support: Tensor
) -> Tensor:
    """The probability mass of r + γ Z that lies outside the support and is clipped to its ends.

    Where it is not small, the distributions cannot say what the returns are.

    Args:
        prob, reward, terminated, gamma, support: as in `categorical_projection`.

    Returns:
        A scalar in [0, 1], the mean over rows; what is outside by rounding alone is not counted.

    Source: Bellemare et al. 2017 (C51), arXiv:1707.06887, eq. 7 and algorithm 1.
    """
    moved = _shifted_support(reward, terminated, gamma, support)
    rounding = 1e-3 * (support[1] - support[0])
    outside = (moved - moved.clamp(support[0], support[-1])).abs() > rounding
    return (prob * outside).sum() / len(prob)


def _shifted_support(
    reward: Tensor, terminated: Tensor, gamma: float | Tensor, support: Tensor
) -> Tensor:
    """r + γ z for every atom z: [B, K], in reward units."""
    discount = ((~terminated).to(reward.dtype) * gamma)[:, None]  # [B, 1]
    return reward[:, None] + discount * support


@torch.no_grad()
def best_next_distribution(
    next_log_prob: Tensor, chooser: Tensor, next_action_mask: Tensor | None = None
) -> Tensor:
    """For each successor state, the return distribution of its greedy action.

    Args:
        next_log_prob: [B, A, K]. The target network's log-probabilities at s'.
        chooser: [B, A]. Q(s', ·) in reward units, of the network that chooses the action: the
            target network, or with double Q-learning the one that is trained.
        next_action_mask: [B, A], bool; True marks the actions allowed in s'. None means all.

    Returns:
        [B, K], probabilities, without gradient.

    Source: Bellemare et al. 2017 (C51), arXiv:1707.06887, algorithm 1; with double Q-learning:
    Hessel et al. 2018, arXiv:1710.02298, section 3.
    """
    check_same_shape(chooser=chooser, next_log_prob=next_log_prob[..., 0])
    best = masked_argmax(chooser, next_action_mask)
    return next_log_prob[torch.arange(len(best), device=best.device), best].exp()


def categorical_divergence(log_prob: Tensor, target: Tensor) -> Tensor:
    """The divergence of each row's distribution over atoms from its target; lower is better.

    KL(m ‖ p) = Σ_i m_i (log m_i - log p_i)

    Args:
        log_prob: [B, K]. log p of the network; carries gradient.
        target: [B, K]. m, probabilities.

    Returns:
        [B], in nats, at least 0.

    Source: Bellemare et al. 2017 (C51), arXiv:1707.06887, algorithm 1, which leaves out the
    entropy of m: it has no gradient, and without it the smallest loss is not 0.
    """
    check_same_shape(log_prob=log_prob, target=target)
    return (torch.xlogy(target, target) - target * log_prob).sum(-1)
