"""Planning reaches what the textbook prints: figure 4.1, examples 3.5 and 3.8, the gambler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import assert_near, near

import rlbook
from rlbook.algorithms.planning.policy_evaluation import PolicyEvaluation
from rlbook.envs import TabularMDP

TOLERANCE = PolicyEvaluation.Config().tolerance  # the planners' too, unless they are exact
OPTIMAL_PLANNERS = (
    "value_iteration",
    "policy_iteration",
    "modified_policy_iteration",
    "prioritized_sweeping",
)


def small_grid() -> TabularMDP:
    return TabularMDP.from_env(rlbook.make("GridWorld-v0"))


def swept(method: str, sweeps: int) -> np.ndarray:
    """[4, 4]: the values of the uniform policy on the 4 × 4 grid after so many sweeps from 0."""
    return (
        PolicyEvaluation.solve(
            small_grid(), gamma=1.0, method=method, max_sweeps=sweeps, tolerance=0.0
        )
        .values()
        .reshape(4, 4)
    )


@pytest.mark.parametrize("method", ["in-place", "synchronous", "linear"])
def test_figure_4_1_in_the_end(method: str) -> None:
    run = rlbook.train("policy_evaluation", "GridWorld-v0", gamma=1.0, method=method)
    printed = [[0, -14, -20, -22], [-14, -18, -20, -20], [-20, -20, -18, -14], [-22, -20, -14, 0]]
    # what a last sweep would still change, at each step of an episode
    within = TOLERANCE * small_grid().expected_steps(np.full((16, 4), 0.25)).max()
    np.testing.assert_allclose(run.agent.values().reshape(4, 4), printed, rtol=0, atol=within)


def test_figure_4_1_sweep_by_sweep() -> None:
    """k = 1: one step costs 1. k = 2: -1 + (3/4) · -1 beside a corner, -2 elsewhere. The rest is
    printed, cut off after one digit."""
    np.testing.assert_array_equal(
        swept("synchronous", 1), [[0, -1, -1, -1], [-1] * 4, [-1] * 4, [-1, -1, -1, 0]]
    )
    np.testing.assert_array_equal(swept("synchronous", 2)[0], [0, -1.75, -2, -2])
    np.testing.assert_array_equal(
        swept("synchronous", 3)[:2], [[0, -2.4375, -2.9375, -3], [-2.4375, -2.875, -3, -2.9375]]
    )
    assert_near(swept("synchronous", 10)[0], [0, -6.1380, -8.3524, -8.9673], decimals=4)
    assert_near(swept("synchronous", 10)[1], [-6.1380, -7.7374, -8.4278, -8.3524], decimals=4)


def test_in_place_news_travels_along_the_row_within_one_sweep() -> None:
    """-1, then -1 + (1/4) · -1, then -1 + (1/4) · -1.25."""
    np.testing.assert_array_equal(swept("in-place", 1)[0], [0, -1, -1.25, -1.3125])


@pytest.mark.parametrize(("method", "sweeps"), [("synchronous", 173), ("in-place", 114)])
def test_how_many_sweeps_figure_4_1_takes(method: str, sweeps: int) -> None:
    """Until no value changes by more than 1e-4."""
    run = rlbook.train("policy_evaluation", "GridWorld-v0", gamma=1.0, method=method, eval_every=0)
    changes = [report["change"] for report in run.metrics]
    threshold = 1e-4
    assert next(i for i, change in enumerate(changes, start=1) if change < threshold) == sweeps


def test_example_3_5() -> None:
    run = rlbook.train(
        "policy_evaluation", "GridWorld-v0", env_kwargs={"layout": "5x5"}, gamma=0.9, eval_every=0
    )
    values = run.agent.values().reshape(5, 5)
    assert_near(values[0], [3.3090, 8.7893, 4.4276, 5.3224, 1.4922], decimals=4)
    assert_near(values[4], [-1.8577, -1.3452, -1.2293, -1.4229, -1.9752], decimals=4)


@pytest.mark.parametrize("planner", OPTIMAL_PLANNERS)
def test_example_3_8(planner: str) -> None:
    """State A: 10 + γ^5 V(A), so 10 / (1 - 0.9^5) = 24.4194."""
    run = rlbook.train(
        planner, "GridWorld-v0", env_kwargs={"layout": "5x5"}, gamma=0.9, eval_every=0
    )
    values = run.agent.values().reshape(5, 5)
    # in units of the largest reward
    assert values[0, 1] == pytest.approx(10 / (1 - 0.9**5), rel=0, abs=10 * TOLERANCE)
    assert_near(values[0], [21.9775, 24.4194, 21.9775, 19.4194, 17.4775], decimals=4)
    assert_near(values[1], [19.7797, 21.9775, 19.7797, 17.8018, 16.0216], decimals=4)
    assert_near(values[4], [14.4194, 16.0216, 14.4194, 12.9775, 11.6797], decimals=4)


@pytest.mark.parametrize("planner", OPTIMAL_PLANNERS)
@pytest.mark.parametrize(
    ("heads", "known"),
    [
        (0.4, {25: 0.16, 50: 0.4, 75: 0.64, 51: 0.403098, 1: 0.002066, 99: 0.964333}),
        (0.25, {50: 0.25, 75: 0.4375}),
        (0.5, {1: 0.01, 25: 0.25, 50: 0.5, 99: 0.99}),
    ],
)
def test_the_gambler(planner: str, heads: float, known: dict[int, float]) -> None:
    """At 50: heads. At 75: heads, or tails and then heads. With a fair coin V(s) = s / 100, and
    planning ends all the same."""
    exact = {"tolerance": 1e-10} if planner != "policy_iteration" else {}
    options = exact | {"env_kwargs": {"heads_probability": heads}, "gamma": 1.0, "eval_every": 0}
    run = rlbook.train(planner, "Gambler-v0", **options)
    # a game takes s (100 - s) steps at most: what is left at each of them, and six decimals
    error = 1e-10 * 50 * 50 + 0.5e-6
    for capital, value in known.items():
        assert run.agent.values()[capital] == pytest.approx(value, rel=0, abs=error)


def test_the_gamblers_optimal_stakes() -> None:
    """Near-ties are 1e-12 apart, so stakes count as equal within 1e-9."""
    env: Any = rlbook.make("Gambler-v0").unwrapped
    agent = rlbook.train("policy_iteration", "Gambler-v0", gamma=1.0, eval_every=0).agent
    values = agent.action_values()
    for capital, stakes in {51: {1, 49}, 25: {25}, 50: {50}, 75: {25}}.items():
        best = np.flatnonzero(values[capital] >= values[capital].max() - 1e-9)
        assert {int(env.stakes[capital, action]) for action in best} - {0} == stakes


@pytest.mark.parametrize("planner", OPTIMAL_PLANNERS)
@pytest.mark.parametrize(("env", "optimum"), [("Maze-v0", 3.0), ("CliffWalking-v1", -13.0)])
def test_planners_walk_the_shortest_way(planner: str, env: str, optimum: float) -> None:
    run = rlbook.train(planner, env)
    assert run.metrics[-1]["eval_return"] == near(optimum, terms=13, size=20.0)


@pytest.mark.parametrize("planner", OPTIMAL_PLANNERS)
def test_nothing_is_expected_from_beyond_an_end_and_no_successor_is_lost(planner: str) -> None:
    """Bootstrapping from terminal states would make the cliff -100 and Taxi 835; overwriting equal
    successors, the lake .3852567."""
    known = {
        "FrozenLake-v1": (0, 0.5420259320),
        "CliffWalking-v1": (36, -sum(0.99**k for k in range(13))),
    }
    ten_decimals = 0.5e-10
    for env, (start, value) in known.items():
        values = rlbook.train(planner, env, eval_every=0).agent.values()
        assert values[start] == pytest.approx(value, rel=0, abs=TOLERANCE + ten_decimals)
    taxi = rlbook.train(planner, "Taxi-v4", eval_every=0)
    # rewards up to 20
    assert taxi.metrics[-1]["value"] == pytest.approx(
        6.3274643149, rel=0, abs=20 * TOLERANCE + ten_decimals
    )
