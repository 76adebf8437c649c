"""With a memory the T-maze is solved, and without one it cannot be."""

import pytest

import rlbook

SETTINGS = {
    "num_envs": 16,
    "rollout_steps": 64,
    "learning_rate": 2e-3,
    "entropy_coef": 0.01,
    "eval_every": 0,
    "quiet": True,
}
OPTIMUM = 1.0  # the prize; see the environment's docstring


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_ppo_with_a_memory_solves_the_t_maze(seed: int) -> None:
    """All ten seeds take the right arm in every one of 50 greedy episodes, the shortest way."""
    run = rlbook.train("ppo", "TMaze-v0", steps=40_000, recurrent="gru", seed=seed, **SETTINGS)
    result = run.evaluate(episodes=50)
    assert (result.returns == OPTIMUM).all() and (result.lengths == 11).all()
