"""Q-learning and the table: the update by hand, acting, ties, schedules, saving."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near
from scipy import stats

from rlbook.agent import Step
from rlbook.algorithms.exact_metrics import EXACT_METRICS
from rlbook.algorithms.tabular.q_learning import QLearning, QLearningConfig
from rlbook.functional.schedules import Constant, Linear


class Spaces:
    """As much of an environment as a tabular agent looks at."""

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_states)
        self.action_space = gymnasium.spaces.Discrete(num_actions)


def agent_with(table: Any, seed: int = 0, **config: Any) -> QLearning:
    q = np.array(table, dtype=float)
    env: Any = Spaces(*q.shape)
    agent = QLearning(env, QLearningConfig(**config), seed)
    agent.q[:] = q
    return agent


def test_the_scripted_updates_give_the_recorded_table(fixtures: dict[str, Any]) -> None:
    """The row of the terminal state is 7, 7 on purpose: bootstrapping from it would show.

    (0,0): .5 + .5 (1 + .9·2 - .5) = 1.65, then .5·1.65 + .5 (-1 + .9·2) = 1.225; (1,1): -1 + .5 (2
    + .9·1.65 + 1) = 1.2425; (1,0): 2 + .5 (5 - 2) = 3.5.
    """
    script = fixtures["scripted_updates"]
    agent = agent_with(script["init_Q"], alpha=Constant(script["alpha"]), gamma=script["gamma"])
    for state, action, reward, next_state, _, terminated in script[
        "transitions(s,a,r,s',a',terminated)"
    ]:
        agent.learn(Step(state, action, reward, next_state, terminated, False))
    assert_near(agent.q, script["q"], terms=5)


def test_a_time_limit_still_bootstraps() -> None:
    agent = agent_with([[0.0], [4.0]], alpha=Constant(0.5), gamma=0.9)
    agent.learn(Step(0, 0, 1.0, 1, False, True))
    assert agent.q[0, 0] == near(0.5 * (1 + 0.9 * 4), terms=3)


def test_one_state_with_a_time_limit_is_worth_reward_over_one_minus_gamma() -> None:
    """r = 1 and a limit of 10 steps: 1 / (1 - .9) = 10; taking the limit for an end gives (1 -
    .9^10) / (1 - .9) on average 5.26."""
    agent = agent_with([[0.0]], alpha=Constant(0.5), gamma=0.9)
    for time in range(2000):
        agent.learn(Step(0, 0, 1.0, 0, False, time % 10 == 9))
    updates = 1 / (0.5 * (1 - 0.9))  # as long does a rounding stay in the table
    assert agent.values()[0] == near(10.0, terms=3, size=10.0 * updates)


def test_the_update_reads_the_old_table_on_a_self_loop() -> None:
    """Q(s, a) ← 2 + .5 (1 + .9 max(2, 3) - 2): the maximum is taken before anything is written."""
    agent = agent_with([[2.0, 3.0]], alpha=Constant(0.5), gamma=0.9)
    metrics = agent.learn(Step(0, 0, 1.0, 0, False, False))
    assert metrics["td_error"] == near(1 + 0.9 * 3 - 2, terms=3, size=3.0)
    assert agent.q.tolist() == [[near(2 + 0.5 * 1.7, terms=4), 3.0]]


def test_gamma_zero_learns_the_reward_alone() -> None:
    agent = agent_with([[5.0, 5.0], [9.0, 9.0]], alpha=Constant(1.0), gamma=0.0)
    agent.learn(Step(0, 1, 2.5, 1, False, False))
    assert agent.q.tolist() == [[5.0, 2.5], [9.0, 9.0]]


def test_equally_good_actions_are_equally_likely() -> None:
    """10 000 greedy picks among 4 equal actions; a fair choice fails this once in 10^4."""
    agent = agent_with(np.zeros((1, 4)), epsilon=Constant(0.0))
    counts = np.bincount([agent.act(0) for _ in range(10_000)], minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_only_the_best_actions_share_the_tie() -> None:
    agent = agent_with([[1.0, 3.0, 2.0, 3.0]], epsilon=Constant(0.0))
    counts = np.bincount([agent.act(0) for _ in range(4_000)], minlength=4)
    assert counts[[0, 2]].tolist() == [0, 0]
    assert stats.chisquare(counts[[1, 3]]).pvalue > 1e-4


def test_epsilon_is_the_probability_of_a_uniform_action() -> None:
    """With ε = .4 and 4 actions the best is taken with probability .6 + .1, each other with .1."""
    agent = agent_with([[0.0, 1.0, 0.0, 0.0]], epsilon=Constant(0.4))
    counts = np.bincount([agent.act(0) for _ in range(20_000)], minlength=4)
    assert stats.chisquare(counts, 20_000 * np.array([0.1, 0.7, 0.1, 0.1])).pvalue > 1e-4


def test_the_agent_acts_by_the_epsilon_of_now_as_it_is_logged() -> None:
    """At the end of linear(1, 0) the best action is always taken; at its beginning one in four
    times, of 400: 100 ± 5 · √(400 · 3/16)."""
    agent = agent_with([[0.0, 1.0, 0.0, 0.0]], epsilon=Linear(1.0, 0.0))
    assert 56 < sum(agent.act(0) == 1 for _ in range(400)) < 144
    agent.progress = 1.0
    assert all(agent.act(0) == 1 for _ in range(400))


def test_without_exploration_acting_is_repeatable_and_changes_nothing() -> None:
    agent = agent_with(np.random.default_rng(0).integers(3, size=(50, 4)), epsilon=Constant(1.0))
    before = agent.state_dict()
    actions = [agent.act(state, explore=False) for state in range(50)]
    assert (
        actions
        == [agent.act(state, explore=False) for state in range(50)]
        == agent.greedy_policy().tolist()
    )
    assert all(
        agent.q[state, action] == agent.q[state].max() for state, action in enumerate(actions)
    )
    assert agent.state_dict()["rng"] == before["rng"]


def test_states_without_a_preference_do_not_all_point_the_same_way() -> None:
    agent = agent_with(np.zeros((40, 4)))
    assert np.bincount(agent.greedy_policy(), minlength=4).tolist() == [10, 10, 10, 10]


def test_the_schedules_follow_progress() -> None:
    agent = agent_with([[0.0]], epsilon=Linear(1.0, 0.05, 0.1), alpha="linear(0.5, 0.1)")
    shown = []
    for progress in (0.0, 0.05, 0.1, 0.999):
        agent.progress = progress
        shown.append(agent.learn(Step(0, 0, 0.0, 0, True, False)))
    assert [item["epsilon"] for item in shown] == near([1.0, 0.525, 0.05, 0.05], terms=3)
    assert [item["alpha"] for item in shown] == near([0.5, 0.48, 0.46, 0.5 - 0.4 * 0.999], terms=3)


def test_a_restored_agent_goes_on_exactly_as_the_saved_one() -> None:
    first, second = agent_with(np.zeros((6, 3)), seed=1), agent_with(np.ones((6, 3)), seed=2)
    rng = np.random.default_rng(0)
    script = [
        (int(s), float(r), int(t), bool(e))
        for s, r, t, e in zip(*(rng.integers(6, size=(4, 300))), strict=True)
    ]

    def live(agent: QLearning, part: list[tuple[int, float, int, bool]]) -> list[int]:
        actions = []
        for state, reward, next_state, terminated in part:
            actions.append(agent.act(state))
            agent.learn(Step(state, actions[-1], reward, next_state, terminated, False))
        return actions

    live(first, script[:150])
    second.load_state_dict(first.state_dict())
    assert live(first, script[150:]) == live(second, script[150:])
    np.testing.assert_array_equal(first.q, second.q)


def test_every_logged_number_is_explained_and_the_error_is_the_one_before_the_update() -> None:
    agent = agent_with([[1.0]], alpha=Constant(0.5))
    metrics = agent.learn(Step(0, 0, -2.0, 0, True, False))
    assert set(metrics) == set(QLearning.METRICS) - {"temperature"} - set(EXACT_METRICS)
    assert metrics["td_error"] == abs(-2.0 - 1.0)


def test_the_values_are_the_greatest_action_values() -> None:
    agent = agent_with([[1.0, 2.0], [-1.0, -3.0]])
    assert agent.values().tolist() == [2.0, -1.0]
    assert agent.action_values().tolist() == [[1.0, 2.0], [-1.0, -3.0]]
    assert agent.greedy_policy().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"gamma": 1.5}, r"gamma must be a number in \[0, 1\], got 1.5"),
        ({"gamma": float("nan")}, r"gamma must be a number in \[0, 1\], got nan"),
        ({"alpha": 0.0}, r"alpha must be a number in \(0, 1\] at all times, got 0.0"),
        ({"alpha": 1.5}, r"alpha must be a number in \(0, 1\] at all times, got 1.5"),
        (
            {"epsilon": "linear(1.0, -0.1)"},
            r"epsilon must be a number in \[0, 1\] at all times, got",
        ),
        (
            {"epsilon": "often"},
            r"epsilon: a schedule must be a number, linear\(START, END\[, FRACTION\]\), exp",
        ),
        ({"bins": 0}, "bins must be an integer of at least 1, got 0"),
        ({"action_bins": 1}, "action_bins must be an integer of at least 2, got 1"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        QLearningConfig(**config)


def test_the_update_is_the_formula_for_many_random_numbers() -> None:
    """Written out a second time with plain floats, to the bit."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(4, 3))
    for state, action, next_state, ended in itertools.product(
        range(4), range(3), range(4), (False, True)
    ):
        reward, alpha, gamma = (float(number) for number in rng.random(3))
        agent = agent_with(q, alpha=Constant(alpha), gamma=gamma)
        before = q.tolist()
        metrics = agent.learn(Step(state, action, reward, next_state, ended, False))
        expected = (
            reward + (0.0 if ended else gamma * max(before[next_state])) - before[state][action]
        )
        before[state][action] += alpha * expected
        assert metrics["td_error"] == abs(expected)
        assert agent.q.tolist() == before
        q = agent.q
