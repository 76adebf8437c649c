"""The tabular agents find the best policy that exists, and the test knows what that is."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.envs import Maze, TabularMDP


@pytest.mark.parametrize(
    ("rewards", "optimum"), [("standard", 7 * -1 + 10), ("shaped", 8 * -0.1 + 10)]
)
def test_q_learning_with_its_defaults_solves_the_maze_on_ten_of_ten_seeds(
    rewards: str, optimum: float
) -> None:
    for seed in range(10):
        run = rlbook.train(
            "q_learning",
            rlbook.make("Maze-v0", rewards=rewards),
            episodes=500,
            seed=seed,
            eval_every=0,
        )
        assert len(run.episode_returns) == 500
        assert rlbook.evaluate(run, episodes=1).mean == near(optimum, terms=8, size=10.0), (
            f"seed {seed}"
        )


def test_q_learning_approaches_the_optimal_action_values() -> None:
    """On a slippery maze, with a step size that shrinks. Visited often enough, Q at the start is V*
    to a few hundredths: seeds 100 to 109 were -.038 to .057 away."""
    model = Maze(rewards="shaped", slip=0.1).model()
    env = rlbook.make("Maze-v0", rewards="shaped", slip=0.1)
    run = rlbook.train(
        "q_learning", env, steps=200_000, eval_every=0, alpha="exponential(0.5, 0.002)", epsilon=0.3
    )
    values = np.zeros(model.num_states)
    for _ in range(5000):
        values = model.backup(values, 0.99).max(axis=1)
    assert run.agent.values()[0] == pytest.approx(values[0], rel=0, abs=0.1)  # as above


def test_q_learning_is_not_caught_by_ties_on_a_lake_without_reward_for_a_long_time() -> None:
    """Every value is 0 until the goal is met by chance. An argmax that always takes the first
    action would never leave the corner."""
    env = "FrozenLake-v1"
    for seed in range(5):
        run = rlbook.train(
            "q_learning",
            env,
            episodes=1000,
            seed=seed,
            eval_every=0,
            env_kwargs={"is_slippery": False},
        )
        model = TabularMDP.from_env(rlbook.make(env, is_slippery=False))
        assert model.policy_values(run.agent.greedy_policy(), 0.99)[0] == near(
            0.99**5, terms=16, size=199.0
        ), f"seed {seed}"


def test_value_iteration_solves_the_maze_through_the_same_front_door() -> None:
    run = rlbook.train("value_iteration", "Maze-v0", seed=0)
    assert rlbook.evaluate(run, episodes=3).returns.tolist() == [3.0, 3.0, 3.0]
