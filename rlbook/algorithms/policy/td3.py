"""Twin delayed DDPG (TD3): DDPG with three repairs of its critic, which is too high where the
policy looks for its maximum.

    act by μ(s) + ε, store (s, a, r, s', terminated); the first actions are uniform
    at every step, on a random minibatch
        a' = clip(μ⁻(s') + clip(ε', -c, c), -1, 1)
        y = r                                    where terminated, else
        y = r + γ min_k Q⁻_k(s', a')
        minimise  Σ_k ½ mean (Q_k(s, a_stored) - y)²
        every d-th time
            minimise  -mean Q_1(s, μ(s))         over the policy
            Q⁻_k ← Q⁻_k + τ (Q_k - Q⁻_k),   μ⁻ ← μ⁻ + τ (μ - μ⁻)

Twin: of two critics the lower one is believed. Delayed: the policy waits until the critics have
settled. And the target's action is blurred, so that no narrow peak of Q can be exploited.

Source: Fujimoto et al. 2018, arXiv:1802.09477, algorithm 1. Difference: the losses of the critics
have the factor ½.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from rlbook.algorithms.policy.deterministic_agent import DeterministicAgent, DeterministicConfig
from rlbook.algorithms.policy.replay_agent import Minibatch
from rlbook.checks import non_negative, positive_int
from rlbook.functional.policy_losses import deterministic_policy_loss
from rlbook.functional.returns import td_target
from rlbook.functional.value_losses import smoothed_action, squared_value_loss
from rlbook.policies.critics import follow
from rlbook.policies.optimizer import LossOutput


@dataclass(frozen=True)
class TD3Config(DeterministicConfig):
    target_noise: Annotated[float, non_negative] = 0.2  # σ of the noise in the target's action
    target_noise_clip: Annotated[float, non_negative] = 0.5  # c, how far that noise may reach
    # d, gradient steps of the critics for one of the policy
    policy_delay: Annotated[int, positive_int] = 2


class TD3(DeterministicAgent):
    """Twin delayed DDPG; see the module docstring."""

    config: TD3Config
    Config = TD3Config
    num_critics = 2
    METRICS = {
        "critic_loss": "Σ_k ½ mean (Q_k - y)² of the last minibatch, in squared reward units",
        "q": "mean of the critics' Q(s, a) there, in reward units",
        "policy_loss": "-mean Q_1(s, μ(s)) where the policy was trained, in reward units",
    }

    def train_on(self, batch: Minibatch) -> dict[str, Tensor]:
        """A step down the critics' loss; every d-th time one down the policy's, and the targets
        behind."""
        critics = self.critic_loss(batch)
        self.critic_optimizer.step(critics.loss)
        if self.updates % self.config.policy_delay:
            return critics.metrics
        actor = self.actor_loss(batch)
        self.actor_optimizer.step(actor.loss)
        follow(self.target, self.critics, self.config.tau)
        follow(self.actor_target, self.actor, self.config.tau)
        return critics.metrics | actor.metrics

    def critic_loss(self, batch: Minibatch) -> LossOutput:
        """How far both critics are from their target."""
        rows, config = batch.rows, self.config
        with torch.no_grad():
            noise = config.target_noise * batch.next_noise
            action = self.actor_target(rows.next_obs).tanh()
            action = smoothed_action(action, noise, config.target_noise_clip)          # [B, A]
            next_q = self.target(rows.next_obs, action).amin(0)                        # [B]
        target = td_target(rows.reward, rows.terminated, next_q, config.gamma)         # [B]
        q = self.critics.evaluate(rows.obs, rows.action)                                                            # [2, B]
        loss = torch.stack([squared_value_loss(each, target) for each in q]).sum()
        return LossOutput(loss, {"critic_loss": loss.detach(), "q": q.detach().mean()})

    def actor_loss(self, batch: Minibatch) -> LossOutput:
        """Minus what the first critic says of the policy's actions."""
        obs = batch.rows.obs
        loss = deterministic_policy_loss(self.critics(obs, self.actor(obs).tanh())[0])
        return LossOutput(loss, {"policy_loss": loss.detach()})
