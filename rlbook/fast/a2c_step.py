"""A gradient step of A2C with the gradient of the whole loss written out; see `rlbook.fast.actor_critic`."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.algorithms.policy.a2c import A2C
from rlbook.data.rollout import Batch
from rlbook.fast.actor_critic import Numbers, Outputs, descend, logit_slopes, networks_of, outputs_of


def train_on(agent: A2C, batch: Batch) -> dict[str, Tensor]:
    """The fast form of `A2C.train_on`, for two separate MLPs and discrete actions."""
    own = getattr(agent.loss, "__func__", None) is A2C.loss
    whole = agent.config.micro_batch_size is None and bool(batch.mask.all())
    metrics = _step(agent, batch) if own and whole and torch.is_grad_enabled() else None
    if metrics is None:
        return A2C.train_on.plain(agent, batch)  # type: ignore[attr-defined]
    return metrics


@torch.no_grad()
def _step(agent: A2C, batch: Batch) -> dict[str, Tensor] | None:
    """The step; None, and nothing done, where the networks or the rows ask for more than this."""
    known = networks_of(agent, batch, batch.advantage, batch.target, batch.weight)
    if known is None:
        return None
    outputs = outputs_of(known, batch.action, agent.config.temperature)
    norm = descend(known, outputs, *_slopes(agent, batch, outputs), agent.config.max_grad_norm)
    return None if norm is None else _metrics(batch, outputs) | {"grad_norm": norm}


def _slopes(agent: A2C, batch: Batch, outputs: Outputs) -> tuple[Numbers, Numbers]:
    """∂loss/∂logits [B, A] and ∂loss/∂V [B], where row i has the share w_i in the loss.

    ∂L/∂log π(a|s) = -w A;   ∂½(V - y)²/∂V = V - y
    """
    assert batch.advantage is not None and batch.target is not None and batch.weight is not None
    weight, entropy_coef = batch.weight.numpy(), float(agent.now("entropy_coef"))
    for_logits = logit_slopes(
        -weight * batch.advantage.numpy(), outputs.log_probs.numpy(), batch.action.numpy(),
        entropy=entropy_coef * weight[:, None] if entropy_coef > 0 else 0.0, temperature=agent.config.temperature,
    )  # fmt: skip
    return for_logits, (outputs.value.numpy() - batch.target.numpy()) * weight * agent.config.value_coef


def _metrics(batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
    """What the loss was made of."""
    assert batch.advantage is not None and batch.target is not None and batch.weight is not None
    entropy = -(outputs.log_probs.exp() * outputs.log_probs).sum(-1)
    return {
        "policy_loss": -(batch.weight * outputs.log_prob * batch.advantage).sum(),
        "value_loss": 0.5 * (batch.weight * (outputs.value - batch.target).square()).sum(),
        "entropy": (batch.weight * entropy).sum(),
    }
