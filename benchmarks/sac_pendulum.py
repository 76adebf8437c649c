"""SAC's gradient steps beside Stable-Baselines3's: the same replay contents, networks (2 × 256) and
batch of 256, one thread."""

from __future__ import annotations

from typing import Literal

import numpy as np

from benchmarks.timing import Comparison, run_in_turn, seconds
from rlbook.agent import Step
from rlbook.algorithms.policy.off_policy.sac import SAC, SACConfig
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector

GRADIENT_STEPS, ROUNDS, STORED = 100, 7, 10_000


def transitions() -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(0)
    return [
        (
            rng.normal(size=(1, 3)).astype(np.float32),
            rng.uniform(-1, 1, size=(1, 1)).astype(np.float32),
            np.ones(1, np.float32),
            rng.normal(size=(1, 3)).astype(np.float32),
            rng.random(1) < 0.05,
        )
        for _ in range(STORED)
    ]


def our_agent(precision: Literal["highest", "medium"] = "highest") -> SAC:
    config = SACConfig(
        buffer_size=STORED, gradient_steps=GRADIENT_STEPS, matmul_precision=precision
    )
    agent = SAC(adapted_vector(SAC, EnvRecipe.from_env("Pendulum-v1"), 1, config), config)
    for obs, action, reward, next_obs, terminated in transitions():
        agent.replay.add(
            Step(obs, action, reward, next_obs, terminated, np.zeros(1, bool), np.ones(1, bool))
        )
    return agent


def their_agent():  # type: ignore[no-untyped-def]
    from stable_baselines3 import SAC as Peer
    from stable_baselines3.common.logger import Logger

    model = Peer(
        "MlpPolicy", "Pendulum-v1", batch_size=256, buffer_size=STORED, device="cpu", seed=0
    )
    model.set_logger(Logger(None, []))
    assert model.replay_buffer is not None
    for obs, action, reward, next_obs, terminated in transitions():
        model.replay_buffer.add(obs, next_obs, action, reward, terminated, [{}])
    return model


def compare() -> list[Comparison]:
    agent, less_precise, peer = our_agent(), our_agent("medium"), their_agent()
    rates = run_in_turn(
        {
            "ours": lambda: GRADIENT_STEPS / seconds(agent.update),
            "medium": lambda: GRADIENT_STEPS / seconds(less_precise.update),
            "peer": lambda: GRADIENT_STEPS / seconds(lambda: peer.train(GRADIENT_STEPS, 256)),
        },
        ROUNDS,
    )
    return [
        Comparison(
            "SAC, gradient steps, against SB3", "updates/s", rates["ours"], rates["peer"], 1.35
        ),
        Comparison(
            "SAC, products of medium precision", "updates/s", rates["medium"], rates["peer"], 1.8
        ),
    ]
