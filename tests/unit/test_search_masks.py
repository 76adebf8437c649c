"""Searches where some actions are forbidden: no simulation tries one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

import rlbook
from rlbook.interaction.action_masks import UNUSED


class Locks(gymnasium.Env):
    """A corridor of doors: in each state some of four actions are allowed, drawn from the state; another one is an error.

    Action a moves by a % 2 + 1 and pays a / 10; the episode ends behind door 12.
    """

    action_space, observation_space = spaces.Discrete(4), spaces.Box(0.0, 20.0, (1,))

    at = 0

    def free(self) -> NDArray[np.int8]:
        free = np.random.default_rng(self.at).integers(2, size=4).astype(np.int8)
        free[self.at % 4] = 1
        return free if self.at < 12 else np.zeros(4, dtype=np.int8)

    def seen(self) -> tuple[NDArray[np.float32], dict[str, Any]]:
        return np.array([self.at], dtype=np.float32), {"action_mask": self.free()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return self.seen()

    def step(self, action: Any) -> Any:
        if not self.free()[action]:
            raise AssertionError(f"action {action} is forbidden at {self.at}")
        self.at += int(action) % 2 + 1
        obs, info = self.seen()
        return obs, int(action) / 10, self.at >= 12, False, info


@pytest.mark.parametrize("stochastic", ["auto", "chance", "open-loop"])
@pytest.mark.parametrize("algorithm", ["mcts", "alphazero"])
def test_a_search_tries_allowed_actions_alone(algorithm: str, stochastic: str) -> None:
    """Anything else is an error there, in simulations too."""
    run = rlbook.train(algorithm, Locks(), episodes=2, simulations=60, stochastic=stochastic)
    assert len(run.episode_returns) == 2 and UNUSED not in run.notes
    assert rlbook.evaluate(run, episodes=1).mean > 0


@pytest.mark.parametrize("reuse_tree", [False, True])
def test_a_search_of_taxi_tries_what_taxi_allows(reuse_tree: bool) -> None:
    """Taxi is a table, and its mask a method."""
    run = rlbook.train("mcts", "Taxi-v4", steps=30, simulations=50, reuse_tree=reuse_tree)
    env, tree = gymnasium.make("Taxi-v4").unwrapped, run.agent.tree  # type: ignore[attr-defined]
    tried = {tuple((np.array(tree.counts(node)) > 0).tolist()) for node in range(1)}
    assert tree.num_nodes > 1 and any(tuple((env.action_mask(state) > 0).tolist()) in tried for state in range(500))  # type: ignore[attr-defined]
    for state in range(0, 500, 7):
        agent: Any = run.agent
        mask = env.action_mask(state)  # type: ignore[attr-defined]
        assert mask[agent.act(state, explore=False)] == 1


class Narrow(gymnasium.Env):
    """A table whose info has a mask that no method tells: of two ways the better one is locked."""

    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)
    P = {0: {0: [(1.0, 1, 1.0, True)], 1: [(1.0, 1, 5.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)], 1: [(1.0, 1, 0.0, True)]}}
    initial_state_distrib = np.array([1.0, 0.0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return 0, {"action_mask": np.array([1, 0], dtype=np.int8)}

    def step(self, action: Any) -> Any:
        assert action == 0
        return 1, 1.0, True, False, {"action_mask": np.zeros(2, dtype=np.int8)}


def test_a_table_that_does_not_say_what_is_allowed_is_left_for_the_environment() -> None:
    assert rlbook.evaluate(rlbook.train("mcts", Narrow(), episodes=2), episodes=2).returns.tolist() == [1.0, 1.0]


def test_moving_second_a_search_does_not_lose_to_chance_nor_to_the_exact_player() -> None:
    for opponent, games in (("random", 8), ("exact", 4)):
        kwargs = {"opponent": opponent, "side": "second"}
        run = rlbook.train("mcts", "TicTacToe-v0", env_kwargs=kwargs, episodes=1, simulations=500, gamma=1.0)
        assert (rlbook.evaluate(run, episodes=games).returns >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("observation", ["board", "index"])
def test_of_sixty_games_a_search_loses_none(observation: str) -> None:
    for opponent, games in (("random", 60), ("exact", 20)):
        kwargs = {"opponent": opponent, "side": "second", "observation": observation}
        run = rlbook.train("mcts", "TicTacToe-v0", env_kwargs=kwargs, episodes=1, simulations=1_000, gamma=1.0)
        assert (rlbook.evaluate(run, episodes=games).returns >= 0).all()
