"""The ladder on the slippery maze: exact returns by hand, what a clone lacks, and DAgger's repair."""

from __future__ import annotations

import numpy as np
import pytest

import rlbook
from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.book.compounding_errors import expected_returns
from rlbook.book.imitation_ladder import LIMIT, Ladder, draw, measured, run
from rlbook.registry import model_of


def test_the_expected_return_of_the_best_way_is_three_where_nothing_slips() -> None:
    """Seven steps of -1, and +10 for the eighth; who stands before a wall pays 5 a step up to the limit."""
    model = model_of(rlbook.make("Maze-v0"))
    best = PolicyIteration.solve(model, gamma=0.99).greedy_policy()
    assert expected_returns(model, best, LIMIT)[[6, 7, -1]] == pytest.approx([-7, 3, 3])
    assert expected_returns(model, np.zeros(model.num_states, dtype=np.int64), LIMIT)[-1] == pytest.approx(-5 * LIMIT)


def test_the_exact_return_is_the_mean_of_many_episodes() -> None:
    """1 000 episodes at random, up to 4 standard errors."""
    model = model_of(rlbook.make("Maze-v0", slip=0.2))
    policy = np.full(model.rewards.shape, 1 / model.num_actions)
    env = rlbook.make("Maze-v0", slip=0.2)
    rng, returns = np.random.default_rng(0), []
    for seed in range(1_000):
        env.reset(seed=seed)
        total, done = 0.0, False
        while not done:
            _, reward, terminated, truncated, _ = env.step(int(rng.integers(4)))
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
    error = np.std(returns) / len(returns) ** 0.5
    assert expected_returns(model, policy, LIMIT)[-1] == pytest.approx(np.mean(returns), abs=4 * error)


def check(ladder: Ladder) -> None:
    few, many = ladder.clone[0]
    assert few < ladder.expert - 5 < many <= ladder.expert + 1e-6
    assert ladder.dagger[0, 1] == pytest.approx(ladder.expert, abs=1.0)


def test_the_clone_of_one_episode_is_far_from_the_expert_and_dagger_is_not() -> None:
    ladder = run(1, labels=(16, 1024))
    check(ladder)
    assert len(draw(ladder).axes[0].get_lines()) == 3 and measured(ladder)["expert"] == ladder.expert


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_so_from_every_seed(seed: int) -> None:
    check(run(1, first=seed, labels=(16, 1024)))
