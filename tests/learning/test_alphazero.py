"""AlphaZero finds the maze's shortest way, and loses no game of tic-tac-toe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlbook
from rlbook.algorithms.model_based.alphazero import AlphaZero
from rlbook.envs.tic_tac_toe import boards, is_finished, is_lost, replies, successor_table
from rlbook.interaction.spaces import AdaptedEnv, adapt_to


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_maze_is_solved_on_five_of_five_seeds(seed: int) -> None:
    run = rlbook.train("alphazero", "Maze-v0", seed=seed, eval_every=0)
    assert rlbook.evaluate(run, episodes=1).returns.tolist() == [3.0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_game_is_lost_against_any_choice_of_the_exact_player(seed: int) -> None:
    """From either side, in all games that can come about: greedy play is the same again, and the
    exact player's moves are known."""
    run = rlbook.train(
        "alphazero", "TicTacToe-v0", env_kwargs={"opponent": "self"}, seed=seed, eval_every=0
    )
    game: Any = rlbook.make("TicTacToe-v0", opponent="exact", side="first")
    env: Any = AdaptedEnv(game, adapt_to(AlphaZero, game, run.agent.config))
    env.reset(seed=0)
    agent, start, met = run.agent.bind_env(env), env.unwrapped.snapshot(), set()
    waiting = [0, *successor_table()[0].tolist()]  # where the agent moves first, and second
    while waiting:
        state = waiting.pop()
        assert not is_lost()[state], boards()[state]
        if state in met or is_finished()[state]:
            continue
        met.add(state)
        env.unwrapped.restore(start | {"state": state})
        then = successor_table()[state, agent.act(boards()[state], explore=False)]
        if not is_finished()[then]:
            waiting.extend(successor_table()[then, np.flatnonzero(replies("exact")[then])].tolist())
    assert len(met) > 100
