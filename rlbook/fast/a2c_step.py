"""A gradient step of A2C with the gradient of the whole loss written out; see
`rlbook.fast.actor_critic`."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.algorithms.policy.a2c import A2CConfig
from rlbook.data.rollout import Batch
from rlbook.fast.actor_critic import (
    Numbers,
    Outputs,
    descend,
    logit_slopes,
    networks_of,
    outputs_of,
)
from rlbook.networks.optimizer import Optimizer
from rlbook.networks.policy import Policy


@torch.no_grad()
def step(
    optimizer: Optimizer, batch: Batch, max_grad_norm: float, policy: Policy, *, config: A2CConfig
) -> dict[str, Tensor] | None:
    """A gradient step on `a2c_loss`, for two separate MLPs and discrete actions; None, without any
    change, if the networks or the rows require more than this."""
    known = (
        networks_of(policy, optimizer, batch, batch.advantage, batch.target, batch.weight)
        if batch.mask.all()
        else None
    )
    if known is None:
        return None
    outputs = outputs_of(known, batch.action, config.temperature)
    norm = descend(known, outputs, *_slopes(config, batch, outputs), max_grad_norm)
    return None if norm is None else _metrics(batch, outputs) | {"grad_norm": norm}


def _slopes(config: A2CConfig, batch: Batch, outputs: Outputs) -> tuple[Numbers, Numbers]:
    """∂loss/∂logits [B, A] and ∂loss/∂V [B], where row i has the share w_i in the loss.

    ∂L/∂log π(a|s) = -w A;   ∂½(V - y)²/∂V = V - y
    """
    assert batch.advantage is not None and batch.target is not None and batch.weight is not None
    weight, entropy_coef = batch.weight.numpy(), float(config.entropy_coef)
    for_logits = logit_slopes(
        -weight * batch.advantage.numpy(),
        outputs.log_probs.numpy(),
        batch.action.numpy(),
        entropy=entropy_coef * weight[:, None] if entropy_coef > 0 else 0.0,
        temperature=config.temperature,
    )
    return for_logits, (outputs.value.numpy() - batch.target.numpy()) * weight * config.value_coef


def _metrics(batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
    """The metrics of the loss."""
    assert batch.advantage is not None and batch.target is not None and batch.weight is not None
    entropy = -(outputs.log_probs.exp() * outputs.log_probs).sum(-1)
    return {
        "policy_loss": -(batch.weight * outputs.log_prob * batch.advantage).sum(),
        "value_loss": 0.5 * (batch.weight * (outputs.value - batch.target).square()).sum(),
        "entropy": (batch.weight * entropy).sum(),
    }
