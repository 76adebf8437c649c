"""A gradient step of PPO with the gradient of the whole loss written out: no graph is recorded.

At these sizes autograd spends longer on its nodes than on the arithmetic, and numpy is quicker than
torch on vectors of a few hundred numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook.algorithms.policy.ppo import PPO
from rlbook.data.rollout import Batch
from rlbook.fast.flat_adam import FlatAdam
from rlbook.fast.mlp import Weights, backward_pass, forward_pass, weights_of
from rlbook.fast.modules import trains_plainly, untouched
from rlbook.functional.policy_losses import MAX_LOG_RATIO, clipped_surrogate_loss
from rlbook.functional.value_losses import squared_value_loss
from rlbook.policies.distributions import Categorical
from rlbook.policies.mlp import MLPPolicy

REPLACEABLE = frozenset({"evaluate", "distribution", "entropy_of", "_forward", "_distribution", "_input"})
"""Methods of a policy that the plain step calls and this one does not."""


Numbers = NDArray[np.float32] | NDArray[np.float64]


class _Networks(NamedTuple):
    """What the step needs, once it is known that the plain one would use the same."""

    actor: Weights
    critic: Weights
    activation: str
    optimizer: FlatAdam
    obs: Tensor              # [B, O], standardised where the policy does so


def train_on(agent: PPO, batch: Batch, diagnose: bool = True) -> dict[str, Tensor]:
    """The fast form of `PPO.train_on`, for two separate MLPs, discrete actions and the plain clipped loss."""
    known = _networks(agent, batch) if _plain_loss(agent, batch) else None
    metrics = None if known is None else _step(agent, batch, known, diagnose)
    if metrics is None:
        return PPO.train_on.plain(agent, batch, diagnose)  # type: ignore[attr-defined]
    return metrics


@torch.no_grad()
def _step(agent: PPO, batch: Batch, known: _Networks, diagnose: bool) -> dict[str, Tensor] | None:
    """The step; None, and nothing done, where the gradient is not finite."""
    config, optimizer, half = agent.config, known.optimizer, len(known.actor)
    *seen, logits = forward_pass(known.obs, known.activation, known.actor)
    *seen_by_critic, value = forward_pass(known.obs, known.activation, known.critic)
    log_probs = (logits if config.temperature == 1.0 else logits / config.temperature).log_softmax(-1)
    log_prob = log_probs.gather(1, batch.action[:, None])[:, 0]
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = _slopes(agent, batch, log_probs.numpy(), log_prob.numpy(), value.numpy()[:, 0])
    if slopes is None:
        return None
    for_logits, for_value = map(torch.from_numpy, slopes)
    optimizer.clear_gradient()
    backward_pass(for_logits, seen, known.actor, known.activation, optimizer.views[:half])
    backward_pass(for_value, seen_by_critic, known.critic, known.activation, optimizer.views[half:])
    metrics = _metrics(agent, batch, log_probs, log_prob, value[:, 0]) if diagnose else {}
    return metrics | {"grad_norm": optimizer.descend(config.max_grad_norm)}


def _plain_loss(agent: PPO, batch: Batch) -> bool:
    """Whether the loss is the one that is written out below: clipped surrogate, ½ (V - y)², entropy."""
    config = agent.config
    own = getattr(agent.loss, "__func__", None) is PPO.loss
    bounds = config.dual_clip is None and config.clip_value is None
    whole = config.micro_batch_size is None and batch.weight is None
    kl = batch.reference_log_prob is not None and config.kl_in == "loss"
    return own and bounds and whole and not kl and torch.is_grad_enabled()


def _networks(agent: PPO, batch: Batch) -> _Networks | None:
    """The policy's networks, or None where its modules, its parameters or the batch ask for more."""
    policy, optimizer = agent.policy, agent.optimizer
    if type(policy) is not MLPPolicy or type(optimizer) is not FlatAdam:
        return None
    if policy.critic is None or not policy.discrete or not REPLACEABLE.isdisjoint(policy.__dict__):
        return None
    obs = batch.obs if policy.normalizer is None else policy.normalizer(batch.obs)
    networks = (policy.actor, policy.critic)
    actor, critic = (weights_of(network, obs) for network in networks)
    if actor is None or critic is None or not all(map(untouched, networks)):
        return None
    if not trains_plainly([*actor, *critic], optimizer.parameters):
        return None
    alike = policy.actor.activation == policy.critic.activation
    return _Networks(actor, critic, policy.actor.activation, optimizer, obs) if alike and _vectors(batch, obs) else None


