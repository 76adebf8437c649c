"""What the pages say of one method beside another: "fewer", "sooner", "on 28 of 40 seeds". A comparison is a claim like a number, so it has
its runs, on seeds that chose no setting, and a test of whether chance alone would show as much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import fisher_exact, mannwhitneyu

import rlbook

FIRST_SEED = 10
LEVEL = 0.01                                 # as likely as that is a difference this large where there is none


def seeds_with_the_best_way(algorithm: str, seeds: int, **options: Any) -> int:
    """On how many seeds the greedy policy earns 3 in the maze, the best there is."""
    runs = (
        rlbook.train(algorithm, "Maze-v0", seed=seed, eval_every=0, **options)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
    )
    return sum(rlbook.evaluate(run, episodes=1).mean == 3.0 for run in runs)


def chance_of_as_many(more: int, fewer: int, seeds: int) -> float:
    """The p value of Fisher's exact test, one-sided: both methods succeed equally often."""
    table = [[more, seeds - more], [fewer, seeds - fewer]]
    return float(fisher_exact(table, alternative="greater").pvalue)


def test_a_model_saves_episodes_in_the_maze() -> None:
    """docs/chapters/model-based.md: Dyna-Q needs about 10 episodes (17 of 20 seeds), Q-learning about 50 (18 of 20)."""
    early = {name: seeds_with_the_best_way(name, 20, episodes=20) for name in ("dyna_q", "q_learning")}
    assert chance_of_as_many(early["dyna_q"], early["q_learning"], 20) < LEVEL, early
    assert seeds_with_the_best_way("dyna_q", 20, episodes=10) >= 14
    assert seeds_with_the_best_way("q_learning", 20, episodes=50) >= 14


@pytest.mark.parametrize(
    ("algorithm", "good", "bad"),
    [
        ("sarsa_lambda", {"trace_decay": 0.5, "epsilon": 0.1}, {"trace_decay": 0.9, "epsilon": 0.1}),
        ("n_step_sarsa", {"n": 8, "alpha": 0.1}, {"n": 8, "alpha": 0.3}),
    ],
)
def test_long_returns_want_small_steps_and_little_chance(
    algorithm: str, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    """docs/algorithms/sarsa_lambda.md and n_step_sarsa.md, exercises: 40 of 40 seeds beside 29 and 28."""
    found = [seeds_with_the_best_way(algorithm, 40, **options) for options in (good, bad)]
    assert chance_of_as_many(*found, 40) < LEVEL, found


@pytest.mark.slow
def test_replay_saves_steps_on_the_pendulum() -> None:
    """docs/chapters/maximum-entropy.md: after 10 000 steps SAC is near the best, and PPO has hardly begun."""
    means = {
        name: [
            rlbook.evaluate(rlbook.train(name, "Pendulum-v1", steps=10_000, seed=seed, eval_every=0), episodes=50).mean
            for seed in range(FIRST_SEED, FIRST_SEED + 5)
        ]
        for name in ("sac", "ppo")
    }
    assert mannwhitneyu(means["sac"], means["ppo"], alternative="greater").pvalue < LEVEL, means
    assert np.median(means["ppo"]) < -600, means
