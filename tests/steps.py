"""One gradient step, and one loss, of an agent with a network, as its update makes them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from rlbook.networks.optimizer import LossOutput, gradient_step


def bound_loss(agent: Any, **options: Any) -> Callable[[Any], LossOutput]:
    """The agent's loss as a function of rows, with its network and config."""
    if hasattr(agent, "policy"):
        return partial(agent.loss, agent.policy, config=agent.settings, **options)
    return partial(agent.loss, agent.q, config=agent.config, noise=agent.noise, **options)


def critic_loss_of(agent: Any, rows: Any) -> LossOutput:
    """The loss of an agent's critics."""
    return agent.critic_loss(agent.trained_networks, rows, config=agent.config)


def actor_loss_of(agent: Any, rows: Any) -> LossOutput:
    """The loss of the policy of an agent with critics."""
    return agent.actor_loss(agent.trained_networks, rows, config=agent.config)


class MinibatchDrawn(Exception):
    """Ends an update once its minibatch is known."""


def next_minibatch(agent: Any) -> Any:
    """The first minibatch of an agent's update; nothing is learned from it."""
    drawn: list[Any] = []

    def keep(*args: Any, **options: Any) -> Any:
        drawn.append(args[-1])
        raise MinibatchDrawn

    name = "train_on" if hasattr(agent, "train_on") else "loss"
    setattr(agent, name, keep)
    with contextlib.suppress(MinibatchDrawn):
        agent.update()
    delattr(agent, name)
    return drawn[0]


def loss_of(agent: Any, rows: Any, **options: Any) -> LossOutput:
    """What the agent minimises, of some rows."""
    if hasattr(agent, "train_on"):  # its loss is a method
        return agent.loss(rows, **options)
    return bound_loss(agent, **options)(rows)


def train_on(agent: Any, rows: Any, **options: Any) -> dict[str, Tensor]:
    """One gradient step with some rows. Returns the diagnostics and "grad_norm"."""
    if hasattr(agent, "train_on"):
        return agent.train_on(rows, **options)
    micro_batch_size = getattr(agent.config, "micro_batch_size", None)
    limits = {"micro_batch_size": micro_batch_size, "max_grad_norm": agent.config.max_grad_norm}
    return gradient_step(agent.optimizer, bound_loss(agent, **options), rows, **limits)
