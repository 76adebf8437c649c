"""Deep deterministic policy gradient (DDPG): Q-learning for actions that are numbers, with a
network that says which action is the best.

    act by μ(s) + ε, store (s, a, r, s', terminated); the first actions are uniform
    at every step, on a random minibatch
        y = r                                    where terminated, else
        y = r + γ Q⁻(s', μ⁻(s'))
        minimise  ½ mean (Q(s, a_stored) - y)²
        minimise  -mean Q(s, μ(s))               over the policy
        Q⁻ ← Q⁻ + τ (Q - Q⁻),   μ⁻ ← μ⁻ + τ (μ - μ⁻)

DQN takes the maximum of Q over a list of actions. In a box there is no list; so the policy μ climbs
Q by its gradient in the action, and stands where the maximum would be.

Source: Lillicrap et al. 2016, arXiv:1509.02971, algorithm 1; the policy's gradient: Silver et al.
2014, eq. 9. Differences: normal noise in place of an Ornstein-Uhlenbeck process (`hold` makes it
last); no batch normalisation, no weight decay, and torch's first weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlbook.algorithms.policy.deterministic_agent import DeterministicAgent, DeterministicConfig
from rlbook.algorithms.policy.replay_agent import Minibatch
from rlbook.functional.policy_losses import deterministic_policy_loss
from rlbook.functional.returns import td_target
from rlbook.functional.value_losses import squared_value_loss
from rlbook.policies.critics import follow
from rlbook.policies.optimizer import LossOutput


@dataclass(frozen=True)
class DDPGConfig(DeterministicConfig):
    """Hyper-parameters of DDPG: those of every replayed policy without probabilities."""


class DDPG(DeterministicAgent):
    """Deep deterministic policy gradient; see the module docstring."""

    config: DDPGConfig
    Config = DDPGConfig
    num_critics = 1
    METRICS = {
        "critic_loss": "½ mean (Q - y)² of the last minibatch, in squared reward units",
        "q": "mean Q(s, a) there, in reward units",
        "policy_loss": "-mean Q(s, μ(s)) there, in reward units",
    }

    def train_on(self, batch: Minibatch) -> dict[str, Tensor]:
        """A step down the critic's loss, one down the policy's, and the targets behind."""
        critic = self.critic_loss(batch)
        self.critic_optimizer.step(critic.loss)
        actor = self.actor_loss(batch)
        self.actor_optimizer.step(actor.loss)
        follow(self.target, self.critics, self.config.tau)
        follow(self.actor_target, self.actor, self.config.tau)
        return critic.metrics | actor.metrics

    def critic_loss(self, batch: Minibatch) -> LossOutput:
        """How far Q(s, a) is from its target."""
        rows = batch.rows
        with torch.no_grad():
            next_q = self.target(rows.next_obs, self.actor_target(rows.next_obs).tanh())[0]
        target = td_target(rows.reward, rows.terminated, next_q, self.config.gamma)        # [B]
        q = self.critics.evaluate(rows.obs, rows.action)[0]                                                         # [B]
        loss = squared_value_loss(q, target)
        return LossOutput(loss, {"critic_loss": loss.detach(), "q": q.detach().mean()})

    def actor_loss(self, batch: Minibatch) -> LossOutput:
        """Minus what the critic says of the policy's actions."""
        obs = batch.rows.obs
        loss = deterministic_policy_loss(self.critics(obs, self.actor(obs).tanh())[0])
        return LossOutput(loss, {"policy_loss": loss.detach()})
