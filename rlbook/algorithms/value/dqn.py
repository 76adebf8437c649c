"""Deep Q-network: Q-learning with a neural network, made stable by a replay buffer and a target network.

    act ε-greedily in Q, store (s, a, r, s', terminated)
    every few steps, on a random minibatch of what is stored
        y = r + γ max_a' Q⁻(s', a')            or, "double": y = r + γ Q⁻(s', argmax_a' Q(s', a'));   y = r where terminated
        minimise  mean huber(Q(s, a) - y)
    every C steps  Q⁻ ← Q

The buffer breaks the correlation of successive steps; the target network keeps y from chasing its own tail. A time limit is no
termination: y keeps its bootstrap there.
Source: Mnih et al. 2015, doi:10.1038/nature14236, algorithm 1; double: van Hasselt et al. 2016, arXiv:1509.06461, eq. 4.
Difference: several gradient steps in a row after `train_every` environment steps, as Stable-Baselines3's zoo trains CartPole.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlbook import checks
from rlbook.agent import Agent, Metrics, Parts, State, Step
from rlbook.checks import at
from rlbook.data.replay import ReplayBuffer, Transitions
from rlbook.functional.schedules import Linear, Schedule
from rlbook.functional.value_losses import double_q_target, huber_loss, q_target, squared_value_loss
from rlbook.policies.mlp import MLP
from rlbook.policies.optimizer import Group, adam
from rlbook.policies.policy import as_array
from rlbook.seeding import rng_for, rng_state, set_rng_state, torch_generator


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
    target_period: int = 500  # C, environment steps between copies of Q into the target network
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
            buffer_size=checks.positive_int, learning_starts=checks.non_negative_int, batch_size=checks.positive_int,
            train_every=checks.positive_int, gradient_steps=checks.positive_int, target_period=checks.positive_int, double=checks.boolean,
            huber=checks.boolean, max_grad_norm=checks.bound, hidden_sizes=checks.positive_ints, adam_eps=checks.positive,
            action_bins=checks.at_least(2),
        )  # fmt: skip


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
    observations = "vector"
    actions = "discrete"
    uses = ("device",)
    METRICS = {
        "td_loss": "Huber (or ½ squared) loss of Q(s, a) against its target, last minibatch of the update",
        "q": "mean Q(s, a) of that minibatch, in reward units; far above any possible return means divergence",
        "grad_norm": "L2 norm of the gradient before clipping",
        "epsilon": "probability of a random action",
    }

    def __init__(self, env: Any, config: DQNConfig, seed: int = 0, parts: Parts = Parts()) -> None:
        super().__init__(env, config, seed, parts)
        self.config: DQNConfig = config
        size, self.num_actions = env.single_observation_space.shape[0], int(env.single_action_space.n)
        if env.num_envs > config.buffer_size:
            raise ValueError(f"buffer_size must be at least num_envs {env.num_envs}, got {config.buffer_size}")
        sizes = (size, *config.hidden_sizes, self.num_actions)
        network = MLP(sizes, torch_generator(rng_for(seed, "initialisation")), activation="relu", orthogonal=False)
        self.q = network.to(parts.device)
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.optimizer = adam([Group([self.q])], at(config.learning_rate, 0.0), eps=config.adam_eps)
        self.replay = ReplayBuffer(config.buffer_size, size, parts.device)
        self.exploration, self.sampling = rng_for(seed, "exploration"), rng_for(seed, "minibatches")
        self.steps = 0

    def act(self, observation: np.ndarray, *, explore: bool = True) -> np.ndarray:
        with torch.inference_mode():
            action = as_array(self.q(torch.from_numpy(observation)).argmax(-1))
        if not explore:
            return action
        random = self.exploration.random(len(action)) < self.config.epsilon(self.progress)
        return np.where(random, self.exploration.integers(self.num_actions, size=len(action)), action)

    def action_values(self, observations: Any) -> np.ndarray:
        """Q of the environment's observations: [N, ...] → [N, A], in reward units."""
        with torch.inference_mode():
            return as_array(self.q(torch.as_tensor(self.adapted(observations), dtype=torch.float32)))

    def learn(self, step: Step) -> Metrics:
        self.replay.add(step)
        before, self.steps = self.steps, self.steps + len(step.reward)
        metrics = {}
        if self.steps > self.config.learning_starts and _crossed(self.config.train_every, before, self.steps):
            metrics = self.update()
        if _crossed(self.config.target_period, before, self.steps):
            self.target.load_state_dict(self.q.state_dict())
        return metrics

    def update(self) -> Metrics:
        """`gradient_steps` minibatches; returns the diagnostics of the last one."""
        left = 1.0 - self.progress if self.config.anneal_learning_rate else 1.0
        self.optimizer.learning_rate = at(self.config.learning_rate, self.progress) * left
        for batch, next_q in self.minibatches(self.config.gradient_steps):
            diagnostics = self.train_on(batch, next_q)
        values = [float(tensor.mean()) for tensor in diagnostics]
        return dict(zip(("td_loss", "q", "grad_norm"), values, strict=True)) | {"epsilon": self.config.epsilon(self.progress)}

    def minibatches(self, count: int) -> Iterator[tuple[Transitions, Tensor]]:
        """`count` random minibatches, each with Q⁻(s', ·) [B, A]. Buffer and target network stand still meanwhile: 64 at a time."""
        size = self.config.batch_size
        for start in range(0, count, 64):
            batch = self.replay.sample(min(64, count - start) * size, self.sampling)
            with torch.no_grad():
                next_q = self.target(batch.next_obs)
            for *fields, row in zip(*(field.split(size) for field in batch), next_q.split(size), strict=True):
                yield Transitions(*fields), row

    def train_on(self, batch: Transitions, next_q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One gradient step. Returns its diagnostics: the loss, Q(s, a) [B], the gradient's norm."""
        q = self.q(batch.obs).gather(1, batch.action[:, None]).squeeze(1)             # [B]
        if self.config.double:
            with torch.no_grad():
                next_q_online = self.q(batch.next_obs)                                 # [B, A]
            target = double_q_target(batch.reward, batch.terminated, next_q, next_q_online, self.config.gamma)
        else:
            target = q_target(batch.reward, batch.terminated, next_q, self.config.gamma)
        loss = huber_loss(q, target) if self.config.huber else squared_value_loss(q, target)
        norm = self.optimizer.step(loss, self.config.max_grad_norm)
        return loss.detach(), q.detach(), norm

    def state_dict(self) -> State:
        return {
            "q": dict(self.q.state_dict()), "target": dict(self.target.state_dict()), "optimizer": self.optimizer.state_dict(),
            "replay": self.replay.state_dict(), "rngs": [rng_state(self.exploration), rng_state(self.sampling)], "steps": self.steps,
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
