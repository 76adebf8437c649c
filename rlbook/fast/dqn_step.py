"""A gradient step of DQN with the gradient of the whole loss written out: no graph is recorded."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from rlbook.algorithms.value.dqn import DQN
from rlbook.data.rainbow_replay import Minibatch
from rlbook.fast.flat_adam import FlatAdam
from rlbook.fast.mlp import Weights, backward_pass, forward_pass, weights_of
from rlbook.fast.modules import trains_plainly, untouched
from rlbook.policies.mlp import MLP


def train_on(agent: DQN, batch: Minibatch) -> dict[str, Tensor]:
    """The fast form of `DQN.train_on`, for an ordinary MLP on the CPU."""
    weights = _weights(agent, batch)
    metrics = None if weights is None else _step(agent, batch, weights)
    return DQN.train_on.plain(agent, batch) if metrics is None else metrics  # type: ignore[attr-defined]


def _weights(agent: DQN, batch: Minibatch) -> Weights | None:
    """The network's weights, or None where it, its parameters or the rows ask for more."""
    rows, network, optimizer = batch.rows, agent.q, agent.optimizer
    if getattr(agent.loss, "__func__", None) is not DQN.loss or type(optimizer) is not FlatAdam or agent.config.prioritized:
        return None
    weights = weights_of(network, rows.obs) if isinstance(network, MLP) else None
    if weights is None or not untouched(network) or not trains_plainly(weights, optimizer.parameters):
        return None
    vectors = rows.obs.dim() == 2 and rows.action.dim() == 1 and rows.action.dtype is torch.int64
    return weights if vectors and len(batch) > 0 and not rows.obs.requires_grad else None


@torch.no_grad()
def _step(agent: DQN, batch: Minibatch, weights: Weights) -> dict[str, Tensor] | None:
    """The step; None, and nothing done, where the gradient is not finite.

    ∂L/∂Q(s, a) = e / B, with the error e = Q(s, a) - y, which the Huber loss cuts to ±1.
    """
    network, optimizer, count = agent.q, agent.optimizer, len(batch)
    assert isinstance(network, MLP) and isinstance(optimizer, FlatAdam)
    *seen, values = forward_pass(batch.rows.obs, network.activation, weights)
    q, target = values.gather(1, batch.rows.action[:, None])[:, 0], agent.target_of(batch)
    if q.dtype is not target.dtype or q.shape != target.shape:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        error = q.numpy() - target.numpy()
        square = np.vdot(error, error)
    if not math.isfinite(square):
        return None
    cut, loss = error, square
    if agent.config.huber:
        cut = np.minimum(np.maximum(error, -1.0), 1.0)
        loss = np.vdot(cut, 2.0 * error - cut)               # e² where |e| ≤ 1, else 2|e| - 1
    slope = torch.zeros_like(values).scatter_(1, batch.rows.action[:, None], torch.from_numpy(cut / count)[:, None])
    optimizer.clear_gradient()
    backward_pass(slope, seen, weights, network.activation, optimizer.views)
    metrics = {"td_loss": torch.tensor(0.5 * loss / count), "q": q.mean()}
    return metrics | {"grad_norm": optimizer.descend(agent.config.max_grad_norm)}
