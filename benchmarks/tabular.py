"""Q-learning on a table: environment steps per second beside the usual loop over gymnasium with a
NumPy table."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np

import rlbook
from benchmarks.timing import Comparison, run_in_turn, seconds
from rlbook.fast.compiled import available

ENV, EPSILON, ALPHA, GAMMA = "CliffWalking-v1", 0.1, 0.1, 0.9
USUAL, PLAIN, COMPILED = 60_000, 1_000_000, 40_000_000


def usual_loop(steps: int) -> None:
    """What most courses write, on the cliff: `np.argmax` over a row of the table, one update a
    step."""
    env, rng = gymnasium.make(ENV), np.random.default_rng(0)
    q = np.zeros((env.observation_space.n, env.action_space.n))  # type: ignore[attr-defined]
    state, _ = env.reset(seed=0)
    for _ in range(steps):
        action = rng.integers(4) if rng.random() < EPSILON else np.argmax(q[state])
        next_state, reward, terminated, truncated, _ = env.step(int(action))
        target = reward + GAMMA * q[next_state].max() * (not terminated)
        q[state, action] += ALPHA * (target - q[state, action])
        state = next_state
        if terminated or truncated:
            state, _ = env.reset()


def rate(steps: int, *, compiled: bool = True, **options: Any) -> float:
    """Steps per second of a whole `rlbook.train`."""
    os.environ["RLBOOK_PLAIN"] = "" if compiled else "1"
    settings = {"epsilon": EPSILON, "alpha": ALPHA, "gamma": GAMMA, "eval_every": 0} | options
    try:
        return steps / seconds(lambda: rlbook.train("q_learning", ENV, steps=steps, **settings))
    finally:
        os.environ["RLBOOK_PLAIN"] = ""


def compare() -> list[Comparison]:
    runs = {
        "usual": lambda: USUAL / seconds(lambda: usual_loop(USUAL)),
        "env": lambda: rate(USUAL * 2, simulate=False),
        "plain": lambda: rate(PLAIN, compiled=False),
    }
    if available():
        runs["compiled"] = lambda: rate(COMPILED)
    found = run_in_turn(runs, rounds=5)
    lines = [
        Comparison(
            "Q-learning, any environment / usual loop", "steps/s", found["env"], found["usual"], 1.4
        ),
        Comparison(
            "Q-learning, model's tables, no numba", "steps/s", found["plain"], found["usual"], 10
        ),
    ]
    if available():
        millions = [value / 1e6 for value in found["compiled"]]
        lines += [
            Comparison(
                "Q-learning, model's tables, compiled",
                "steps/s",
                found["compiled"],
                found["usual"],
                100,
            ),
            Comparison(
                "the same, in millions",
                "M steps/s",
                millions,
                [1.0] * len(millions),
                20,
                "no peer: the ratio is against a million steps per second",
            ),
        ]
    return lines
