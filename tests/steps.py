"""One gradient step, and one loss, of an agent with a policy, as its update makes them."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from rlbook.policies.optimizer import LossOutput, gradient_step


def loss_of(agent: Any, rows: Any, **options: Any) -> LossOutput:
    """What the agent minimises, of some rows."""
    if hasattr(agent, "train_on"):                       # its loss is a method
        return agent.loss(rows, **options)
    return agent.loss(agent.policy, rows, config=agent.settings, **options)


def train_on(agent: Any, rows: Any, **options: Any) -> dict[str, Tensor]:
    """One gradient step with some rows. Returns the diagnostics and "grad_norm"."""
    if hasattr(agent, "train_on"):
        return agent.train_on(rows, **options)
    loss = partial(agent.loss, agent.policy, config=agent.settings, **options)
    limits = {"micro_batch_size": agent.config.micro_batch_size, "max_grad_norm": agent.config.max_grad_norm}
    return gradient_step(agent.optimizer, loss, rows, **limits)
