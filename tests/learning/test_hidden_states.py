"""DQN with a memory solves the T-maze, in which a network without one earns nothing on average."""

from __future__ import annotations

import pytest

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
