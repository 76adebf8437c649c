"""Deep deterministic policy gradient (DDPG): Q-learning for continuous actions, with a policy
network trained to output the action that maximises Q.

    act by μ(s) + ε, store (s, a, r, s', terminated); the first actions are uniform
    at every step, on a random minibatch
        y = r                                    where terminated, else
        y = r + γ Q⁻(s', μ⁻(s'))
        minimise  ½ mean (Q(s, a_stored) - y)²
        minimise  -mean Q(s, μ(s))               over the policy
        Q⁻ ← Q⁻ + τ (Q - Q⁻),   μ⁻ ← μ⁻ + τ (μ - μ⁻)

DQN maximises Q over a list of actions. A box of continuous actions has no such list; instead the
policy μ ascends the gradient of Q with respect to the action, and replaces the maximisation.

Source: Lillicrap et al. 2016, arXiv:1509.02971, algorithm 1; the policy's gradient: Silver et al.
2014, eq. 9. Differences: normal noise instead of an Ornstein-Uhlenbeck process (`hold` repeats
it for several steps); no batch normalisation, no weight decay, and torch's initialisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rlbook.algorithms.policy.off_policy.deterministic_agent import (
    DeterministicAgent,
    DeterministicConfig,
    DeterministicNetworks,
    update_targets,
)
from rlbook.algorithms.policy.off_policy.replay_agent import Minibatch
from rlbook.functional.policy_losses import deterministic_policy_loss
from rlbook.functional.returns import td_target
from rlbook.functional.value_losses import squared_value_loss
from rlbook.networks.optimizer import LossOutput, Optimizer


def ddpg_update(
    networks: DeterministicNetworks,
    critic_optimizer: Optimizer,
    actor_optimizer: Optimizer,
    batch: Minibatch,
    config: DDPGConfig,
    *,
    critic_loss: Callable[..., LossOutput] | None = None,
    actor_loss: Callable[..., LossOutput] | None = None,
) -> dict[str, Tensor]:
    """A gradient step on the critic's loss, one on the policy's, and one update of the target
    networks.

    Args:
        networks, critic_optimizer, actor_optimizer: changed in place.
        batch: B rows.
        config: hyper-parameters.
        critic_loss, actor_loss: of the rows; None is `ddpg_critic_loss` and `ddpg_actor_loss`.
    """
    critic = (critic_loss or ddpg_critic_loss)(networks, batch, config=config)
    critic_optimizer.step(critic.loss)
    actor = (actor_loss or ddpg_actor_loss)(networks, batch, config=config)
    actor_optimizer.step(actor.loss)
    update_targets(networks, config.tau)
    return critic.metrics | actor.metrics


def ddpg_critic_loss(
    networks: DeterministicNetworks, batch: Minibatch, *, config: DeterministicConfig
) -> LossOutput:
    """The error of Q(s, a) against its target; lower is better."""
    rows = batch.rows
    with torch.no_grad():
        next_action = networks.actor_target(rows.next_obs).tanh()  # [B, A]
        next_q = networks.target(rows.next_obs, next_action)[0]  # [B]
    target = td_target(rows.reward, rows.terminated, next_q, config.gamma)  # [B]
    q = networks.critics(rows.obs, rows.action)[0]  # [B]
    loss = squared_value_loss(q, target)
    return LossOutput(loss, {"critic_loss": loss.detach(), "q": q.detach().mean()})


def ddpg_actor_loss(
    networks: DeterministicNetworks, batch: Minibatch, *, config: DeterministicConfig
) -> LossOutput:
    """Minus the first critic's value of the policy's actions; lower is better."""
    obs = batch.rows.obs
    q = networks.critics(obs, networks.actor(obs).tanh())[0]  # [B]
    loss = deterministic_policy_loss(q)
    return LossOutput(loss, {"policy_loss": loss.detach()})


@dataclass(frozen=True)
class DDPGConfig(DeterministicConfig):
    """Hyper-parameters of DDPG: those of every off-policy agent with a deterministic policy."""


class DDPG(DeterministicAgent):
    """Deep deterministic policy gradient; see the module docstring."""

    config: DDPGConfig
    Config = DDPGConfig
    num_critics = 1
    critic_loss = staticmethod(ddpg_critic_loss)
    actor_loss = staticmethod(ddpg_actor_loss)
    METRICS = {
        "critic_loss": "½ mean (Q - y)² of the last minibatch, in squared reward units",
        "q": "mean Q(s, a) over that minibatch, in reward units",
        "policy_loss": "-mean Q(s, μ(s)) over that minibatch, in reward units",
    }

    def train_on(self, batch: Minibatch) -> dict[str, Tensor]:
        return ddpg_update(
            self.trained_networks,
            self.critic_optimizer,
            self.actor_optimizer,
            batch,
            self.config,
            critic_loss=self.critic_loss,
            actor_loss=self.actor_loss,
        )
