"""What SAC, TD3 and DDPG share: a policy and critics that learn from a replay buffer.

A box of actions is [-1, 1] for the agent, whatever its bounds (`rlbook.interaction.spaces`), so
noise and entropy have the same meaning everywhere. The first steps are uniform in it.
"""

from __future__ import annotations

import copy
import math
import operator
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from torch import Tensor, nn

from rlbook import checks
from rlbook.agent import Agent, Metrics, Parts, State, Step
from rlbook.algorithms.policy.off_policy.replay_config import ReplayConfig
from rlbook.data.frame_store import frame_store
from rlbook.data.replay import ReplayBuffer, Transitions
from rlbook.functional.schedules import parse_schedule
from rlbook.interaction.action_masks import nth_allowed
from rlbook.interaction.process_group import ProcessGroup
from rlbook.networks.build import build_layers, plain_spec
from rlbook.networks.critics import Critics
from rlbook.networks.data_parallel import split_step
from rlbook.networks.mlp import action_size
from rlbook.networks.optimizer import Group, Optimizer, adam
from rlbook.networks.policy import as_array
from rlbook.seeding import rng_for, rng_state, set_rng_state, torch_generator


@dataclass(frozen=True)
class Minibatch:
    """B stored transitions, and the noise used to sample actions in their states."""

    rows: Transitions
    noise: Tensor  # [B, A] standard normal, for s; empty where actions are discrete
    next_noise: Tensor  # [B, A], for s'

    def __len__(self) -> int:
        return len(self.rows.reward)

    def __getitem__(self, part: slice) -> Minibatch:
        rows = self.rows.map_fields(operator.itemgetter(part))
        return Minibatch(rows, self.noise[part], self.next_noise[part])


