"""A2C on CartPole-v1 beside Stable-Baselines3 with its defaults: same environments and networks,
one thread, all of training."""

from __future__ import annotations

import rlbook
from benchmarks.timing import Comparison, run_in_turn, seconds

STEPS, ROUNDS, NUM_ENVS = 20_000, 5, 8


def ours(steps: int = STEPS) -> float:
    """Environment steps per second. SB3's ½-less value loss at coefficient 0.5 is ours at 1."""
    return steps / seconds(
        lambda: rlbook.train(
            "a2c",
            "CartPole-v1",
            steps=steps,
            num_envs=NUM_ENVS,
            rollout_steps=5,
            optimizer="rmsprop",
            learning_rate=7e-4,
            anneal_learning_rate=False,
            gamma=0.99,
            gae_lambda=1.0,
            value_coef=1.0,
            entropy_coef=0.0,
            max_grad_norm=0.5,
            eval_every=0,
        )
    )


def theirs() -> float:
    from stable_baselines3 import A2C
    from stable_baselines3.common.env_util import make_vec_env

    model = A2C(
        "MlpPolicy", make_vec_env("CartPole-v1", n_envs=NUM_ENVS, seed=0), device="cpu", seed=0
    )
    return STEPS / seconds(lambda: model.learn(STEPS))


def compare() -> list[Comparison]:
    rates = run_in_turn({"ours": ours, "peer": theirs}, ROUNDS)
    return [
        Comparison(
            "A2C, CartPole-v1, against SB3", "env steps/s", rates["ours"], rates["peer"], 1.8
        )
    ]
