"""Deep Q-network (DQN): Q-learning with a neural network, stabilised by a replay buffer and a
target network.

    act ε-greedily in Q, store (s, a, r, s', terminated)
    every few steps, on a random minibatch of stored transitions
        y = r                                            where terminated, else
        y = r + γ max_a' Q⁻(s', a')                      or, with `double`,
        y = r + γ Q⁻(s', argmax_a' Q(s', a'))
        minimise  mean huber(Q(s, a) - y)
    every C steps  Q⁻ ← Q

The buffer breaks the correlation of successive steps. The target network keeps y fixed for C steps;
without it, every step that raises Q also raises its own target. A time limit is not a termination:
y still bootstraps there. With action masks, the argmax and max are over the allowed actions.

Rainbow is DQN with five more parts besides `double`, each a switch (see `rainbow_parts`):
    dueling         Q = V + A - mean A, two streams in one network
    prioritized     transitions are sampled by their last |δ|, with importance weights to correct it
    n_step          y = r + γ r' + … + γⁿ max Q⁻, shorter where the episode ends
    noisy           noise on the weights, of learned scale, explores instead of ε
    distributional  the probability of each of 51 returns is learned, not only the mean

With `recurrent` the network remembers what it saw in the episode, and the buffer returns sequences
(R2D2): see `recurrent_loss`.

Source: Mnih et al. 2015, doi:10.1038/nature14236, algorithm 1; double: van Hasselt et al. 2016,
arXiv:1509.06461, eq. 4; Rainbow: Hessel et al. 2018, arXiv:1710.02298; the other parts' sources
are with their functions. Differences: several gradient steps in a row after `train_every` steps, as
in Stable-Baselines3's zoo for CartPole; one draw of the noise serves all environments of a step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlbook.agent import Agent, Metrics, Parts, State, Step
from rlbook.algorithms.value.distributional_loss import distributional_loss
from rlbook.algorithms.value.dqn_config import METRICS, DQNConfig
from rlbook.algorithms.value.rainbow_parts import network_parts, replay_with_parts
from rlbook.algorithms.value.recurrent_loss import recurrent_loss
from rlbook.checks import check_buffer_size
from rlbook.data.prioritized_replay import Priorities
from rlbook.data.rainbow_replay import RainbowMinibatch
from rlbook.data.sequence_replay import SequenceMinibatch
from rlbook.functional.schedules import parse_schedule
from rlbook.functional.value_losses import double_q_target, huber_loss, q_target, squared_value_loss
from rlbook.interaction.action_masks import nth_allowed
from rlbook.networks.build import build_action_value
from rlbook.networks.mlp import action_size
from rlbook.networks.optimizer import Group, LossOutput, Optimizer, adam, gradient_step
from rlbook.networks.policy import as_array, to_full_precision
from rlbook.networks.q_network import predict
from rlbook.networks.recurrent_memory import RecurrentMemory
from rlbook.networks.recurrent_q import RecurrentQ, acting_values
from rlbook.networks.values import ActionValue, greedy_actions
from rlbook.seeding import rng_for, rng_state, set_rng_state

Minibatch = RainbowMinibatch | SequenceMinibatch
SAVED = ("q", "target", "optimizer", "replay")


def dqn_update(
    q: ActionValue,
    optimizer: Optimizer,
    batches: Iterable[Minibatch],
    config: DQNConfig,
    *,
    noise: Generator | None = None,
    priorities: Priorities | None = None,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """A gradient step with each minibatch; returns the diagnostics of the last one.

    Args:
        q, optimizer: changed in place.
        batches: drawn one after the other where priorities or noise change in between.
        config: hyper-parameters.
        noise: of the weights; None where they have none.
        priorities: become the rows' errors; None where rows are drawn uniformly.
        loss: of a minibatch, with "error" [B] for the priorities; None is `dqn_loss`.
    """
    step_loss = partial(loss or dqn_loss, q, config=config, noise=noise)
    for batch in batches:
        metrics = gradient_step(optimizer, step_loss, batch, max_grad_norm=config.max_grad_norm)
        if priorities is not None and isinstance(batch, RainbowMinibatch):
            assert batch.places is not None
            priorities.update(batch.places, as_array(metrics.pop("error")))
    return {name: float(value) for name, value in metrics.items()}


@torch.no_grad()
def dqn_target(
    q: ActionValue, batch: RainbowMinibatch, *, config: DQNConfig, noise: Generator | None = None
) -> Tensor:
    """y of every transition: [B], in reward units."""
    rows, gamma = batch.rows, config.gamma if batch.discount is None else batch.discount
    reward, terminated, mask = rows.reward, rows.terminated, rows.next_action_mask
    if not config.double:
        return q_target(reward, terminated, batch.next_q, gamma, mask)
    online = predict(q, rows.next_obs, noise)  # [B, A]
    return double_q_target(reward, terminated, batch.next_q, online, gamma, mask)


def dqn_loss(
    q: ActionValue, batch: Minibatch, *, config: DQNConfig, noise: Generator | None = None
) -> LossOutput:
    """The error of Q(s, a) against its target, for some rows; lower is better."""
    if isinstance(batch, SequenceMinibatch):
        return recurrent_loss(q, batch, config=config)
    if config.distributional:
        return distributional_loss(q, batch, config=config, noise=noise)
    values = to_full_precision(predict(q, batch.rows.obs, noise))  # [B, A]
    value = values.gather(1, batch.rows.action[:, None]).squeeze(1)  # [B]
    target = dqn_target(q, batch, config=config, noise=noise)
    value_loss = huber_loss if config.huber else squared_value_loss
    loss = value_loss(value, target, average=batch.average)
    metrics = {"td_loss": loss.detach(), "q": value.detach().mean()}
    if config.prioritized:
        metrics["error"] = (value - target).abs().detach()  # [B]
    return LossOutput(loss, metrics)


class DQN(Agent):
    """Deep Q-network; see the module docstring."""

    budget = {"steps": 50_000}
    Config = DQNConfig
    batched = True
    observations = "network"
    actions = "discrete"
    uses = ("model", "device", "replay_folder")
    loss = staticmethod(dqn_loss)
    METRICS = METRICS

    def __init__(
        self, env: VectorEnv, config: DQNConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: DQNConfig = config
        self.num_actions = action_size(env.single_action_space)
        check_buffer_size(config.buffer_size, env.num_envs)
        rng, hidden_sizes = rng_for(seed, "initialisation"), tuple(config.hidden_sizes)
        given = hidden_sizes, parts.model, network_parts(config), config.activation
        self.q = build_action_value(env, rng, *given).to(parts.device)
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.learning_rate = parse_schedule(config.learning_rate)
        self.optimizer = adam([Group([self.q])], self.learning_rate(0.0), eps=config.adam_eps)
        self.memory = self.new_memory()
        self.replay = replay_with_parts(config, env, parts, self.q)
        self.exploration = rng_for(seed, "exploration")
        self.sampling = rng_for(seed, "minibatches")
        self.noise = rng_for(seed, "noise") if config.noisy else None
        self.generators = [rng for rng in (self.exploration, self.sampling, self.noise) if rng]
        self.steps = 0

    def act(
        self,
        observation: NDArray[np.float32],
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
        memory: RecurrentMemory | None = None,
    ) -> NDArray[np.int64]:
        self.check_batch(observation)
        noise = self.noise if explore else None
        memory = memory or (self.memory if explore else None)
        random = drawn = np.zeros(len(observation), dtype=bool)
        if explore and noise is None:
            random = self.exploration.random(len(observation)) < self.config.epsilon(self.progress)
            count = self.num_actions if action_mask is None else action_mask.sum(axis=1)
            drawn = nth_allowed(action_mask, self.exploration.integers(count, size=len(random)))
            if random.all() and memory is None:
                return drawn
        values = acting_values(self.q, torch.from_numpy(observation), noise, memory)
        return np.where(random, drawn, greedy_actions(values, action_mask))

    def new_memory(self) -> RecurrentMemory | None:
        return self.q.initial_state() if isinstance(self.q, RecurrentQ) else None

    def begin(self) -> None:
        self.memory = self.new_memory()

    def action_values(self, observations: ArrayLike) -> NDArray[np.float32]:
        """Q of the environment's observations: [N, ...] → [N, A], in reward units."""
        seen = torch.as_tensor(self.adapt_observations(observations), dtype=torch.float32)
        return as_array(acting_values(self.q, seen))

    def learn(self, step: Step) -> Metrics:
        self.replay.add(step, self.memory)
        if self.memory is not None:
            self.memory.forget(step.terminated | step.truncated)
        before, self.steps = self.steps, self.steps + len(step.reward)
        due = self.steps // self.config.train_every > before // self.config.train_every
        metrics = self.update() if due and self.steps > self.config.learning_starts else {}
        if self.steps // self.config.target_period > before // self.config.target_period:
            self.target.load_state_dict(self.q.state_dict())
        return metrics

    def update(self) -> Metrics:
        """`gradient_steps` minibatches; returns the diagnostics of the last one."""
        config, progress = self.config, self.progress
        left = 1.0 - progress if config.anneal_learning_rate else 1.0
        self.optimizer.learning_rate = self.learning_rate(progress) * left
        batches = self.replay.minibatches(
            config.gradient_steps,
            config.batch_size,
            partial(predict, self.target, rng=self.noise),
            self.sampling,
            beta=config.importance_exponent(progress),
            # one by one where priorities or noise change in between
            together=1 if config.prioritized or config.noisy else 64,
        )
        metrics = dqn_update(
            self.q,
            self.optimizer,
            batches,
            config,
            noise=self.noise,
            priorities=self.replay.priorities,
            loss=self.loss,
        )
        return metrics | {"epsilon": 0.0 if config.noisy else config.epsilon(progress)}

    def state_dict(self) -> State:
        return {
            **{name: dict(getattr(self, name).state_dict()) for name in SAVED},
            "rngs": [rng_state(rng) for rng in self.generators],
            "steps": self.steps,
            **({} if self.memory is None else {"memory": self.memory.state_dict()}),
        }

    def load_state_dict(self, state: State) -> None:
        for name in SAVED if self.memory is None else (*SAVED, "memory"):
            getattr(self, name).load_state_dict(state[name])
        for rng, saved in zip(self.generators, state["rngs"], strict=True):
            set_rng_state(rng, saved)
        self.steps = state["steps"]
