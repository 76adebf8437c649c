"""DQN on ALE/Pong-v5 beside Stable-Baselines3's and CleanRL's, by the processor's time: the steps of
the whole loop (act, step, store, and a gradient step every four of them), and gradient steps alone.

Equal settings: `AtariPreprocessing` with four frames, the network of the Nature paper, minibatches
of 32, a buffer of 100 000, Adam at 1e-4, ε = 0.1, no double DQN. CleanRL's is a script, not a
library: its loop stands here as in cleanrl/dqn_atari.py (commit fe8d8a0), without its log.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from benchmarks.read_once import cpu_seconds
from benchmarks.timing import Comparison, run_in_turn
from rlbook.algorithms.value.dqn import DQN, DQNConfig
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.loop import act_step_reset
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.interaction.vector_envs.vector import VectorInteraction

STEPS, GRADIENT_STEPS, ROUNDS = 400, 60, 7
BATCH, STORED, STARTS, EVERY, RATE, EPSILON, GAMMA = 32, 100_000, 200, 4, 1e-4, 0.1, 0.99
SYNC = 1_000  # steps between copies of the network into the target network


def pong() -> gymnasium.Env:
    import ale_py

    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    return FrameStackObservation(AtariPreprocessing(env), 4)


class Ours:
    def __init__(self) -> None:
        config = DQNConfig(
            hidden_sizes=(512,),
            batch_size=BATCH,
            buffer_size=STORED,
            learning_starts=STARTS,
            train_every=EVERY,
            target_period=SYNC,
            learning_rate=RATE,
            epsilon=EPSILON,  # type: ignore[arg-type]  # a number is a constant schedule
            gamma=GAMMA,
            double=False,
        )
        env = adapted_vector(DQN, EnvRecipe.from_env(pong()), 1, config)
        self.agent = DQN(env, config)
        interaction = VectorInteraction(env, np.random.default_rng(0))
        self.loop: Iterator[Any] = act_step_reset(interaction, self.agent.act, self.agent.learn)

    def play(self) -> None:
        for _ in range(STEPS):
            next(self.loop)

    def train(self) -> None:
        for _ in range(GRADIENT_STEPS):
            self.agent.update()


class StableBaselines:
    def __init__(self) -> None:
        from stable_baselines3 import DQN as Peer
        from stable_baselines3.common.logger import Logger

        self.model = Peer(
            "CnnPolicy",
            pong(),
            batch_size=BATCH,
            buffer_size=STORED,
            learning_starts=STARTS,
            train_freq=EVERY,
            target_update_interval=SYNC,
            learning_rate=RATE,
            exploration_fraction=1e-9,
            exploration_final_eps=EPSILON,
            device="cpu",
            seed=0,
        )
        self.model.set_logger(Logger(None, []))

    def play(self) -> None:
        self.model.learn(STEPS, reset_num_timesteps=False)

    def train(self) -> None:
        self.model.train(GRADIENT_STEPS, BATCH)


class CleanRL:
    def __init__(self) -> None:
        from gymnasium.vector import AutoresetMode, SyncVectorEnv
        from stable_baselines3.common.buffers import ReplayBuffer  # CleanRL's is a copy of it

        self.envs = SyncVectorEnv([pong], autoreset_mode=AutoresetMode.SAME_STEP)
        actions = int(self.envs.single_action_space.n)  # type: ignore[attr-defined]
        self.q, self.target = q_network(actions), q_network(actions)
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=RATE)
        self.buffer = ReplayBuffer(
            STORED,
            self.envs.single_observation_space,
            self.envs.single_action_space,
            "cpu",
            optimize_memory_usage=True,
            handle_timeout_termination=False,
        )
        self.obs, self.steps = self.envs.reset(seed=0)[0], 0

    def play(self) -> None:
        for _ in range(STEPS):
            if random.random() < EPSILON:
                actions = np.array([self.envs.single_action_space.sample()])
            else:
                actions = torch.argmax(self.q(torch.Tensor(self.obs)), dim=1).cpu().numpy()
            next_obs, rewards, terminations, truncations, infos = self.envs.step(actions)
            real_next_obs = next_obs.copy()
            for index in np.flatnonzero(terminations | truncations):
                real_next_obs[index] = infos["final_obs"][index]
            self.buffer.add(self.obs, real_next_obs, actions, rewards, terminations, [infos])
            self.obs, self.steps = next_obs, self.steps + 1
            if self.steps > STARTS and self.steps % EVERY == 0:
                self.update()
            if self.steps % SYNC == 0:
                self.target.load_state_dict(self.q.state_dict())

    def train(self) -> None:
        for _ in range(GRADIENT_STEPS):
            self.update()

    def update(self) -> None:
        data: Any = self.buffer.sample(BATCH)
        with torch.no_grad():
            best = self.target(data.next_observations).max(dim=1).values
            target = data.rewards.flatten() + GAMMA * best * (1 - data.dones.flatten())
        value = self.q(data.observations).gather(1, data.actions).squeeze()
        loss = torch.nn.functional.mse_loss(target, value)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Scaled(torch.nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x / 255.0)


def q_network(actions: int) -> torch.nn.Module:
    nn = torch.nn
    filters = [nn.Conv2d(4, 32, 8, stride=4), nn.Conv2d(32, 64, 4, stride=2), nn.Conv2d(64, 64, 3)]
    layers = [layer for conv in filters for layer in (conv, nn.ReLU())]
    return Scaled(*layers, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions))


def rate(run: Callable[[], None], count: int) -> float:
    """How many of the `count` things that a run does fit into a second of the processor's time."""
    return count / cpu_seconds(run)


def compare() -> list[Comparison]:
    sides: dict[str, Any] = {"ours": Ours(), "SB3": StableBaselines(), "CleanRL": CleanRL()}
    found = []
    for part, unit, count in (("play", "steps/s", STEPS), ("train", "updates/s", GRADIENT_STEPS)):
        runs = {name: partial(rate, getattr(side, part), count) for name, side in sides.items()}
        rates = run_in_turn(runs, ROUNDS)
        what = "steps" if part == "play" else "gradient steps"
        found += [
            Comparison(
                f"DQN on Pong, {what}, against {peer}", unit, rates["ours"], rates[peer], 1.5
            )
            for peer in ("SB3", "CleanRL")
        ]
    return found
