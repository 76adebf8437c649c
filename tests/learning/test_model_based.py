"""Agents that learn a model find the best way sooner, and find the new one when the world
changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlbook


@pytest.mark.parametrize("algorithm", ["dyna_q", "dyna_q_plus"])
@pytest.mark.parametrize(("env", "moves"), [("Maze-v0", 8), ("DynaMaze-v0", 14)])
def test_dyna_finds_the_shortest_way_with_its_defaults_on_ten_of_ten_seeds(
    algorithm: str, env: str, moves: int
) -> None:
    for seed in range(10):
        run = rlbook.train(algorithm, env, seed=seed, eval_every=0)
        assert len(run.episode_returns) == 100
        assert rlbook.evaluate(run, episodes=1).lengths.tolist() == [moves], f"seed {seed}"


def steps_of_episodes(planning_steps: int, seeds: int = 20, episodes: int = 40) -> np.ndarray:
    """[episodes]: environment steps of each episode, averaged over seeds; the settings of figure
    8.2."""
    options: dict[str, Any] = {
        "alpha": 0.1,
        "epsilon": 0.1,
        "gamma": 0.95,
        "eval_every": 0,
        "episodes": episodes,
    }
    runs: list[Any] = [
        rlbook.train("dyna_q", "DynaMaze-v0", seed=seed, planning_steps=planning_steps, **options)
        for seed in range(seeds)
    ]
    return np.mean([[length for _, _, length in run._episodes] for run in runs], axis=0)


def test_more_planning_needs_far_fewer_episodes_as_in_figure_8_2() -> None:
    """The way has 14 steps. Sutton and Barto: with n = 50 about 3 episodes suffice, with n = 5
    about 5, without planning about 25."""
    without, some, much = (steps_of_episodes(n) for n in (0, 5, 50))
    good = 25.0
    first = [int(np.argmax(steps < good)) + 1 for steps in (without, some, much)]
    assert first[2] <= 4 < first[1] <= 10 < 15 <= first[0], first
    assert much[:10].sum() < some[:10].sum() < without[:10].sum()


def reward_in_all(algorithm: str, variant: str, steps: int, **options: Any) -> np.ndarray:
    """[10 seeds]: episodes finished, each worth 1, while the maze changes."""
    options = {"alpha": 0.5, "epsilon": 0.1, "gamma": 0.95, "planning_steps": 20} | options
    kwargs: dict[str, Any] = {"env_kwargs": {"variant": variant}, "steps": steps, "eval_every": 0}
    runs = [
        rlbook.train(algorithm, "DynaMaze-v0", seed=seed, **kwargs, **options) for seed in range(10)
    ]
    assert not any("model's tables" in note for run in runs for note in run.notes), (
        "a maze that changes is no single model"
    )
    return np.array([sum(run.episode_returns) for run in runs])


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "steps"), [("blocking", 3_000), ("shortcut", 6_000)])
def test_curiosity_pays_when_the_world_changes(variant: str, steps: int) -> None:
    """Figures 8.4 and 8.5: Dyna-Q+ earns more than Dyna-Q in both mazes; by more than two standard
    errors of the difference."""
    curious, incurious = (
        reward_in_all("dyna_q_plus", variant, steps, kappa=1e-3),
        reward_in_all("dyna_q", variant, steps),
    )
    error = np.hypot(curious.std(ddof=1), incurious.std(ddof=1)) / 10**0.5
    assert curious.mean() - incurious.mean() > 2 * error, (curious, incurious)


@pytest.mark.slow
@pytest.mark.parametrize("unseen", ["zero", "optimistic"])
@pytest.mark.parametrize(("env", "moves"), [("Maze-v0", 8), ("DynaMaze-v0", 14)])
def test_certainty_equivalence_finds_the_shortest_way_on_ten_of_ten_seeds(
    env: str, moves: int, unseen: str
) -> None:
    for seed in range(10):
        run = rlbook.train(
            "certainty_equivalence", env, steps=4_000, seed=seed, eval_every=0, unseen=unseen
        )
        assert rlbook.evaluate(run, episodes=1).lengths.tolist() == [moves], f"seed {seed}"


def test_optimism_alone_explores_the_maze() -> None:
    """Without a single random action: what is unknown looks best until it is known. 4 actions in
    each of 18 cells, the goal left out."""
    options: dict[str, Any] = {"steps": 600, "epsilon": 0.0, "plan_every": 5, "eval_every": 0}
    run = rlbook.train("certainty_equivalence", "Maze-v0", unseen="optimistic", **options)
    assert run.metrics[-1]["known_pairs"] == 72
    assert rlbook.evaluate(run, episodes=1).lengths.tolist() == [8]


@pytest.mark.slow
def test_value_iteration_balances_the_pole_in_a_model_estimated_from_samples() -> None:
    """16⁴ cells, 200 000 sampled steps. Five seeds came to 378 … 444 of 500, with a mean of 417; a
    random policy to 22."""
    means = []
    for seed in range(5):
        run = rlbook.train("value_iteration", "CartPole-v1", seed=seed, eval_every=0)
        assert any("estimated from 200,000 sampled steps" in note for note in run.notes)
        means.append(rlbook.evaluate(run, episodes=50).mean)
    assert min(means) > 200 and np.mean(means) > 300, means
