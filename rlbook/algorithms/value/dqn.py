"""Deep Q-network: Q-learning with a neural network, made stable by a replay buffer and a target
network.

    act ε-greedily in Q, store (s, a, r, s', terminated)
    every few steps, on a random minibatch of what is stored
        y = r                                            where terminated, else
        y = r + γ max_a' Q⁻(s', a')                      or, with `double`,
        y = r + γ Q⁻(s', argmax_a' Q(s', a'))
        minimise  mean huber(Q(s, a) - y)
    every C steps  Q⁻ ← Q

The buffer breaks the correlation of successive steps. The target network holds y still for C steps;
without it, every step that raises Q raises its own target too. A time limit is no termination: y
keeps its bootstrap there.

Source: Mnih et al. 2015, doi:10.1038/nature14236, algorithm 1; double: van Hasselt et al. 2016,
arXiv:1509.06461, eq. 4. Difference: several gradient steps in a row after `train_every` environment
steps, as Stable-Baselines3's zoo trains CartPole.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlbook import checks
from rlbook.agent import Agent, Metrics, Parts, State, Step
from rlbook.checks import at
from rlbook.data.replay import ReplayBuffer, Transitions
from rlbook.fast_forms import has_fast_form
from rlbook.functional.schedules import Linear, Schedule
from rlbook.functional.value_losses import (
    double_q_target,
    huber_loss,
    q_target,
    squared_value_loss,
)
from rlbook.policies.build import build_action_value
from rlbook.policies.optimizer import Group, LossOutput, adam, gradient_step, mean_metrics
from rlbook.policies.policy import as_array, full_precision
from rlbook.seeding import rng_for, rng_state, set_rng_state


@dataclass(frozen=True)
class DQNConfig:
    gamma: float = 0.99  # discount per environment step, in [0, 1]
    learning_rate: float | Schedule = 1e-3  # Adam's step size, > 0
    anneal_learning_rate: bool = False  # lower the step size linearly to 0 over the run
    epsilon: Schedule = Linear(1.0, 0.05, 0.3)  # probability of a random action, in [0, 1]
    buffer_size: int = 50_000  # transitions kept
    learning_starts: int = 500  # environment steps before the first update
    batch_size: int = 64  # transitions of a minibatch
    train_every: int = 4  # environment steps between updates
    gradient_steps: int = 1  # gradient steps of an update
    # C, environment steps between copies of Q into the target network
    target_period: int = 500
    double: bool = True  # choose the next action by Q, value it by Q⁻
    huber: bool = True  # Huber loss (δ = 1); false is ½ squared error
    max_grad_norm: float = 10.0  # the gradient's L2 norm is clipped to this
    hidden_sizes: tuple[int, ...] = (64, 64)  # units of each hidden layer
    adam_eps: float = 1e-8  # Adam's ε
    action_bins: int = 5  # values per dimension of a continuous action, ≥ 2

    def __post_init__(self) -> None:
        checks.check_schedules(self, epsilon=checks.unit_interval)
        checks.check_rates(self, learning_rate=checks.positive)
        checks.check_fields(
            self, gamma=checks.unit_interval, anneal_learning_rate=checks.boolean,
            buffer_size=checks.positive_int, learning_starts=checks.non_negative_int,
            batch_size=checks.positive_int, train_every=checks.positive_int,
            gradient_steps=checks.positive_int, target_period=checks.positive_int,
            double=checks.boolean, huber=checks.boolean, max_grad_norm=checks.bound,
            hidden_sizes=checks.positive_ints, adam_eps=checks.positive,
            action_bins=checks.at_least(2),
        )  # fmt: skip


@dataclass(frozen=True)
class Minibatch:
    """B stored transitions, and what the target network says of their successors."""

    rows: Transitions
    next_q: Tensor  # [B, A], Q⁻(s', ·) in reward units

    def __len__(self) -> int:
        return len(self.rows.reward)


class DQN(Agent):
    """Deep Q-network; see the module docstring."""

    budget = {"steps": 50_000}
    presets = {
        "Maze-v0": {"steps": 20_000},
        "CartPole-v1": {
            "hidden_sizes": (128, 128), "learning_rate": 1e-3, "batch_size": 128,
            "learning_starts": 1_000, "train_every": 256, "gradient_steps": 128,
            "target_period": 256, "double": False, "epsilon": "linear(1.0, 0.04, 0.16)",
            "eval_every": 1_000, "eval_episodes": 10,
        },
    }  # fmt: skip
    Config = DQNConfig
    batched = True
    observations = "network"
    actions = "discrete"
    uses = ("model", "device")
    METRICS = {
        "td_loss": "Huber (or ½ squared) loss of Q(s, a) against its target, "
        "last minibatch of the update",
        "q": "mean Q(s, a) of that minibatch, in reward units; "
        "far above any possible return means divergence",
        "grad_norm": "L2 norm of the gradient before clipping",
        "epsilon": "probability of a random action",
    }

    def __init__(
        self, env: VectorEnv, config: DQNConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: DQNConfig = config
        observations, actions = env.single_observation_space, env.single_action_space
        assert isinstance(observations, Box) and isinstance(actions, Discrete)
        self.num_actions = int(actions.n)
        if env.num_envs > config.buffer_size:
            raise ValueError(
                f"buffer_size must be at least num_envs {env.num_envs}, got {config.buffer_size}"
            )
        rng, hidden_sizes = rng_for(seed, "initialisation"), tuple(config.hidden_sizes)
        self.q = build_action_value(env, rng, hidden_sizes, parts.model).to(parts.device)
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.optimizer = adam([Group([self.q])], at(config.learning_rate, 0.0), eps=config.adam_eps)
        size, each = math.prod(observations.shape), np.dtype(observations.dtype).itemsize
        self.replay = ReplayBuffer(config.buffer_size, size, parts.device, bytes_each=each)
        self.exploration = rng_for(seed, "exploration")
        self.sampling = rng_for(seed, "minibatches")
        self.steps = 0

    def act(
        self, observation: NDArray[np.float32], *, explore: bool = True
    ) -> NDArray[np.int64]:
        with torch.inference_mode():
            action = as_array(self.q(torch.from_numpy(observation)).argmax(-1))
        if not explore:
            return action
        random = self.exploration.random(len(action)) < self.config.epsilon(self.progress)
        drawn = self.exploration.integers(self.num_actions, size=len(action))
        return np.where(random, drawn, action)

    def action_values(self, observations: ArrayLike) -> NDArray[np.float32]:
        """Q of the environment's observations: [N, ...] → [N, A], in reward units."""
        with torch.inference_mode():
            seen = torch.as_tensor(self.adapted(observations), dtype=torch.float32)
            return as_array(self.q(seen))

    def learn(self, step: Step) -> Metrics:
        self.replay.add(step)
        before, self.steps = self.steps, self.steps + len(step.reward)
        metrics = {}
        started = self.steps > self.config.learning_starts
        if started and _crossed(self.config.train_every, before, self.steps):
            metrics = self.update()
        if _crossed(self.config.target_period, before, self.steps):
            self.target.load_state_dict(self.q.state_dict())
        return metrics

    def update(self) -> Metrics:
        """`gradient_steps` minibatches; returns the diagnostics of the last one."""
        left = 1.0 - self.progress if self.config.anneal_learning_rate else 1.0
        self.optimizer.learning_rate = at(self.config.learning_rate, self.progress) * left
        for batch in self.minibatches(self.config.gradient_steps):
            metrics = self.train_on(batch)
        return mean_metrics([metrics]) | {"epsilon": self.config.epsilon(self.progress)}

    def minibatches(self, count: int) -> Iterator[Minibatch]:
        """`count` random minibatches, drawn 64 at a time.

        Buffer and target network stand still meanwhile, so Q⁻ is computed for all 64 at once.
        """
        size = self.config.batch_size
        for start in range(0, count, 64):
            drawn = self.replay.sample(min(64, count - start) * size, self.sampling)
            with torch.no_grad():
                next_q = self.target(drawn.next_obs)
            parts = [field.split(size) for field in (*drawn, next_q)]
            for *fields, row in zip(*parts, strict=True):
                yield Minibatch(Transitions(*fields), row)

    @has_fast_form("rlbook.fast.dqn_step:train_on")
    def train_on(self, batch: Minibatch) -> dict[str, Tensor]:
        """One gradient step on a minibatch. Returns "td_loss", "q" and "grad_norm"."""
        limit = self.config.max_grad_norm
        return gradient_step(self.optimizer, self.loss, batch, max_grad_norm=limit)

    def loss(self, batch: Minibatch) -> LossOutput:
        """How far Q(s, a) is from its target."""
        values = full_precision(self.q(batch.rows.obs))                                # [B, A]
        q = values.gather(1, batch.rows.action[:, None]).squeeze(1)                    # [B]
        target = self.target_of(batch)
        loss = huber_loss(q, target) if self.config.huber else squared_value_loss(q, target)
        return LossOutput(loss, {"td_loss": loss.detach(), "q": q.detach().mean()})

    def target_of(self, batch: Minibatch) -> Tensor:
        """y of every transition: [B], in reward units."""
        rows, gamma = batch.rows, self.config.gamma
        if not self.config.double:
            return q_target(rows.reward, rows.terminated, batch.next_q, gamma)
        with torch.no_grad():
            online = self.q(rows.next_obs)                                             # [B, A]
        return double_q_target(rows.reward, rows.terminated, batch.next_q, online, gamma)

    def state_dict(self) -> State:
        return {
            "q": dict(self.q.state_dict()), "target": dict(self.target.state_dict()),
            "optimizer": self.optimizer.state_dict(), "replay": self.replay.state_dict(),
            "rngs": [rng_state(self.exploration), rng_state(self.sampling)], "steps": self.steps,
        }  # fmt: skip

    def load_state_dict(self, state: State) -> None:
        self.q.load_state_dict(state["q"])
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.replay.load_state_dict(state["replay"])
        for rng, saved in zip((self.exploration, self.sampling), state["rngs"], strict=True):
            set_rng_state(rng, saved)
        self.steps = state["steps"]


def _crossed(period: int, before: int, after: int) -> bool:
    """Whether a multiple of `period` lies in (before, after]."""
    return after // period > before // period
