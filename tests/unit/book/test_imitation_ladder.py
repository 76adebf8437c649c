"""The ladder on the slippery maze: exact returns by hand, what a clone lacks, and DAgger's
repair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import near, rounding_bound

import rlbook
from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.book.experiments.compounding_errors import expected_returns
from rlbook.book.experiments.imitation_ladder import LIMIT, LadderReturns, draw, measurements, run
from rlbook.registry import model_of


def test_the_expected_return_of_the_best_way_is_three_where_nothing_slips() -> None:
    """Seven steps of -1, and +10 for the eighth; who stands before a wall pays 5 a step up to the
    limit."""
    model = model_of(rlbook.make("Maze-v0"))
    best = PolicyIteration.solve(model, gamma=0.99).greedy_policy()
    sums: dict[str, Any] = {"terms": LIMIT * model.num_states, "size": 5 * LIMIT}
    assert expected_returns(model, best, LIMIT)[[6, 7, -1]] == near([-7, 3, 3], **sums)
    bumping = expected_returns(model, np.zeros(model.num_states, dtype=np.int64), LIMIT)
    assert bumping[-1] == near(-5 * LIMIT, **sums)


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
    assert expected_returns(model, policy, LIMIT)[-1] == pytest.approx(
        np.mean(returns), abs=4 * error
    )


def check(ladder: LadderReturns) -> None:
    few, many = ladder.clone[0]
    cells = 25
    rounding = rounding_bound("float64", terms=LIMIT * cells, size=5 * LIMIT)
    assert few < ladder.expert - 5 < many <= ladder.expert + rounding
    assert ladder.expert - 1 < ladder.dagger[0, 1] <= ladder.expert + rounding


@pytest.mark.slow
def test_the_clone_of_one_episode_is_far_from_the_expert_and_dagger_is_not() -> None:
    ladder = run(1, labels=(16, 1024))
    check(ladder)
    assert (
        len(draw(ladder).axes[0].get_lines()) == 3
        and measurements(ladder)["expert"] == ladder.expert
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_so_from_every_seed(seed: int) -> None:
    check(run(1, first=seed, labels=(16, 1024)))
