"""REINFORCE, REINFORCE with a learned baseline, A2C and PPO as four updates that can be compared
line by line.

    reinforce(policy, optimizer, data, gamma=0.99)
    reinforce_with_baseline(policy, optimizer, data, gamma=0.99)
    a2c(policy, optimizer, data, gamma=0.99, gae_lambda=1.0)
    ppo(policy, optimizer, data, gamma=0.99, gae_lambda=0.95, clip=0.2, epochs=4,
        batch_size=256, rng=rng)

Each changes the weights as the library's algorithm of that name does, on the same data and with the
same optimiser. Left out is what the library's have beside that: the entropy bonus, schedules,
running statistics, sequence models, and the numbers for the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from numpy.random import Generator
from torch import Tensor, nn

from rlbook.data.rollout import Rollout
from rlbook.functional.advantages import gae, normalize
from rlbook.functional.policy_losses import clipped_surrogate_loss, policy_gradient_loss
from rlbook.functional.returns import discounted_returns
from rlbook.functional.value_losses import squared_value_loss
from rlbook.networks.distributions import Categorical
from rlbook.networks.optimizer import Optimizer

MAX_GRAD_NORM = 0.5
"""The gradient's L2 norm is clipped to this."""


@dataclass(frozen=True)
class LadderNetworks:
    """π and V, for discrete actions."""

    actor: nn.Module  # [..., O] → [..., A], logits
    critic: nn.Module  # [..., O] → [..., 1], in reward units

    def log_prob(self, obs: Tensor, action: Tensor) -> Tensor:
        """log π(a|s), in nats: [..., O] and [...] → [...]."""
        return Categorical(self.actor(obs)).log_prob(action)

    def value(self, obs: Tensor) -> Tensor:
        """V(s), in reward units: [..., O] → [...]."""
        return self.critic(obs).squeeze(-1)


@dataclass(frozen=True)
class LadderRollout:
    """T steps of N environments, as tensors [T, N, ...]."""

    obs: Tensor
    action: Tensor
    log_prob: Tensor  # log π(a|s) when the action was drawn, in nats
    reward: Tensor  # in reward units
    next_obs: Tensor  # what was seen after the step, also where the episode ended there
    terminated: Tensor
    truncated: Tensor
    valid: Tensor  # false where an environment waits for the others to end their episodes

    @classmethod
    def from_rollout(cls, rollout: Rollout) -> LadderRollout:
        """The data that an agent has collected."""
        return cls(**{field.name: rollout.tensor(field.name) for field in fields(cls)})


def reinforce(
    policy: LadderNetworks, optimizer: Optimizer, data: LadderRollout, *, gamma: float
) -> None:
    """One gradient step on whole episodes: each action's score is weighted by the return that
    followed it."""
    ends = data.terminated, data.truncated
    returns = discounted_returns(data.reward, *ends, gamma, valid=data.valid)
    advantage = returns
    log_prob = policy.log_prob(data.obs, data.action)
    loss = policy_gradient_loss(log_prob, advantage, mask=data.valid, average=per_episode)
    optimizer.step(loss, MAX_GRAD_NORM)


def reinforce_with_baseline(
    policy: LadderNetworks, optimizer: Optimizer, data: LadderRollout, *, gamma: float
) -> None:
    """As `reinforce`, with the learned value of each state subtracted from the return."""
    ends = data.terminated, data.truncated
    returns = discounted_returns(data.reward, *ends, gamma, valid=data.valid)
    value = policy.value(data.obs)
    advantage = returns - value.detach()
    log_prob = policy.log_prob(data.obs, data.action)
    loss = policy_gradient_loss(log_prob, advantage, mask=data.valid, average=per_episode)
    loss += 0.5 * squared_value_loss(value, returns, mask=data.valid, average=per_episode)
    optimizer.step(loss, MAX_GRAD_NORM)


def a2c(
    policy: LadderNetworks,
    optimizer: Optimizer,
    data: LadderRollout,
    *,
    gamma: float,
    gae_lambda: float,
) -> None:
    """One gradient step on T steps of each environment: V replaces the rest of the return."""
    ends = data.terminated, data.truncated
    value, next_value = policy.value(data.obs), policy.value(data.next_obs)
    advantage = gae(data.reward, value, next_value, *ends, gamma=gamma, gae_lambda=gae_lambda)
    target = advantage + value.detach()
    log_prob = policy.log_prob(data.obs, data.action)
    loss = policy_gradient_loss(log_prob, advantage)
    loss += 0.5 * squared_value_loss(value, target)
    optimizer.step(loss, MAX_GRAD_NORM)


def ppo(
    policy: LadderNetworks,
    optimizer: Optimizer,
    data: LadderRollout,
    *,
    gamma: float,
    gae_lambda: float,
    clip: float,
    epochs: int,
    batch_size: int,
    rng: Generator,
) -> None:
    """Several gradient steps on the same data; ratios that have moved too far contribute no
    gradient."""
    ends = data.terminated, data.truncated
    value, next_value = policy.value(data.obs), policy.value(data.next_obs)
    advantage = gae(data.reward, value, next_value, *ends, gamma=gamma, gae_lambda=gae_lambda)
    target = advantage + value.detach()
    for rows in minibatches(data.action.shape, epochs, batch_size, rng):
        value = policy.value(data.obs[rows])
        log_prob = policy.log_prob(data.obs[rows], data.action[rows])
        weight = normalize(advantage[rows])
        loss = clipped_surrogate_loss(log_prob, data.log_prob[rows], weight, clip=clip)
        loss += 0.5 * squared_value_loss(value, target[rows])
        optimizer.step(loss, MAX_GRAD_NORM)


def per_episode(valid: Tensor) -> Tensor:
    """The sum over an episode's steps and the mean over episodes: [T, N] → weights [T, N]."""
    return valid / valid.shape[1]


def minibatches(
    shape: torch.Size, epochs: int, batch_size: int, rng: Generator
) -> Iterator[tuple[Tensor, ...]]:
    """The indices of `batch_size` steps of a rollout [T, N]; each step once per epoch, shuffled."""
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(shape.numel()))
        for rows in order.split(batch_size):
            yield torch.unravel_index(rows, shape)
