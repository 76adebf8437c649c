"""A gradient step of DQN with the gradient of the whole loss written out: no graph is recorded."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from rlbook.algorithms.value.dqn import DQNConfig, dqn_target
from rlbook.data.rainbow_replay import RainbowMinibatch
from rlbook.fast.flat_adam import FlatAdam
from rlbook.fast.mlp import Weights, backward_pass, forward_pass, weights_of
from rlbook.fast.modules import is_unmodified, trains_plainly
from rlbook.networks.mlp import MLP
from rlbook.networks.optimizer import Optimizer
from rlbook.networks.values import ActionValue


@torch.no_grad()
def step(
    optimizer: Optimizer,
    batch: RainbowMinibatch,
    max_grad_norm: float | None,
    q: ActionValue,
    *,
    config: DQNConfig,
    noise: Generator | None = None,
) -> dict[str, Tensor] | None:
    """A gradient step on `dqn_loss`, for an ordinary MLP on the CPU with equally weighted rows;
    None, without any change, if the network or the rows require more than this, or the gradient is
    not finite.

    ∂L/∂Q(s, a) = e / B, with the error e = Q(s, a) - y, which the Huber loss cuts to ±1.
    """
    weights = _weights(optimizer, batch, q, config)
    if weights is None:
        return None
    assert isinstance(q, MLP) and isinstance(optimizer, FlatAdam)
    count, chosen = len(batch), batch.rows.action[:, None]
    *seen, values = forward_pass(batch.rows.obs, q.activation, weights)
    value, target = values.gather(1, chosen)[:, 0], dqn_target(q, batch, config=config, noise=noise)
    if value.dtype is not target.dtype or value.shape != target.shape:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        error = value.numpy() - target.numpy()
        square = np.vdot(error, error)
    if not math.isfinite(square):
        return None
    cut, loss = error, square
    if config.huber:
        cut = np.minimum(np.maximum(error, -1.0), 1.0)
        loss = np.vdot(cut, 2.0 * error - cut)  # e² where |e| ≤ 1, else 2|e| - 1
    slope = torch.zeros_like(values).scatter_(1, chosen, torch.from_numpy(cut / count)[:, None])
    optimizer.clear_gradient()
    backward_pass(slope, seen, weights, q.activation, optimizer.views)
    metrics = {"td_loss": torch.tensor(0.5 * loss / count), "q": value.mean()}
    return metrics | {"grad_norm": optimizer.descend(max_grad_norm)}


def _weights(
    optimizer: Optimizer, batch: RainbowMinibatch, q: ActionValue, config: DQNConfig
) -> Weights | None:
    """The network's weights, or None if it, its parameters or the rows require more."""
    if type(optimizer) is not FlatAdam or config.prioritized or config.recurrent is not None:
        return None
    rows = batch.rows
    weights = weights_of(q, rows.obs) if isinstance(q, MLP) else None
    if weights is None or not is_unmodified(q) or not trains_plainly(weights, optimizer.parameters):
        return None
    vectors = rows.obs.dim() == 2 and rows.action.dim() == 1 and rows.action.dtype is torch.int64
    return weights if vectors and len(batch) > 0 and not rows.obs.requires_grad else None
