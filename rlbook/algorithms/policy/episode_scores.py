"""The scores of a round's episodes before GRPO compares them, and the importance weights of steps
that another program sampled."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.agent import Metrics
from rlbook.algorithms.policy.episode_rewards import EpisodeReward
from rlbook.algorithms.policy.grpo_config import GRPOConfig
from rlbook.algorithms.policy.options import ImportanceOptions
from rlbook.data.refill import groups_differ
from rlbook.data.rollout import Batch, Rollout
from rlbook.functional.averages import weighted_sum
from rlbook.functional.divergences import find_estimator
from rlbook.functional.policy_losses import truncated_importance_weight
from rlbook.networks.data_parallel import log_prob_by_rows
from rlbook.networks.policy import Policy, as_array


@torch.no_grad()
def score_episodes(
    batch: Batch,
    policy: Policy,
    rollout: Rollout,
    config: GRPOConfig,
    reference: Policy | None,
    reward: EpisodeReward | None,
) -> tuple[Tensor, Metrics]:
    """Sets the scores of a round's rows: the returns, minus a KL penalty in the reward.

    Args:
        batch: [N, T], changed in place: `score`, `reference_log_prob`, and, where each step is
            credited with what follows it, `reward`.
        policy: the one that played.
        rollout: what it played.
        config: hyper-parameters, each schedule at its value.
        reference: π_ref; None where none is kept.
        reward: what an episode is worth; None for its return.

    Returns:
        The returns [N] without the penalty, in reward units, and the diagnostics.
    """
    returns = rollout.tensor("reward").sum(0)  # [N]
    metrics = {"group_return": float(returns.mean())}
    if reward is not None:
        returns = reward(policy, reference, batch)
        metrics["episode_reward"] = float(returns.mean())
    score = returns
    if config.credit == "reward-to-go":
        step_reward = rollout.tensor("reward").T  # [N, T]
        batch.reward = step_reward if reward is None else reward_at_end(returns, batch.mask)
    if reference is not None:
        batch.reference_log_prob = log_prob_by_rows(reference, batch)
        estimate = find_estimator(config.kl_estimator, config.kl_clamp)
        kl = estimate(batch.log_prob, batch.reference_log_prob, batch.mask)  # [N, T]
        metrics["reference_kl"] = float(weighted_sum(kl, batch.mask))
        if config.kl_in == "reward":
            score = returns - config.kl_coef * kl.sum(1)
            if batch.reward is not None:
                batch.reward = batch.reward - config.kl_coef * kl
    batch.score, alike = score, ~groups_differ(score, config.group_size)  # [N], [N / G]
    metrics["zero_std_groups"] = float(alike.float().mean())
    return returns, metrics


def reward_at_end(reward: Tensor, mask: Tensor) -> Tensor:
    """The reward of whole episodes [N] at the last step of each: [N, T]."""
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return last * reward[:, None]


@torch.no_grad()
def weight_by_importance(batch: Batch, policy: Policy, config: ImportanceOptions) -> float:
    """Adds importance weights for steps sampled by another program, and uses the policy's own
    log-probabilities as those of π_old. Returns the mean weight."""
    assert config.importance_cap is not None
    log_prob = log_prob_by_rows(policy, batch)
    batch.importance = truncated_importance_weight(
        log_prob,
        batch.log_prob,
        batch.mask,
        cap=config.importance_cap,
        episode=config.importance_of == "sequence",
    )
    batch.log_prob = log_prob
    return float(weighted_sum(batch.importance, batch.mask))


@torch.no_grad()
def weight_rollout(
    rollout: Rollout, policy: Policy, config: ImportanceOptions
) -> tuple[dict[str, Tensor], Metrics]:
    """The same for a rollout [T, N].

    Returns:
        The weights [T, N] as `importance`, and their mean.
    """
    batch = policy.batch(rollout, "episode")
    mean = weight_by_importance(batch, policy, config)
    rollout.log_probs[:] = list(as_array(batch.log_prob.T))
    assert batch.importance is not None
    return {"importance": batch.importance.T}, {"importance": mean}