class ReplayAgent(Agent):
    """An actor and K critics; see the module docstring.

    Args:
        env: its spaces are read.
        config: hyper-parameters.
        seed: of all random numbers.
        parts: the device.
        critics: K.
        outputs: of the actor, for each action or component of one.
    """

    batched = True
    observations = "network"
    uses = ("model", "device", "replay_folder")
    splits: ClassVar[bool] = True
    """Whether several processes each backpropagate their own rows of a minibatch."""
    critic_optimizer: Optimizer
    actor_optimizer: Optimizer

    def __init__(
        self,
        env: VectorEnv,
        config: ReplayConfig,
        seed: int,
        parts: Parts,
        *,
        critics: int,
        outputs: int = 1,
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: ReplayConfig = config
        self.learning_rate = parse_schedule(config.learning_rate)
        observations, actions = env.single_observation_space, env.single_action_space
        assert isinstance(observations, Box) and isinstance(actions, Discrete | Box)
        checks.check_buffer_size(config.buffer_size, env.num_envs)
        spec = plain_spec(parts.model, observations)
        self.discrete, self.num_actions = isinstance(actions, Discrete), action_size(actions)
        size, hidden_sizes = math.prod(observations.shape), tuple(config.hidden_sizes)
        generator = torch_generator(rng_for(seed, "initialisation"))
        layers = (*hidden_sizes, outputs * self.num_actions)
        actor = build_layers(observations, layers, generator, spec, config.activation)
        self.actor = actor.to(parts.device)
        shared = {"activation": config.activation, "network": spec.network}
        self.critics = Critics(
            observations, actions, generator, count=critics, hidden_sizes=hidden_sizes, **shared
        ).to(parts.device)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        frames = frame_store(env, config.buffer_size, parts.replay_folder)
        self.replay = ReplayBuffer(config.buffer_size, size, parts.device, frames=frames)
        self.exploration = rng_for(seed, "exploration")
        self.sampling = rng_for(seed, "minibatches")
        self.held = np.zeros((env.num_envs, 1 if self.discrete else self.num_actions))
        self.acted = self.steps = self.updates = 0

    def make_optimizer(self, network: nn.Module, *undecayed: nn.Module) -> Optimizer:
        """Adam for a network with the configured weight decay, and for modules without decay."""
        config = self.config
        groups = [Group([network], weight_decay=config.weight_decay), Group(undecayed)]
        return adam(groups, self.learning_rate(0.0), warmup_steps=config.warmup_steps)

    def act(
        self,
        observation: NDArray[np.float32],
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> np.ndarray:
        self.check_batch(observation)
        if not explore:
            return self.choose(observation, None, action_mask)
        rows = len(observation)  # an evaluation may play more episodes at once than training did
        if self.acted % self.config.hold == 0 or rows != len(self.held):
            self.held = self.exploration.random((rows, self.held.shape[1]))
        self.acted += 1
        if self.steps >= self.config.learning_starts:
            return self.choose(observation, self.held, action_mask)
        if self.discrete:
            most = self.num_actions if action_mask is None else action_mask.sum(axis=1)
            number = np.minimum(self.held[:, 0] * most, most - 1).astype(int)
            return nth_allowed(action_mask, number)
        return (2.0 * self.held - 1.0).astype(np.float32)

    @abstractmethod
    def choose(
        self,
        observation: NDArray[np.float32],
        uniform: NDArray[np.float64] | None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> np.ndarray:
        """The actions [N] or [N, A] in states [N, O] given noise in [0, 1); None: the greedy
        actions.

        Of discrete ones, those that `action_mask` [N, A] allows.
        """

    @torch.inference_mode()
    def value(self, observations: ArrayLike) -> NDArray[np.float32]:
        """The lowest Q of the greedy action: [N, ...] → [N], in reward units, without entropies."""
        seen = np.asarray(self.adapt_observations(observations), dtype=np.float32)
        action, obs = torch.from_numpy(self.choose(seen, None)), torch.from_numpy(seen)
        return as_array(self.critics(obs, action).amin(0))

    def learn(self, step: Step) -> Metrics:
        self.replay.add(step)
        before, self.steps = self.steps, self.steps + len(step.reward)
        every = self.config.train_every
        if self.steps <= self.config.learning_starts or self.steps // every == before // every:
            return {}
        return self.update()

    def update(self) -> Metrics:
        """`gradient_steps` minibatches; returns the diagnostics of the last one."""
        config, group, size = self.config, ProcessGroup.training, self.config.batch_size
        rate = self.learning_rate(self.progress)
        self.critic_optimizer.learning_rate = self.actor_optimizer.learning_rate = rate
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(config.matmul_precision)
        try:
            for _ in range(config.gradient_steps):
                rows = self.replay.rows_at(self.sampling.integers(self.replay.size, size=size))
                shape = (2, size, 0 if self.discrete else self.num_actions)
                noise = torch.from_numpy(self.sampling.standard_normal(shape, dtype=np.float32))
                batch = Minibatch(rows, *noise.to(self.parts.device))
                self.updates += 1
                metrics = (
                    self.train_on(batch)
                    if group is None or not self.splits
                    else split_step(group, self.train_on, batch)
                )
        finally:
            torch.set_float32_matmul_precision(precision)
        return {name: float(value) for name, value in metrics.items()}

    @abstractmethod
    def train_on(self, batch: Minibatch) -> dict[str, Tensor]:
        """One gradient step on a minibatch. Returns its diagnostics."""

    @abstractmethod
    def networks(self) -> dict[str, nn.Module]:
        """The networks with weights to save, by name."""

    def optimizers(self) -> dict[str, Optimizer]:
        """The optimisers, by name."""
        return {"critics": self.critic_optimizer, "actor": self.actor_optimizer}

    def state_dict(self) -> State:
        saved = {name: item.state_dict() for name, item in self.optimizers().items()}
        return {
            "networks": {name: dict(item.state_dict()) for name, item in self.networks().items()},
            "optimizers": saved,
            "replay": self.replay.state_dict(),
            "held": self.held,
            "rngs": [rng_state(self.exploration), rng_state(self.sampling)],
            "counts": [self.acted, self.steps, self.updates],
        }

    def load_state_dict(self, state: State) -> None:
        for name, network in self.networks().items():
            network.load_state_dict(state["networks"][name])
        for name, optimizer in self.optimizers().items():
            optimizer.load_state_dict(state["optimizers"][name])
        self.replay.load_state_dict(state["replay"])
        self.held = checks.saved_array("noise", state["held"], np.float64, self.held.shape)
        for rng, saved in zip((self.exploration, self.sampling), state["rngs"], strict=True):
            set_rng_state(rng, saved)
        self.acted, self.steps, self.updates = state["counts"]


def add_noise(
    action: NDArray[np.float32], uniform: NDArray[np.float64] | None, std: float
) -> NDArray[np.float32]:
    """Actions [N, A] with normal noise of this standard deviation added, clipped to [-1, 1]; None:
    no noise."""
    if uniform is None:
        return action
    return np.clip(action + std * ndtri(uniform), -1.0, 1.0).astype(np.float32)
