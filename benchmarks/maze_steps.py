"""The maze: steps of the native vector form, and the time in which PPO solves it."""

from __future__ import annotations

import gymnasium
import numpy as np

import rlbook
from benchmarks.timing import Comparison, seconds
from rlbook.algorithms.policy.ppo import PPO, PPOConfig
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.loop import act_step_reset, do_nothing
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.interaction.vector_envs.vector import VectorInteraction

STREAMS, STEPS = 1_024, 2_000


def steps_per_second() -> float:
    """Through the whole `step`, observations and time limit included; those that have ended are
    reset."""
    rlbook.make("Maze-v0").close()
    env = gymnasium.make_vec("rlbook/Maze-v0", num_envs=STREAMS)
    actions = np.random.default_rng(0).integers(4, size=(STEPS, STREAMS))
    env.reset(seed=0)

    def run() -> None:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            over = terminated | truncated
            if over.any():
                env.reset(options={"reset_mask": over})

    return STREAMS * STEPS / seconds(run)


def acting_steps_per_second(num_envs: int = 4_096, rounds: int = 100) -> float:
    """Through the loop, with a network of 2 × 64 units that draws every action."""
    config = PPOConfig()
    env = adapted_vector(PPO, EnvRecipe.from_env("Maze-v0"), num_envs, config)
    agent, interaction = PPO(env, config), VectorInteraction(env, np.random.default_rng(0))
    steps = act_step_reset(interaction, agent.act, do_nothing)

    def run() -> None:
        for _ in range(rounds):
            next(steps)

    run()
    return num_envs * rounds / seconds(run)


def solve_seconds(seed: int) -> float:
    """Until the greedy policy is optimal at an evaluation; the run ends there."""
    for steps in (4_000, 8_000, 12_000, 16_000, 24_000, 40_000):
        elapsed = seconds(
            lambda steps=steps: runs.append(
                rlbook.train("ppo", "Maze-v0", steps=steps, seed=seed, eval_every=0)
            )
        )
        if abs(rlbook.evaluate(runs[-1], episodes=1).mean - 3.0) < 1e-9:
            return elapsed
    return float("inf")


runs: list[rlbook.Run] = []


def compare() -> list[Comparison]:
    rates = [steps_per_second() for _ in range(6)][1:]
    acting = [acting_steps_per_second() for _ in range(6)][1:]
    solved = [solve_seconds(seed) for seed in range(5)]
    return [
        Comparison(
            "maze, native vector form, 1 024 environments (M)",
            "M steps/s",
            [rate / 1e6 for rate in rates],
            [1.0] * len(rates),
            20,
            "no peer: the ratio is against a million steps per second",
        ),
        Comparison(
            "maze, 4 096 environments, a network acting (M)",
            "M steps/s",
            [rate / 1e6 for rate in acting],
            [1.0] * len(acting),
            1,
            "no peer: the ratio is against a million steps per second",
        ),
        Comparison(
            "PPO solves the maze (solutions per 2 s)",
            "1/2 s",
            [2.0 / second for second in solved],
            [1.0] * len(solved),
            1,
            "no peer: seconds to an optimal policy, 5 seeds:"
            f" {', '.join(f'{second:.2f}' for second in solved)}",
        ),
    ]
