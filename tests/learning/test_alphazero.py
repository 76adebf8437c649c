"""AlphaZero reaches what is known to be best: the maze's shortest way, and a game that is never lost."""

from __future__ import annotations

import pytest

import rlbook


@pytest.mark.parametrize("seed", [4, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4))])
def test_the_maze_is_solved_on_five_of_five_seeds(seed: int) -> None:
    run = rlbook.train("alphazero", "Maze-v0", seed=seed, eval_every=0)
    assert rlbook.evaluate(run, episodes=1).returns.tolist() == [3.0]


@pytest.mark.slow
def test_trained_against_itself_it_loses_no_game_against_the_exact_player_from_either_side() -> None:
    run = rlbook.train("alphazero", "TicTacToe-v0", env_kwargs={"opponent": "self"}, seed=0, eval_every=0)
    for side in ("first", "second"):
        games = rlbook.evaluate(run, "TicTacToe-v0", episodes=200, env_kwargs={"opponent": "exact", "side": side})
        assert (games.returns == 0).all(), side