def _vectors(batch: Batch, obs: Tensor) -> bool:
    """Whether the batch is rows [B] of one floating-point type, without gradients."""
    shape = batch.action.shape
    for row in (batch.log_prob, batch.advantage, batch.target):
        if type(row) is not Tensor or row.dtype is not obs.dtype or row.shape != shape:
            return False                                     # the plain step refuses other shapes
        if row.requires_grad or not row.is_cpu:
            return False
    whole = obs.dim() == 2 and shape == obs.shape[:1] and not obs.requires_grad and len(obs) > 0
    return whole and batch.action.dtype is torch.int64 and batch.action.is_cpu


def _slopes(
    agent: PPO, batch: Batch, log_probs: Numbers, log_prob: Numbers, value: Numbers
) -> tuple[Numbers, Numbers] | None:
    """∂loss/∂logits [B, A] and ∂loss/∂V [B, 1], or None where they are not finite.

    ∂L_clip/∂log π(a|s) = -ρ A / B where ρ A is the smaller of the two sides, else 0;
    ∂log π(a|s)/∂z_j = 1[j = a] - π_j;   ∂H/∂z_j = -π_j (log π_j + H);   ∂½(V - y)²/∂V = V - y
    """
    config, rows = agent.config, len(log_prob)
    assert batch.advantage is not None and batch.target is not None
    advantage, action = batch.advantage.numpy(), batch.action.numpy()
    clip, entropy_coef = float(agent.now("clip")), float(agent.now("entropy_coef"))
    high = clip if config.clip_high is None else config.clip_high
    log_ratio = log_prob - batch.log_prob.numpy()
    ratio = np.exp(np.minimum(log_ratio, MAX_LOG_RATIO))
    gain = ratio * advantage
    clipped = np.minimum(np.maximum(ratio, 1.0 - clip), 1.0 + high) * advantage
    slope = np.where((gain > clipped) | (log_ratio > MAX_LOG_RATIO), 0.0, gain * (-1.0 / rows))
    probs = np.exp(log_probs)
    for_logits = probs * -slope[:, None]
    for_logits[np.arange(rows), action] += slope
    if entropy_coef > 0:
        entropy = -(probs * log_probs).sum(-1, keepdims=True)
        for_logits += probs * (log_probs + entropy) * (entropy_coef / rows)
    if config.temperature != 1.0:
        for_logits /= config.temperature
    for_value = ((value - batch.target.numpy()) * (config.value_coef / rows))[:, None]
    finite = math.isfinite(np.vdot(for_logits, for_logits)) and math.isfinite(np.vdot(for_value, for_value))
    return (for_logits, for_value) if finite else None


def _metrics(
    agent: PPO, batch: Batch, log_probs: Tensor, log_prob: Tensor, value: Tensor
) -> dict[str, Tensor]:
    """What the loss was made of. log_probs [B, A]; log_prob, value [B]."""
    assert batch.advantage is not None and batch.target is not None
    clips = {"clip": agent.now("clip"), "clip_high": agent.config.clip_high}
    return {
        "policy_loss": clipped_surrogate_loss(log_prob, batch.log_prob, batch.advantage, **clips),
        "value_loss": squared_value_loss(value, batch.target),
        "entropy": Categorical(log_probs).entropy().mean(),
        **agent.movement(log_prob, batch),
    }
