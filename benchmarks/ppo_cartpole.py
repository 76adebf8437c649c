"""PPO on CartPole-v1 beside Stable-Baselines3: same environments, networks and hyper-parameters (rl-zoo's), one thread, all of training."""

from __future__ import annotations

import rlbook
from benchmarks.timing import Comparison, in_turn, seconds

STEPS, ROUNDS = 12_800, 5


def ours() -> float:
    """Environment steps per second. SB3's ½-less value loss at coefficient 0.5 is ours at 1."""
    return STEPS / seconds(lambda: rlbook.train(
        "ppo", "CartPole-v1", steps=STEPS, num_envs=8, rollout_steps=32, batch_size=256, epochs=20, learning_rate=1e-3,
        anneal_learning_rate=True, gamma=0.98, gae_lambda=0.8, clip=0.2, value_coef=1.0, entropy_coef=0.0, max_grad_norm=0.5, eval_every=0,
    ))  # fmt: skip


def theirs() -> float:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO(
        "MlpPolicy", make_vec_env("CartPole-v1", n_envs=8, seed=0), n_steps=32, batch_size=256, n_epochs=20,
        learning_rate=lambda left: 1e-3 * left, gamma=0.98, gae_lambda=0.8, clip_range=0.2, vf_coef=0.5, ent_coef=0.0,
        max_grad_norm=0.5, device="cpu", seed=0,
    )  # fmt: skip
    return STEPS / seconds(lambda: model.learn(STEPS))


def compare() -> list[Comparison]:
    rates = in_turn({"ours": ours, "peer": theirs}, ROUNDS)
    returns = [rlbook.evaluate(rlbook.train("ppo", "CartPole-v1", steps=50_000, seed=seed), episodes=20).mean for seed in range(3)]
    note = f"learning: mean return after 50 000 steps {', '.join(f'{value:.0f}' for value in returns)} (3 seeds; 500 is the most there is)"
    return [Comparison("PPO, CartPole-v1, against SB3", "env steps/s", rates["ours"], rates["peer"], 2.3, note)]
