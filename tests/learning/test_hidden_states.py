"""DQN with a memory solves the T-maze, in which a network without one earns nothing on average."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

import rlbook

SETTINGS = {
    "steps": 10_000,
    "hidden_sizes": (32,),
    "batch_size": 16,
    "learning_rate": 2e-3,
    "eval_every": 0,
    "quiet": True,
}
"""Chosen on the seeds 0 to 3."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_a_recurrent_dqn_solves_the_t_maze(seed: int) -> None:
    """The optimum is 1; each of these ten seeds earned it in every episode."""
    run = rlbook.train("dqn", "TMaze-v0", seed=seed, recurrent="gru", **SETTINGS)
    assert set(rlbook.evaluate(run, episodes=20).returns.tolist()) == {1.0}


@pytest.mark.slow
def test_a_stack_that_is_one_too_short_never_solves_it_and_one_that_fits_may() -> None:
    """With 10 observations both arms look alike, so the mean over many episodes is at most 0 but
    for chance: five standard errors of a coin that pays 1 or -1. The best of ten seeds with 11 was
    1."""
    episodes = 400
    for frames, best in ((10, 0.0), (11, 1.0)):
        means = [
            rlbook.evaluate(run, episodes=episodes).mean
            for run in (
                rlbook.train("dqn", "TMaze-v0", seed=seed, frame_stack=frames, **SETTINGS)
                for seed in range(10, 15)
            )
        ]
        if best == 0.0:
            assert max(means) <= 5 / episodes**0.5
        else:
            assert max(means) == best


def steps_up(
    push_right: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.bool_]], poles: int
) -> NDArray[np.float64]:
    """How long a rule keeps each of N poles up that sees positions and angles only, [N, 2] of the
    step before and of now; at the start both are the same."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=poles, vectorization_mode="vector_entry_point")
    obs, _ = env.reset(seed=0)
    before = now = obs[:, [0, 2]]
    up, steps = np.ones(poles, dtype=bool), np.zeros(poles)
    while up.any():
        obs, _, fell, cut, _ = env.step(push_right(before, now).astype(np.int64))
        steps += up
        up &= ~(fell | cut)
        before, now = now, obs[:, [0, 2]]
    return steps


def test_a_pole_without_velocities_needs_two_frames() -> None:
    """docs/chapters/hidden-states.md: of 64 linear rules of one observation, 50 poles each, the
    best keeps them up for less than 50 steps on average; a rule of two does for all 500."""
    angle = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    # a position of 2.4 and an angle of 0.2 end an episode
    weights = np.repeat(np.stack([np.cos(angle) / 12, np.sin(angle)], axis=1), 50, axis=0)
    alone = steps_up(lambda before, now: (now * weights).sum(axis=1) > 0, len(weights))
    assert alone.reshape(64, 50).mean(axis=1).max() < 50
    leans = steps_up(lambda before, now: now[:, 1] > 0, 200)
    assert 35 < leans.mean() < 50
    ahead = 0.2 / 0.02  # seconds, by the seconds of a step
    stack = steps_up(lambda before, now: now[:, 1] + ahead * (now - before)[:, 1] > 0, 200)
    assert (stack == 500).all()
