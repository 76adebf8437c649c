"""AlphaZero finds the maze's shortest way."""

from __future__ import annotations

import pytest

import rlbook


@pytest.mark.parametrize("seed", [4, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4))])
def test_the_maze_is_solved_on_five_of_five_seeds(seed: int) -> None:
    run = rlbook.train("alphazero", "Maze-v0", seed=seed, eval_every=0)
    assert rlbook.evaluate(run, episodes=1).returns.tolist() == [3.0]
