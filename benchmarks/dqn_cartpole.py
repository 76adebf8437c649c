"""DQN's gradient steps beside Stable-Baselines3's: the same replay contents, networks (2 × 256) and
batch of 64, one thread."""

from __future__ import annotations

import numpy as np

from benchmarks.timing import Comparison, run_in_turn, seconds
from rlbook.agent import Step
from rlbook.algorithms.value.dqn import DQN, DQNConfig
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector

GRADIENT_STEPS, ROUNDS, STORED = 500, 7, 10_000


def transitions() -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        (
            rng.normal(size=(1, 4)).astype(np.float32),
            rng.integers(2, size=1),
            np.ones(1, np.float32),
            rng.normal(size=(1, 4)).astype(np.float32),
            rng.random(1) < 0.05,
        )
        for _ in range(STORED)
    ]


def our_agent() -> DQN:
    config = DQNConfig(
        hidden_sizes=(256, 256),
        batch_size=64,
        buffer_size=STORED,
        learning_rate=1e-4,
        double=False,
        gradient_steps=GRADIENT_STEPS,
    )
    agent = DQN(adapted_vector(DQN, EnvRecipe.from_env("CartPole-v1"), 1, config), config)
    for obs, action, reward, next_obs, terminated in transitions():
        agent.replay.add(
            Step(obs, action, reward, next_obs, terminated, np.zeros(1, bool), np.ones(1, bool))
        )
    return agent


def their_agent():  # type: ignore[no-untyped-def]
    from stable_baselines3 import DQN as Peer
    from stable_baselines3.common.logger import Logger

    network = {"net_arch": [256, 256]}
    model = Peer(
        "MlpPolicy",
        "CartPole-v1",
        policy_kwargs=network,
        batch_size=64,
        buffer_size=STORED,
        device="cpu",
        seed=0,
    )
    model.set_logger(Logger(None, []))
    for obs, action, reward, next_obs, terminated in transitions():
        model.replay_buffer.add(obs, next_obs, action[:, None], reward, terminated, [{}])
    return model


def compare() -> list[Comparison]:
    agent, peer = our_agent(), their_agent()
    rates = run_in_turn(
        {
            "ours": lambda: GRADIENT_STEPS / seconds(agent.update),
            "peer": lambda: GRADIENT_STEPS / seconds(lambda: peer.train(GRADIENT_STEPS, 64)),
        },
        ROUNDS,
    )
    return [
        Comparison(
            "DQN, gradient steps, against SB3", "updates/s", rates["ours"], rates["peer"], 1.7
        )
    ]
