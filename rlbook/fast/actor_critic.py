"""Gradients of actor-critic losses written out, for two separate MLPs and discrete actions: no
graph is recorded.

At these sizes autograd spends longer on its nodes than on the arithmetic, and numpy is quicker than
torch on vectors of a few hundred numbers. PPO's and A2C's steps share what stands here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook.data.rollout import Batch
from rlbook.fast.flat_adam import FlatAdam, FlatRMSprop
from rlbook.fast.mlp import Weights, backward_pass, forward_pass, weights_of
from rlbook.fast.modules import is_unmodified, trains_plainly
from rlbook.functional.action_masks import masked_logits
from rlbook.networks.mlp import MLPPolicy
from rlbook.networks.optimizer import Optimizer
from rlbook.networks.policy import Policy

REPLACEABLE = frozenset({"evaluate", "distribution", "distributions", "_forward", "_distribution"})
"""Methods of a policy that the plain step calls and this one does not."""


Numbers = NDArray[np.float32] | NDArray[np.float64]


class Networks(NamedTuple):
    """The networks' weights, once it is known that the plain step would use the same."""

    actor: Weights
    critic: Weights
    activation: str
    optimizer: FlatAdam
    obs: Tensor  # [B, O], standardised where the policy does so
    action_mask: Tensor | None  # [B, A] bool, the allowed actions; None: all


class Outputs(NamedTuple):
    """The networks' outputs for a batch, and the inputs of their layers."""

    log_probs: Tensor  # log π(·|s) [B, A], at the policy's temperature; of forbidden actions the least finite number
    log_prob: Tensor  # log π(a|s) [B]
    value: Tensor  # V(s) [B]
    seen: list[Tensor]
    seen_by_critic: list[Tensor]


def networks_of(
    policy: Policy, optimizer: Optimizer, batch: Batch, *rows: Tensor | None
) -> Networks | None:
    """The policy's networks, or None if its modules, its parameters or the batch require more.
    `rows`: the fields that the loss reads, each [B]."""
    if type(policy) is not MLPPolicy or not (
        type(optimizer) is FlatAdam or type(optimizer) is FlatRMSprop
    ):
        return None  # another class may step otherwise
    if policy.critic is None or not policy.discrete or not REPLACEABLE.isdisjoint(policy.__dict__):
        return None
    obs = policy.normalizer(batch.obs)
    networks = (policy.actor, policy.critic)
    actor, critic = (weights_of(network, obs) for network in networks)
    if actor is None or critic is None or not all(map(is_unmodified, networks)):
        return None
    if not trains_plainly([*actor, *critic], optimizer.parameters):
        return None
    alike = policy.actor.activation == policy.critic.activation
    known = Networks(actor, critic, policy.actor.activation, optimizer, obs, batch.action_mask)
    return (
        known
        if alike
        and _vectors(batch, obs, rows)
        and _fits(batch.action_mask, (len(obs), len(actor[-1])))
        else None
    )


def _vectors(batch: Batch, obs: Tensor, rows: tuple[Tensor | None, ...]) -> bool:
    """Whether the batch is rows [B] of one floating-point type, without gradients."""
    shape = batch.action.shape
    for row in rows:
        if type(row) is not Tensor or row.dtype is not obs.dtype or row.shape != shape:
            return False  # the plain step refuses other shapes
        if row.requires_grad or not row.is_cpu:
            return False
    whole = obs.dim() == 2 and shape == obs.shape[:1] and not obs.requires_grad and len(obs) > 0
    return whole and batch.action.dtype is torch.int64 and batch.action.is_cpu


def _fits(action_mask: Tensor | None, shape: tuple[int, int]) -> bool:
    """Whether there is no mask, or one of this shape; the plain step rejects others."""
    return action_mask is None or (
        action_mask.dtype is torch.bool and action_mask.shape == shape and action_mask.is_cpu
    )


def outputs_of(networks: Networks, action: Tensor, temperature: float) -> Outputs:
    """Forward through both networks. action: int64 [B]."""
    *seen, logits = forward_pass(networks.obs, networks.activation, networks.actor)
    *seen_by_critic, value = forward_pass(networks.obs, networks.activation, networks.critic)
    logits = logits if temperature == 1.0 else logits / temperature
    if networks.action_mask is None:
        log_probs = logits.log_softmax(-1)
    else:  # finite, so that 0 · log 0 is 0
        log_probs = (
            masked_logits(logits, networks.action_mask)
            .log_softmax(-1)
            .clamp_(min=torch.finfo(logits.dtype).min)
        )
    log_prob = log_probs.gather(1, action[:, None])[:, 0]
    return Outputs(log_probs, log_prob, value[:, 0], seen, seen_by_critic)


def logit_slopes(
    slope: Numbers,
    log_probs: Numbers,
    action: NDArray[np.int64],
    *,
    entropy: Numbers | float,
    temperature: float,
) -> Numbers:
    """∂loss/∂logits [B, A].

    ∂log π(a|s)/∂z_j = 1[j = a] - π_j;   ∂H/∂z_j = -π_j (log π_j + H)

    Args:
        slope: ∂loss/∂log π(a|s) [B].
        log_probs: log π(·|s) [B, A].
        action: [B].
        entropy: -∂loss/∂H(π), of each row [B, 1] or of all; 0 where the loss has no entropy.
        temperature: what the logits were divided by.
    """
    probs = np.exp(log_probs)
    for_logits = probs * -slope[:, None]
    for_logits[np.arange(len(slope)), action] += slope
    if not (isinstance(entropy, float) and entropy == 0.0):
        uncertainty = -(probs * log_probs).sum(-1, keepdims=True)
        for_logits += probs * (log_probs + uncertainty) * entropy
    if temperature != 1.0:
        for_logits /= temperature
    return for_logits


def descend(
    networks: Networks,
    outputs: Outputs,
    for_logits: Numbers,
    for_value: Numbers,
    max_grad_norm: float,
) -> Tensor | None:
    """A gradient step with these gradients, for_logits [B, A] and for_value [B]. Returns the
    gradient's L2 norm before clipping; None, without any change, if a row is not finite."""
    if not (
        math.isfinite(np.vdot(for_logits, for_logits))
        and math.isfinite(np.vdot(for_value, for_value))
    ):
        return None
    optimizer, half = networks.optimizer, len(networks.actor)
    optimizer.clear_gradient()
    backward_pass(
        torch.from_numpy(for_logits),
        outputs.seen,
        networks.actor,
        networks.activation,
        optimizer.views[:half],
    )
    delta = torch.from_numpy(for_value)[:, None]
    backward_pass(
        delta, outputs.seen_by_critic, networks.critic, networks.activation, optimizer.views[half:]
    )
    return optimizer.descend(max_grad_norm)
