"""What DDPG and TD3 share: a deterministic policy, μ(s) = tanh of a network, and a slowly updated
target copy of it. To explore, the agent adds noise to the action.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import nn

from rlbook.agent import Parts
from rlbook.algorithms.policy.off_policy.replay_agent import ReplayAgent, add_noise
from rlbook.algorithms.policy.off_policy.replay_config import ReplayConfig
from rlbook.checks import non_negative
from rlbook.functional.schedules import Schedule
from rlbook.networks.cnn import FeedForward
from rlbook.networks.critics import Critics
from rlbook.networks.policy import as_array
from rlbook.networks.target_network import polyak_update


@dataclass(frozen=True)
class DeterministicConfig(ReplayConfig):
    learning_rate: float | Schedule = 1e-3  # Adam's step size, > 0
    # σ of the exploration noise, for actions scaled to [-1, 1]
    exploration_noise: Annotated[float, non_negative] = 0.1


class DeterministicNetworks(NamedTuple):
    """The networks and optimisers that an update changes."""

    actor: FeedForward
    critics: Critics
    target: Critics
    actor_target: FeedForward


def update_targets(networks: DeterministicNetworks, tau: float) -> None:
    """Moves the critics' and the policy's target networks by a fraction τ towards the online
    networks."""
    polyak_update(networks.target, networks.critics, tau)
    polyak_update(networks.actor_target, networks.actor, tau)


class DeterministicAgent(ReplayAgent):
    """μ, its target μ⁻, K critics and their targets; see the module docstring."""

    budget = {"steps": 50_000}
    actions = "scaled box"
    num_critics: ClassVar[int]
    """K, the number of critics."""

    def __init__(
        self, env: VectorEnv, config: DeterministicConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts, critics=self.num_critics)
        self.config: DeterministicConfig = config
        self.actor_target = copy.deepcopy(self.actor).requires_grad_(False)
        self.critic_optimizer = self.make_optimizer(self.critics)
        self.actor_optimizer = self.make_optimizer(self.actor)
        networks = DeterministicNetworks(self.actor, self.critics, self.target, self.actor_target)
        self.trained_networks = networks

    @torch.inference_mode()
    def choose(
        self,
        observation: NDArray[np.float32],
        uniform: NDArray[np.float64] | None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> np.ndarray:
        action = as_array(self.actor(torch.from_numpy(observation)).tanh())
        return add_noise(action, uniform, self.config.exploration_noise)

    def networks(self) -> dict[str, nn.Module]:
        return self.trained_networks._asdict()
