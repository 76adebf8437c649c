"""Environments whose step takes long: PPO with two workers, beside the same run in one process."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

import rlbook
from benchmarks.timing import Comparison, run_in_turn, seconds

SECONDS, STEPS = 0.005, 1_600


class SlowCartPole(CartPoleEnv):
    """Waits before each step, as for a simulator."""

    def step(self, action: Any) -> Any:
        time.sleep(SECONDS)
        return super().step(action)


gymnasium.register("SlowCartPole-v0", SlowCartPole, max_episode_steps=500)


def rate(env: str, workers: int, steps: int) -> float:
    """Environment steps per second of training, the start of the workers included."""
    settings = {
        "steps": steps,
        "num_envs": 8,
        "rollout_steps": 50,
        "eval_every": 0,
        "workers": workers,
    }
    return steps / seconds(lambda: rlbook.train("ppo", env, **settings))


def beside_one(name: str, env: str, steps: int, goal: float) -> Comparison:
    """Two workers beside the same run without."""
    rates = run_in_turn({"two": lambda: rate(env, 2, steps), "one": lambda: rate(env, 1, steps)}, 3)
    note = "the peer is the same run in one process"
    return Comparison(
        f"CartPole, 8 environments, 2 workers, {name}",
        "steps/s",
        rates["two"],
        rates["one"],
        goal,
        note,
    )


def compare() -> list[Comparison]:
    return [
        beside_one("5 ms a step", "SlowCartPole-v0", STEPS, 1.6),
        beside_one("as it is", "CartPole-v1", 10 * STEPS, 0.1),
    ]
