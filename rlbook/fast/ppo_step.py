"""A gradient step of PPO with the gradient of the whole loss written out; see
`rlbook.fast.actor_critic`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlbook.algorithms.policy.ppo import PPOConfig, policy_change
from rlbook.data.rollout import Batch
from rlbook.fast.actor_critic import (
    Numbers,
    Outputs,
    descend,
    logit_slopes,
    networks_of,
    outputs_of,
)
from rlbook.functional.policy_losses import MAX_LOG_RATIO, clipped_surrogate_loss
from rlbook.functional.value_losses import squared_value_loss
from rlbook.networks.distributions import Categorical
from rlbook.networks.optimizer import Optimizer
from rlbook.networks.policy import Policy


@torch.no_grad()
def step(
    optimizer: Optimizer,
    batch: Batch,
    max_grad_norm: float,
    policy: Policy,
    *,
    config: PPOConfig,
    diagnose: bool = True,
) -> dict[str, Tensor] | None:
    """A gradient step on `ppo_loss`, for two separate MLPs, discrete actions and the plain clipped
    loss; None, without any change, if the networks, the rows or the config require more than
    that."""
    if not _plain_loss(config, batch):
        return None
    known = networks_of(policy, optimizer, batch, batch.log_prob, batch.advantage, batch.target)
    if known is None:
        return None
    outputs = outputs_of(known, batch.action, config.temperature)
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = _slopes(config, batch, outputs)
    norm = descend(known, outputs, *slopes, max_grad_norm)
    if norm is None:
        return None
    return (_metrics(config, batch, outputs) if diagnose else {}) | {"grad_norm": norm}


def _plain_loss(config: PPOConfig, batch: Batch) -> bool:
    """Whether the loss is the one that is written out below: clipped surrogate, ½ (V - y)²,
    entropy."""
    bounds = config.dual_clip is None and config.clip_value is None
    kl = batch.reference_log_prob is not None and config.kl_in == "loss"
    return bounds and batch.weight is None and batch.importance is None and not kl


def _slopes(config: PPOConfig, batch: Batch, outputs: Outputs) -> tuple[Numbers, Numbers]:
    """∂loss/∂logits [B, A] and ∂loss/∂V [B].

    ∂L_clip/∂log π(a|s) = -ρ A / B where ρ A is the smaller of the two sides, else 0;   ∂½(V - y)²/∂V = V - y
    """
    rows = len(batch)
    assert batch.advantage is not None and batch.target is not None
    advantage, log_prob = batch.advantage.numpy(), outputs.log_prob.numpy()
    clip, entropy_coef = float(config.clip), float(config.entropy_coef)
    high = clip if config.clip_high is None else config.clip_high
    log_ratio = log_prob - batch.log_prob.numpy()
    ratio = np.exp(np.minimum(log_ratio, MAX_LOG_RATIO))
    gain = ratio * advantage
    clipped = np.minimum(np.maximum(ratio, 1.0 - clip), 1.0 + high) * advantage
    slope = np.where((gain > clipped) | (log_ratio > MAX_LOG_RATIO), 0.0, gain * (-1.0 / rows))
    for_logits = logit_slopes(
        slope,
        outputs.log_probs.numpy(),
        batch.action.numpy(),
        entropy=entropy_coef / rows,
        temperature=config.temperature,
    )
    return for_logits, (outputs.value.numpy() - batch.target.numpy()) * (config.value_coef / rows)


def _metrics(config: PPOConfig, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
    """The metrics of the loss."""
    assert batch.advantage is not None and batch.target is not None
    clips = {"clip": config.clip, "clip_high": config.clip_high}
    return {
        "policy_loss": clipped_surrogate_loss(
            outputs.log_prob, batch.log_prob, batch.advantage, **clips
        ),
        "value_loss": squared_value_loss(outputs.value, batch.target),
        "entropy": Categorical(outputs.log_probs).entropy().mean(),
        **policy_change(outputs.log_prob, batch, config),
    }
