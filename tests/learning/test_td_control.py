"""SARSA, expected SARSA and double Q-learning against the optimum of the maze, on the cliff, and
against the bias of a maximum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.book.experiments.independent_runs import returns
from rlbook.envs import Maze
from rlbook.envs.maximization_bias import MaximizationBias
from rlbook.functional.schedules import Constant
from rlbook.registry import agent_class


def solved(algorithm: str, rewards: str, seeds: int, **config: Any) -> int:
    """In how many of so many runs of 500 episodes the greedy policy is worth the optimum,
    exactly."""
    env = rlbook.make("Maze-v0", rewards=rewards)
    model = Maze(rewards=rewards).model()
    start = int(model.initial.argmax())
    best = {"standard": 2.5271882698, "shaped": 8.5481004233}[rewards]
    found = 0
    for seed in range(seeds):
        agent: Any = rlbook.train(
            algorithm, env, episodes=500, seed=seed, eval_every=0, **config
        ).agent
        found += bool(
            model.policy_values(agent.greedy_policy(), 0.99)[start]
            == near(best, terms=25, size=199.0, decimals=10)
        )
    return found


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("rewards", ["standard", pytest.param("shaped", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("algorithm", "config"),
    [
        ("sarsa", {"alpha": 0.1, "epsilon": 0.1}),
        ("expected_sarsa", {"alpha": 0.5, "epsilon": 0.1}),
        ("expected_sarsa", {}),
        ("double_q_learning", {}),
    ],
)
def test_the_maze_is_solved_by_nearly_every_run(
    algorithm: str, config: dict[str, Any], rewards: str
) -> None:
    """Measured on 200 seeds: at least 99.5 %."""
    assert solved(algorithm, rewards, 20, **config) >= 19


@pytest.mark.thorough
@pytest.mark.parametrize(("rewards", "least", "most"), [("standard", 32, 40), ("shaped", 22, 39)])
def test_sarsa_with_a_large_step_size_is_not_always_right(
    rewards: str, least: int, most: int
) -> None:
    """α = .5: 96 % of the runs with the standard rewards, 73 to 78 % with the shaped ones, whose
    values lie close together.

    Of 40 runs: at least 32 (fewer with a chance below 1e-4), and 22 to 39 (outside with a chance
    below 1 in 100)."""
    assert least <= solved("sarsa", rewards, 40, alpha=0.5, epsilon=0.1) <= most


def cliff(algorithm: str, **config: Any) -> tuple[float, list[float]]:
    """The mean return of the last 100 of 500 training episodes, and the greedy return, of ten
    runs."""
    config |= {"episodes": 500, "eval_every": 0, "epsilon": 0.1, "gamma": 1.0}
    runs = [
        rlbook.train(algorithm, "CliffWalking-v1", seed=seed, **config) for seed in range(100, 110)
    ]
    return float(np.mean([run.episode_returns[-100:] for run in runs])), [
        rlbook.evaluate(run, episodes=1).mean for run in runs
    ]


def test_sarsa_walks_at_a_distance_from_the_cliff_and_q_learning_along_its_edge() -> None:
    """Sutton & Barto 2018, example 6.6. The shortest way takes 13 steps, along the edge, where a
    random step costs 100.

    SARSA's values never settle at a constant α, and its greedy policy may walk in circles: from one
    of these ten seeds it does.
    """
    sarsa, safe = cliff("sarsa", alpha=0.1)
    q_learning, short = cliff("q_learning", alpha=0.1)
    assert sarsa > q_learning + 10
    assert short == [-13.0] * 10
    assert max(safe) <= -15.0 and sum(way >= -19.0 for way in safe) >= 9


@pytest.mark.slow
def test_expected_sarsa_takes_the_safe_way_with_a_step_size_of_one() -> None:
    """Nothing is random in what follows an action, so α = 1 loses nothing; SARSA's draws of the
    next action would be all it remembers."""
    expected, ways = cliff("expected_sarsa", alpha=1.0)
    sarsa, _ = cliff("sarsa", alpha=1.0)
    assert ways == [-15.0] * 10
    assert expected > -26
    assert sarsa < expected - 20


@pytest.mark.slow
def test_two_tables_do_not_believe_in_luck() -> None:
    """Figure 6.5: the share of 400 runs that go left, in episodes 91 to 100. Going left pays noise,
    going right nothing: a return other than 0 tells them apart. An agent that knows goes left in 5
    %; the standard error is below 2.5 %."""
    model = MaximizationBias().model()
    left = {}
    for algorithm in ("double_q_learning", "q_learning"):
        kind: Any = agent_class(algorithm)
        config = kind.Config(gamma=1.0, alpha=Constant(0.1), epsilon=Constant(0.1))
        left[algorithm] = (returns(kind, config, model, episodes=100, runs=400)[:, 90:] != 0).mean()
    assert left["double_q_learning"] < 0.15
    assert left["q_learning"] > 0.35
