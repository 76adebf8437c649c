"""A gradient step of PPO with the gradient of the whole loss written out; see `rlbook.fast.actor_critic`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlbook.algorithms.policy.ppo import PPO
from rlbook.data.rollout import Batch
from rlbook.fast.actor_critic import Numbers, Outputs, descend, logit_slopes, networks_of, outputs_of
from rlbook.functional.policy_losses import MAX_LOG_RATIO, clipped_surrogate_loss
from rlbook.functional.value_losses import squared_value_loss
from rlbook.policies.distributions import Categorical


def train_on(agent: PPO, batch: Batch, diagnose: bool = True) -> dict[str, Tensor]:
    """The fast form of `PPO.train_on`, for two separate MLPs, discrete actions and the plain clipped loss."""
    metrics = _step(agent, batch, diagnose) if _plain_loss(agent, batch) else None
    if metrics is None:
        return PPO.train_on.plain(agent, batch, diagnose)  # type: ignore[attr-defined]
    return metrics


@torch.no_grad()
def _step(agent: PPO, batch: Batch, diagnose: bool) -> dict[str, Tensor] | None:
    """The step; None, and nothing done, where the networks or the rows ask for more than this."""
    known = networks_of(agent, batch, batch.log_prob, batch.advantage, batch.target)
    if known is None:
        return None
    outputs = outputs_of(known, batch.action, agent.config.temperature)
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = _slopes(agent, batch, outputs)
    norm = descend(known, outputs, *slopes, agent.config.max_grad_norm)
    if norm is None:
        return None
    return (_metrics(agent, batch, outputs) if diagnose else {}) | {"grad_norm": norm}


def _plain_loss(agent: PPO, batch: Batch) -> bool:
    """Whether the loss is the one that is written out below: clipped surrogate, ½ (V - y)², entropy."""
    config = agent.config
    own = getattr(agent.loss, "__func__", None) is PPO.loss
    bounds = config.dual_clip is None and config.clip_value is None
    whole = config.micro_batch_size is None and batch.weight is None
    kl = batch.reference_log_prob is not None and config.kl_in == "loss"
    return own and bounds and whole and not kl and torch.is_grad_enabled()


def _slopes(agent: PPO, batch: Batch, outputs: Outputs) -> tuple[Numbers, Numbers]:
    """∂loss/∂logits [B, A] and ∂loss/∂V [B].

    ∂L_clip/∂log π(a|s) = -ρ A / B where ρ A is the smaller of the two sides, else 0;   ∂½(V - y)²/∂V = V - y
    """
    config, rows = agent.config, len(batch)
    assert batch.advantage is not None and batch.target is not None
    advantage, log_prob = batch.advantage.numpy(), outputs.log_prob.numpy()
    clip, entropy_coef = float(agent.now("clip")), float(agent.now("entropy_coef"))
    high = clip if config.clip_high is None else config.clip_high
    log_ratio = log_prob - batch.log_prob.numpy()
    ratio = np.exp(np.minimum(log_ratio, MAX_LOG_RATIO))
    gain = ratio * advantage
    clipped = np.minimum(np.maximum(ratio, 1.0 - clip), 1.0 + high) * advantage
    slope = np.where((gain > clipped) | (log_ratio > MAX_LOG_RATIO), 0.0, gain * (-1.0 / rows))
    for_logits = logit_slopes(
        slope, outputs.log_probs.numpy(), batch.action.numpy(), entropy=entropy_coef / rows, temperature=config.temperature
    )
    return for_logits, (outputs.value.numpy() - batch.target.numpy()) * (config.value_coef / rows)


def _metrics(agent: PPO, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
    """What the loss was made of."""
    assert batch.advantage is not None and batch.target is not None
    clips = {"clip": agent.now("clip"), "clip_high": agent.config.clip_high}
    return {
        "policy_loss": clipped_surrogate_loss(outputs.log_prob, batch.log_prob, batch.advantage, **clips),
        "value_loss": squared_value_loss(outputs.value, batch.target),
        "entropy": Categorical(outputs.log_probs).entropy().mean(),
        **agent.movement(outputs.log_prob, batch),
    }
