"""Rewards of whole episodes that the policy itself decides about: (policy, reference, batch) → [B].

    self-certainty     mean over steps of KL(U ‖ π(·|s)): how far from chance the policy is (RLIF)
    entropy            mean over steps of -H(π(·|s)) (RLIF)
    log-probability    mean over steps of log π(a|s) of what was done (RLIF)

They need no verifier, and they can be had by being sure of anything: the policy that repeats one
thing for ever has the largest of each. All in nats, without gradient.

Source: Zhao et al. 2025 (Intuitor), arXiv:2505.19590; Agarwal et al. 2025, arXiv:2505.15134 (token
and trajectory entropy).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlbook.data.rollout import Batch
from rlbook.functional.intrinsic_rewards import mean_over_steps, self_certainty
from rlbook.policies.distributions import Categorical
from rlbook.policies.policy import Policy

EpisodeReward = Callable[[Policy, Policy | None, Batch], Tensor]
"""Of episodes [B, T], whose `log_prob` is the acting policy's: [B], in units of its own."""


@torch.no_grad()
def mean_self_certainty(policy: Policy, reference: Policy | None, batch: Batch) -> Tensor:
    """Intuitor's reward; only where actions are discrete."""
    distribution = policy.distributions(batch)
    assert isinstance(distribution, Categorical)
    return mean_over_steps(self_certainty(distribution.log_probs), batch.mask)


@torch.no_grad()
def mean_negative_entropy(policy: Policy, reference: Policy | None, batch: Batch) -> Tensor:
    """Minus the entropy of the policy, on the way."""
    return mean_over_steps(-policy.distributions(batch).entropy(), batch.mask)


def mean_log_probability(policy: Policy, reference: Policy | None, batch: Batch) -> Tensor:
    """How likely the policy found what it did; its mean over episodes is minus the entropy of
    the trajectory, per step."""
    return mean_over_steps(batch.log_prob, batch.mask)


EPISODE_REWARDS: dict[str, EpisodeReward] = {
    "self-certainty": mean_self_certainty,
    "entropy": mean_negative_entropy,
    "log-probability": mean_log_probability,
}
"""Name → reward, as hyper-parameters spell them."""


def check_defined(name: str | None, actions: Space) -> None:
    """Raises ValueError where a reward has no meaning for these actions."""
    if name == "self-certainty" and not isinstance(actions, spaces.Discrete):
        raise ValueError(
            "episode_reward 'self-certainty' compares with choosing at random, and needs discrete "
            f"actions, got {actions}"
        )
