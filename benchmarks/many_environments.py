"""Many environments at once: 1 024 copies of each of the book's beside gymnasium's SyncVectorEnv,
and PPO with 8, 64 and 512 poles beside Stable-Baselines3.

The copies take random actions, and those that have ended are reset. SyncVectorEnv steps 1 024
single environments one after the other. All of PPO's training is timed, one thread; both sides take
the same minibatches of 256 rows four times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gymnasium

import rlbook
from benchmarks.ppo_cartpole import ours as our_rate
from benchmarks.ppo_cartpole import theirs as their_rate
from benchmarks.timing import Comparison, run_in_turn, seconds

COPIES, ROUNDS, SECONDS = 1_024, 3, 0.2
OTHERS_DATA = "rlbook/ReasoningGym-v0"
"""Needs a data set of another package."""
PPO_SETTINGS = {
    "batch_size": 256,
    "epochs": 4,
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "gae_lambda": 0.9,
}
ROLLOUTS = ((8, 256), (64, 32), (512, 8))
"""Environments, and steps in each of them for a rollout."""


def step_rate(env: gymnasium.vector.VectorEnv[Any, Any, Any], actions: list[Any]) -> float:
    """Environment steps per second, resets included; the actions are taken over and over."""
    count = 0

    def run() -> None:
        nonlocal count
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            for action in actions:
                _, _, terminated, truncated, _ = env.step(action)
                count += env.num_envs
                over = terminated | truncated
                if over.any():
                    env.reset(options={"reset_mask": over})

    took = seconds(run)
    return count / took


def copies_of(env_id: str) -> Comparison:
    """One environment: its own vector form against single ones in a row."""
    envs = {
        "ours": gymnasium.make_vec(env_id, num_envs=COPIES),
        "peer": gymnasium.make_vec(
            env_id,
            num_envs=COPIES,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED},
        ),
    }
    for env in envs.values():
        env.reset(seed=0)
    space = envs["ours"].action_space
    space.seed(0)
    actions = [space.sample() for _ in range(4)]
    rates = run_in_turn(
        {side: lambda env=env: step_rate(env, actions) for side, env in envs.items()}, ROUNDS
    )
    for env in envs.values():
        env.close()
    name = env_id.removeprefix("rlbook/")
    return Comparison(
        f"{name}, 1 024 copies, against SyncVectorEnv",
        "env steps/s",
        rates["ours"],
        rates["peer"],
        5.0,
    )


def ppo(num_envs: int, rollout_steps: int) -> Comparison:
    settings = PPO_SETTINGS | {"num_envs": num_envs, "rollout_steps": rollout_steps}
    steps = 5 * num_envs * rollout_steps
    rates = run_in_turn(
        {"ours": lambda: our_rate(steps, settings), "peer": lambda: their_rate(steps, settings)},
        ROUNDS,
    )
    return Comparison(
        f"PPO, {num_envs} poles, against SB3", "env steps/s", rates["ours"], rates["peer"], 3.0
    )


def compare() -> Iterator[Comparison]:
    for sizes in ROLLOUTS:
        yield ppo(*sizes)
    rlbook.make("Maze-v0").close()
    for name in sorted(name for name in gymnasium.registry if name.startswith("rlbook/")):
        if name != OTHERS_DATA:
            yield copies_of(name)
