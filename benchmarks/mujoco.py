"""What SAC and TD3 have learned of two bodies after 100 000 steps, beside Stable-Baselines3: mean
greedy returns of 30 episodes, three seeds.

Both sides have the same layers and hyper-parameters, those of the presets. Six hours on one core: run
by name only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlbook
from benchmarks.timing import Comparison

BODIES, SEEDS, STEPS, EPISODES = ("Hopper-v5", "HalfCheetah-v5"), range(10, 13), 100_000, 30
TD3_SETTINGS = {"learning_rate": 3e-4, "policy_kwargs": {"net_arch": [256, 256]}}
EXPLORATION_NOISE = 0.1


def ours(algorithm: str, body: str, seed: int) -> float:
    run = rlbook.train(algorithm, body, seed=seed, eval_every=0, quiet=True)
    return rlbook.evaluate(run, episodes=EPISODES).mean


def theirs(algorithm: str, body: str, seed: int) -> float:
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise

    env = make_vec_env(body, seed=seed)
    settings: dict[str, Any] = {"learning_starts": 10_000, "buffer_size": STEPS}
    if algorithm == "td3":
        components = env.action_space.shape
        noise = NormalActionNoise(np.zeros(components), np.full(components, EXPLORATION_NOISE))
        settings |= TD3_SETTINGS | {"action_noise": noise}
    model = getattr(stable_baselines3, algorithm.upper())(
        "MlpPolicy", env, seed=seed, device="cpu", **settings
    )
    model.learn(STEPS)
    held_out = make_vec_env(body, seed=seed + 10_000)
    return float(np.mean(evaluate_policy(model, held_out, EPISODES)[0]))


def compare() -> list[Comparison]:
    return [
        Comparison(
            f"{algorithm.upper()}, {body}, greedy, against SB3",
            "return",
            [ours(algorithm, body, seed) for seed in SEEDS],
            [theirs(algorithm, body, seed) for seed in SEEDS],
            1.0,
        )
        for body in BODIES
        for algorithm in ("sac", "td3")
    ]
