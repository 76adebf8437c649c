"""Reward shaping, which guides exploration towards a goal."""

from __future__ import annotations

from torch import Tensor

from rlbook.functional._shapes import check_same_shape


def shaped_reward(
    reward: Tensor, potential: Tensor, next_potential: Tensor, terminated: Tensor, *, gamma: float
) -> Tensor:
    """Potential-based shaping: adds the increase in potential to the reward.

    r' = r + γ Φ(s') - Φ(s),   where Φ(s') = 0 if the episode ended in s'

    Over an episode the added terms leave -Φ(s_0), whatever was done, so that no policy gains on
    another: Q'(s, a) = Q(s, a) - Φ(s), for every policy. With Φ = V* a best action earns 0 on
    average, and any other one less.

    Args:
        reward: [...]. r, in reward units.
        potential: same shape. Φ(s), in reward units; any function of the state.
        next_potential: same shape. Φ(s').
        terminated: same shape, bool. Whether the episode ended in s'.
        gamma: γ, the discount of the learner; with another one the invariance is lost.

    Returns:
        [...], in reward units.

    Source: Ng, Harada & Russell 1999, "Policy invariance under reward transformations", theorem 1.
    """
    check_same_shape(
        reward=reward, potential=potential, next_potential=next_potential, terminated=terminated
    )
    return reward + gamma * next_potential.masked_fill(terminated, 0.0) - potential
