"""Twin delayed DDPG (TD3): DDPG with three remedies against overestimated values: twin critics,
noise in the target action, and delayed policy updates.

    act by μ(s) + ε, store (s, a, r, s', terminated); the first actions are uniform
    at every step, on a random minibatch
        a' = clip(μ⁻(s') + clip(ε', -c, c), -1, 1)
        y = r                                    where terminated, else
        y = r + γ min_k Q⁻_k(s', a')
        minimise  Σ_k ½ mean (Q_k(s, a_stored) - y)²
        every d-th time
            minimise  -mean Q_1(s, μ(s))         over the policy
            Q⁻_k ← Q⁻_k + τ (Q_k - Q⁻_k),   μ⁻ ← μ⁻ + τ (μ - μ⁻)

Twin: the target uses the smaller of two critics. Delayed: the policy is updated less often than the
critics. And noise smooths the target over actions, so that no narrow peak of Q can be exploited.

Source: Fujimoto et al. 2018, arXiv:1802.09477, algorithm 1. Difference: the losses of the critics
have the factor ½.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from rlbook.algorithms.policy.off_policy.ddpg import ddpg_actor_loss
from rlbook.algorithms.policy.off_policy.deterministic_agent import (
    DeterministicAgent,
    DeterministicConfig,
    DeterministicNetworks,
    update_targets,
)
from rlbook.algorithms.policy.off_policy.replay_agent import Minibatch
from rlbook.checks import check_idle, non_negative, positive_int
from rlbook.functional.returns import td_target
from rlbook.functional.value_losses import smoothed_action, squared_value_loss
from rlbook.networks.optimizer import LossOutput, Optimizer


def td3_update(
    networks: DeterministicNetworks,
    critic_optimizer: Optimizer,
    actor_optimizer: Optimizer,
    batch: Minibatch,
    config: TD3Config,
    updates: int,
    *,
    critic_loss: Callable[..., LossOutput] | None = None,
    actor_loss: Callable[..., LossOutput] | None = None,
) -> dict[str, Tensor]:
    """A gradient step on the critics' loss; every d-th time also one on the policy's, and one
    update of the target networks.

    Args:
        networks, critic_optimizer, actor_optimizer: changed in place.
        batch: B rows.
        config: hyper-parameters.
        updates: how many there were, this one included.
        critic_loss, actor_loss: of the rows; None is `td3_critic_loss` and `ddpg_actor_loss`.
    """
    critics = (critic_loss or td3_critic_loss)(networks, batch, config=config)
    critic_optimizer.step(critics.loss)
    if updates % config.policy_delay:
        return critics.metrics
    actor = (actor_loss or ddpg_actor_loss)(networks, batch, config=config)
    actor_optimizer.step(actor.loss)
    update_targets(networks, config.tau)
    return critics.metrics | actor.metrics


def td3_critic_loss(
    networks: DeterministicNetworks, batch: Minibatch, *, config: TD3Config
) -> LossOutput:
    """The error of both critics against their target; lower is better."""
    rows = batch.rows
    with torch.no_grad():
        noise = config.target_noise * batch.next_noise
        action = networks.actor_target(rows.next_obs).tanh()
        action = smoothed_action(action, noise, config.target_noise_clip)  # [B, A]
        next_q = networks.target(rows.next_obs, action).amin(0)  # [B]
    target = td_target(rows.reward, rows.terminated, next_q, config.gamma)  # [B]
    q = networks.critics(rows.obs, rows.action)  # [2, B]
    loss = torch.stack([squared_value_loss(each, target) for each in q]).sum()
    return LossOutput(loss, {"critic_loss": loss.detach(), "q": q.detach().mean()})


@dataclass(frozen=True)
class TD3Config(DeterministicConfig):
    target_noise: Annotated[float, non_negative] = 0.2  # σ of the noise in the target's action
    target_noise_clip: Annotated[float, non_negative] = 0.5  # c, clip range ±c of target_noise
    # d, critic gradient steps per policy gradient step
    policy_delay: Annotated[int, positive_int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_noise == 0.0:
            check_idle(self, "target_noise_clip", "without target_noise")


class TD3(DeterministicAgent):
    """Twin delayed DDPG; see the module docstring."""

    config: TD3Config
    Config = TD3Config
    num_critics = 2
    critic_loss = staticmethod(td3_critic_loss)
    actor_loss = staticmethod(ddpg_actor_loss)
    METRICS = {
        "critic_loss": "Σ_k ½ mean (Q_k - y)² of the last minibatch, in squared reward units",
        "q": "mean Q(s, a) over that minibatch and the critics, in reward units",
        "policy_loss": "-mean Q_1(s, μ(s)) in the last policy update, in reward units",
    }

    def train_on(self, batch: Minibatch) -> dict[str, Tensor]:
        return td3_update(
            self.trained_networks,
            self.critic_optimizer,
            self.actor_optimizer,
            batch,
            self.config,
            self.updates,
            critic_loss=self.critic_loss,
            actor_loss=self.actor_loss,
        )
