"""Intrinsic rewards of whole episodes, from the policy itself: (policy, reference, batch) → [B].

    self-certainty     mean over steps of KL(U ‖ π(·|s)): how far from chance the policy is (RLIF)
    entropy            mean over steps of -H(π(·|s)) (RLIF)
    log-probability    mean over steps of log π(a|s) of the action taken (RLIF)
    trajectory         log π(τ), the sum of the same (RLIF)
    answer             probability of the reference answer after the generated reasoning (RLPR)

The first four need no verifier, but confidence in anything earns them: a policy that repeats one
token forever maximises each of them. In nats, without gradient.

The last needs a reference answer, but no verifier. With z the text generated before the answer:

    r  = mean over the answer's tokens of π(token | prompt, z),   r' = π_ref's, with empty z
    R  = 0.9 clip(r - r', 0, 1) + 0.1 [the form is right]

Source: Zhao et al. 2025 (Intuitor), arXiv:2505.19590; Agarwal et al. 2025, arXiv:2505.15134 (token
and trajectory entropy). Yu et al. 2025 (RLPR), arXiv:2506.18254, eq. 3 and 4; weights of its code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from torch import Tensor

from rlbook.data.rollout import Batch
from rlbook.functional.post_training.intrinsic_rewards import (
    debias,
    mean_over_steps,
    mean_probability,
    self_certainty,
)
from rlbook.functional.post_training.preference_losses import sequence_log_prob
from rlbook.networks.data_parallel import log_prob_by_rows
from rlbook.networks.distributions import Categorical
from rlbook.networks.policy import Policy

EpisodeReward = Callable[[Policy, Policy | None, Batch], Tensor]
"""A function of episodes [B, T], whose `log_prob` is the acting policy's: [B], in units of its
own."""


class ReferenceAnswerBatches(NamedTuple):
    """B generated episodes with the reference answer in place of the generated one."""

    after_steps: Batch  # [B, T'], weight 1 at the answer's tokens, and 0 elsewhere
    alone: Batch  # [B, T''], the same with empty steps
    well_formed: Tensor  # [B] float: 1 where there were steps, once, and an ending


Answered = Callable[[Batch], ReferenceAnswerBatches]


@torch.no_grad()
def mean_self_certainty(policy: Policy, reference: Policy | None, batch: Batch) -> Tensor:
    """Intuitor's reward: the mean self-certainty; discrete actions only."""
    distribution = policy.distributions(batch)
    assert isinstance(distribution, Categorical)
    return mean_over_steps(self_certainty(distribution.log_probs), batch.mask)


@torch.no_grad()
def mean_negative_entropy(policy: Policy, reference: Policy | None, batch: Batch) -> Tensor:
    """Minus the policy's mean entropy over the episode's steps."""
    return mean_over_steps(-policy.distributions(batch).entropy(), batch.mask)


def mean_log_probability(policy: Policy, reference: Policy | None, batch: Batch) -> Tensor:
    """The mean log-probability of the actions; averaged over episodes, minus the entropy of the
    trajectory per step."""
    return mean_over_steps(batch.log_prob, batch.mask)


def trajectory_log_probability(policy: Policy, reference: Policy | None, batch: Batch) -> Tensor:
    """The log-probability of the whole episode. As a reward it sharpens the policy: the more likely
    episodes of a group become even more likely, in the same order."""
    return sequence_log_prob(batch.log_prob, batch.mask)


class AnswerProbability:
    """RLPR's reward: how much the generated reasoning increases the probability of the reference
    answer.

    Args:
        answered: replaces what was answered by what is right.
    """

    FORM = 0.1  # weight of the right form

    def __init__(self, answered: Answered) -> None:
        self.answered = answered

    @torch.no_grad()
    def __call__(self, policy: Policy, reference: Policy | None, batch: Batch) -> Tensor:
        right = self.answered(batch)
        score = probability(policy, right.after_steps)
        baseline = probability(reference or policy, right.alone)
        reward = debias(score, baseline) * right.well_formed
        return (1.0 - self.FORM) * reward + self.FORM * right.well_formed


def probability(policy: Policy, batch: Batch) -> Tensor:
    """The mean probability of the tokens whose `weight` is not 0: [B]."""
    log_prob = log_prob_by_rows(policy, batch)
    assert batch.weight is not None
    return mean_probability(log_prob, batch.weight > 0)


EPISODE_REWARDS: dict[str, EpisodeReward | None] = {
    "self-certainty": mean_self_certainty,
    "entropy": mean_negative_entropy,
    "log-probability": mean_log_probability,
    "trajectory": trajectory_log_probability,
    "answer": None,
}
"""Name → reward, as hyper-parameters spell them; None where it depends on the environment."""


def episode_reward(name: str | None, env: VectorEnv) -> EpisodeReward | None:
    """The reward of this name in `env`; None for the environment's own.

    Raises:
        ValueError: it has no meaning there.
    """
    if name is None:
        return None
    if name == "self-certainty" and not isinstance(env.single_action_space, spaces.Discrete):
        raise ValueError(
            "episode_reward 'self-certainty' compares with random actions, so it needs discrete "
            f"actions, got {env.single_action_space}"
        )
    if name == "answer":
        answered = getattr(env.unwrapped, "answer_replacer", None)
        if answered is None:
            raise ValueError("episode_reward 'answer' needs an environment with reference answers")
        return AnswerProbability(answered())
    return EPISODE_REWARDS[name]
