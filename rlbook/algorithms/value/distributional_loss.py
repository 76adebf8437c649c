"""The loss of distributional DQN, which learns the distribution of returns instead of its mean.

    log p(z | s, a) for K atoms z;   the target shifts those of (s', a'), z → r + γ z, and splits
    each between its neighbouring atoms;   minimise  mean KL(target ‖ p)

Source: Bellemare et al. 2017 (C51), arXiv:1707.06887, algorithm 1.
"""

from __future__ import annotations

import torch
from numpy.random import Generator

from rlbook.algorithms.value.dqn_config import DQNConfig
from rlbook.data.rainbow_replay import RainbowMinibatch
from rlbook.functional.averages import weighted_sum
from rlbook.functional.rainbow import (
    best_next_distribution,
    categorical_divergence,
    categorical_mean,
    categorical_projection,
    clipped_mass,
)
from rlbook.networks.optimizer import LossOutput
from rlbook.networks.q_network import QNetwork, predict
from rlbook.networks.values import ActionValue


def distributional_loss(
    q: ActionValue, batch: RainbowMinibatch, *, config: DQNConfig, noise: Generator | None = None
) -> LossOutput:
    """The divergence of (s, a)'s return distribution from its target, in nats; lower is better.

    Args:
        q: a `QNetwork` with atoms.
        batch: B rows, with the log-probabilities of the target network.
        config: hyper-parameters.
        noise: of the weights; None where they have none.
    """
    assert isinstance(q, QNetwork)
    rows, support = batch.rows, q.support
    every = torch.arange(len(batch), device=rows.action.device)
    log_prob = predict(q, rows.obs, noise)[every, rows.action]  # [B, K]
    with torch.no_grad():
        chooser = predict(q, rows.next_obs, noise) if config.double else batch.next_q
    chooser = categorical_mean(chooser, support)  # [B, A]
    prob = best_next_distribution(batch.next_q, chooser, rows.next_action_mask)  # [B, K]
    gamma = config.gamma if batch.discount is None else batch.discount
    successor = prob, rows.reward, rows.terminated, gamma, support
    error = categorical_divergence(log_prob, categorical_projection(*successor))  # [B]
    loss, value = weighted_sum(error, average=batch.average), categorical_mean(log_prob, support)
    metrics = {"td_loss": loss.detach(), "q": value.detach().mean()}
    metrics["clipped_mass"] = clipped_mass(*successor)
    if config.prioritized:
        metrics["error"] = error.detach()  # [B]
    return LossOutput(loss, metrics)
