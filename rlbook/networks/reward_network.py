"""The network of a reward model: one number per step. An episode's score is the sum over its steps.

Shapes: N environments, T time, B rows, O observation, A action components.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.data.rollout import Batch
from rlbook.networks.mlp import MLP

Seen = Tensor | dict[str, Tensor]
"""Observations [N, ...], or a text's parts."""


class RewardNetwork(nn.Module):
    """A learned reward, for recorded episodes and for single steps."""

    idle: Mapping[str, str] = {}
    """Hyper-parameters that have no effect on this network, each with the reason."""
    rebuilt: bool = False
    """See `Policy`."""
    at_the_end: ClassVar[bool] = False
    """Whether it scores whole episodes, so that every step but the last has reward 0."""

    @abstractmethod
    def rewards(self, batch: Batch) -> Tensor:
        """The reward of each step of recorded episodes, shaped like `batch.mask`.

        What is masked may be anything.
        """

    @abstractmethod
    def step_rewards(self, obs: Seen, action: Tensor, next_obs: Seen, done: Tensor) -> Tensor:
        """The rewards [N] of N steps; `done` [N] bool marks steps that ended their episode."""


class Ensemble(RewardNetwork):
    """Several independently initialised and trained networks; the reward is their mean.

    Source: Christiano et al. 2017, arXiv:1706.03741, section 2.2.3.
    """

    def __init__(self, members: Sequence[RewardNetwork]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.idle, self.rebuilt = members[0].idle, members[0].rebuilt

    def rewards(self, batch: Batch) -> Tensor:
        return torch.stack([member.rewards(batch) for member in members_of(self)]).mean(0)

    def step_rewards(self, obs: Seen, action: Tensor, next_obs: Seen, done: Tensor) -> Tensor:
        rewards = [member.step_rewards(obs, action, next_obs, done) for member in members_of(self)]
        return torch.stack(rewards).mean(0)


def members_of(network: nn.Module) -> list[RewardNetwork]:
    """The members of an ensemble; a single network is its own only member."""
    found = network.members if isinstance(network, Ensemble) else [network]
    return cast(list[RewardNetwork], list(found))


class StepReward(RewardNetwork):
    """r(s, a): an MLP over the observation [O] and the action, one-hot where it is discrete."""

    def __init__(
        self,
        observation_size: int,
        action_space: spaces.Space,
        generator: torch.Generator,
        hidden_sizes: tuple[int, ...],
    ) -> None:
        super().__init__()
        discrete = isinstance(action_space, spaces.Discrete)
        self.num_actions = int(action_space.n) if discrete else None  # type: ignore[attr-defined]
        action_size = self.num_actions or math.prod(action_space.shape or ())
        self.network = MLP((observation_size + action_size, *hidden_sizes, 1), generator)

    def rewards(self, batch: Batch) -> Tensor:
        return self(batch.obs, batch.action)

    def step_rewards(self, obs: Tensor, action: Tensor, next_obs: Tensor, done: Tensor) -> Tensor:
        return self(obs, action)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """[..., O] and [...] or [..., A] → [...]."""
        return self.network(self.input(obs, action)).squeeze(-1)

    def score(self, x: Tensor) -> Tensor:
        """The reward of an `input` [..., O + A] → [...]."""
        return self.network(x).squeeze(-1)

    def input(self, obs: Tensor, action: Tensor) -> Tensor:
        """The MLP's input: observation and action, [..., O + A]."""
        if self.num_actions is not None:
            action = F.one_hot(action, self.num_actions)
        return torch.cat([obs, action.to(obs.dtype)], dim=-1)
