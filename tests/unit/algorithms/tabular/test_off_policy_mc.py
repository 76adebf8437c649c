"""Off-policy Monte Carlo by hand: the weights, which step they belong to, the three averages, and
the tail that control learns from."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.tabular.off_policy_mc import OffPolicyMC
from rlbook.algorithms.tabular.off_policy_mc_config import OffPolicyMCConfig
from rlbook.envs import TabularMDP


class Spaces:
    """As much of an environment as a tabular agent looks at."""

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_states)
        self.action_space = gymnasium.spaces.Discrete(num_actions)


def agent_of(num_states: int, num_actions: int, **config: Any) -> OffPolicyMC:
    env: Any = Spaces(num_states, num_actions)
    return OffPolicyMC(env, OffPolicyMCConfig(**config))


def predictor(policy: Any, **config: Any) -> OffPolicyMC:
    return agent_of(len(policy), len(policy[0]), task="prediction", policy=policy, **config)


def play(
    agent: OffPolicyMC, *steps: tuple[int, int, float], end: int = 0, truncated: bool = False
) -> dict[str, float]:
    """An episode of (state, action, reward), after which the state is `end`; returns what the last
    step logged."""
    logged: dict[str, float] = {}
    for time, (state, action, reward) in enumerate(steps):
        last = time == len(steps) - 1
        logged = agent.learn(
            Step(
                state,
                action,
                reward,
                end if last else steps[time + 1][0],
                last and not truncated,
                last and truncated,
            )
        )
    return logged


@pytest.mark.parametrize(
    ("weighting", "expected"), [("ordinary", 2.0), ("weighted", 1.0), ("truncated", 4 / 3)]
)
def test_returns_1_0_1_with_ratios_2_0_4_give_the_recorded_averages(
    fixtures: dict[str, Any], weighting: str, expected: float
) -> None:
    """The acting policy is uniform over 4 actions. One state, then another: π / b = .5 / .25 = 2;
    0; 1 / .25 · 1 = 4, in steps of 2 and 2.

    ordinary (2·1 + 0·0 + 4·1) / 3 = 2; weighted 6 / 6 = 1; truncated at 2: (2 + 0 + 2) / 3.
    """
    agent = predictor(
        [[0.5, 0.5, 0.0, 0.0]] * 2, epsilon=1.0, weighting=weighting, clip=2.0, gamma=1.0
    )
    play(agent, (0, 0, 1.0))
    play(agent, (0, 2, 0.0))
    play(agent, (0, 0, 0.0), (1, 1, 1.0))
    assert agent.values()[0] == near(expected, terms=3)
    if weighting != "truncated":
        assert expected == fixtures["is_fixture"][weighting]


def test_a_weight_covers_its_own_step_and_all_that_follow_and_none_before() -> None:
    """π = (.8, .2) in state 0, (.4, .6) in 1, (.5, .5) in 2; b is uniform. ρ from 2: 1; from 1:
    1.2; from 0: 1.6 · 1.2 = 1.92.

    G = 3, 2 + .5·3 = 3.5, 1 + .5·3.5 = 2.75. Ordinary, one episode: V = ρ G.
    """
    agent = predictor(
        [[0.8, 0.2], [0.4, 0.6], [0.5, 0.5]], epsilon=1.0, weighting="ordinary", gamma=0.5
    )
    logged = play(agent, (0, 0, 1.0), (1, 1, 2.0), (2, 0, 3.0))
    assert_near(agent.values(), [1.92 * 2.75, 1.2 * 3.5, 1.0 * 3.0], terms=5)
    weights = np.array([1.92, 1.2, 1.0])
    squares = (weights**2).sum()
    assert logged["mean_weight"] == near(weights.mean(), terms=3)
    assert logged["weight_variance"] == near(weights.var(), terms=6, size=squares / 3)
    assert logged["effective_updates"] == near(weights.sum() ** 2 / squares, terms=6)


def test_the_acting_policy_is_the_target_with_a_share_of_random_actions() -> None:
    """ε = .4, π = (.9, .1): b = (.2 + .6·.9, .2 + .6·.1) = (.74, .26), both as it acts and as it is
    divided by."""
    agent = predictor([[0.9, 0.1]], epsilon=0.4, weighting="ordinary")
    counts = np.bincount([agent.act(0) for _ in range(20_000)], minlength=2)
    error = math.sqrt(0.74 * 0.26 / 20_000)  # standard error of a share
    assert counts[0] / 20_000 == pytest.approx(0.74, rel=0, abs=4 * error)
    play(agent, (0, 1, 1.0))
    assert agent.values()[0] == near(0.1 / 0.26, terms=4)


@pytest.mark.parametrize("weighting", ["ordinary", "weighted", "truncated"])
def test_with_the_target_acting_all_weights_are_one_and_it_is_on_policy(weighting: str) -> None:
    """ε = 0: V is the plain average, of every visit 4.7535 in the episode of the fixture and of the
    first 4.807."""
    for visits, expected in (("every", 4.7535), ("first", 4.807)):
        agent = predictor(
            [[1.0, 0.0]] * 4, epsilon=0.0, weighting=weighting, gamma=0.9, visits=visits
        )
        play(agent, (0, 0, 1.0), (1, 0, 0.0), (0, 0, 2.0), (2, 0, 3.0))
        assert agent.values()[0] == near(expected, terms=6)


def test_a_constant_step_size_is_for_ordinary_averages() -> None:
    """V = 0 → .5 (2·1 - 0) = 1 → 1 + .5 (0 - 1) = .5."""
    agent = predictor([[1.0, 0.0]], epsilon=1.0, weighting="ordinary", alpha=0.5)
    play(agent, (0, 0, 1.0))
    play(agent, (0, 1, 1.0))
    assert agent.values()[0] == near(0.5, terms=2)


@pytest.mark.parametrize("weighting", ["ordinary", "weighted"])
def test_a_time_limit_continues_with_the_tables_own_opinion(weighting: str) -> None:
    """One step, ρ = 1: G = 1 + .5·6 = 4."""
    agent = predictor([[0.5, 0.5]] * 2, weighting=weighting, gamma=0.5)
    agent.memory.v[1] = 6.0
    play(agent, (0, 0, 1.0), end=1, truncated=True)
    assert agent.values().tolist() == [4.0, 6.0]


def test_control_learns_from_the_greedy_tail_and_weighs_after_the_update() -> None:
    """Q(0) = (0, 9), Q(1) = (0, 5), Q(2) = (1, 0), Q(3) = (2, 0); ε = .5: b of a best action is
    .75, of the other .25. Rewards 1, γ = 1.

    Actions 0, 1, 0, 0. From the end: Q(3,0) ← 1 (W = 1), still greedy, W = 1/.75. Q(2,0) ← 2, still
    greedy, W = 1/.75². Q(1,1) ← 3, still greedy, W = 1/.75³. Q(0,0) ← 4 is learned, but 9 stays
    better: stop.
    """
    agent = agent_of(4, 2, gamma=1.0, epsilon=0.5)
    agent.q[:] = [[0.0, 9.0], [0.0, 5.0], [1.0, 0.0], [2.0, 0.0]]
    play(agent, (0, 0, 1.0), (1, 1, 1.0), (2, 0, 1.0), (3, 0, 1.0))
    assert agent.q.tolist() == [[4.0, 9.0], [0.0, 3.0], [2.0, 0.0], [1.0, 0.0]]
    assert_near(agent.memory.total, [[0.75**-3, 0], [0, 0.75**-2], [1 / 0.75, 0], [1, 0]], terms=4)


def test_control_stops_where_the_action_is_no_longer_best() -> None:
    """State 1: action 0 looked best (2 > 1) but brought 0. It falls below action 1, so nothing
    before it is learned."""
    agent = agent_of(2, 2, gamma=1.0, epsilon=0.5)
    agent.q[:] = [[0.0, 0.0], [2.0, 1.0]]
    play(agent, (0, 0, 5.0), (1, 0, 0.0))
    assert agent.q.tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_control_averages_by_weight() -> None:
    """State 0 twice, each time followed by a best action in state 1: b = .75 in the first episode;
    with ε = 1 in the second, b = .5.

    Returns 1 + 1 = 2 with W = 1/.75 and 4 + 1 = 5 with W = 2: (2·4/3 + 5·2) / (4/3 + 2) = 3.8.
    """
    agent = agent_of(2, 2, gamma=1.0, epsilon="linear(0.5, 1.0)")
    agent.q[1] = [1.0, 0.0]
    play(agent, (0, 0, 1.0), (1, 0, 1.0))
    agent.progress = 1.0
    play(agent, (0, 0, 4.0), (1, 0, 1.0))
    assert agent.q[0, 0] == near(3.8, terms=4)


def test_control_breaks_ties_as_its_evaluation_does() -> None:
    """All values 0: in state s of 3 actions the target takes action s mod 3, and only after that
    one is the step before learned from."""
    for action in range(3):
        agent = agent_of(3, 3, gamma=1.0, epsilon=1.0)
        play(agent, (0, 0, 7.0), (2, action, 0.0))
        assert (agent.q[0, 0] == 7.0) == (action == agent.greedy_action(2) == 2)


@pytest.mark.thorough
def test_ordinary_sampling_is_unbiased_though_its_variance_is_infinite() -> None:
    """One state: left stays (probability .9) or ends with 1, right ends with 0; π goes left, b is
    uniform; V^π = 1 (Example 5.5).

    An episode of k lefts that ends with 1 has ρ = 2^k and probability .5^k .9^(k-1) .1, so E[ρ G] =
    Σ .9^(k-1) .1 = 1 and E[(ρ G)²] = .1 Σ 2^k .9^(k-1) = ∞. Weighted sampling says exactly 1 as
    soon as it has seen one: all returns with ρ > 0 are 1.
    """
    expectation, square = 0.0, []
    for lefts in range(1, 400):
        config = {"epsilon": 1.0, "gamma": 1.0, "visits": "first"}
        agents = {
            name: predictor([[1.0, 0.0]], weighting=name, **config)
            for name in ("ordinary", "weighted")
        }
        for agent in agents.values():
            play(agent, *[(0, 0, 0.0)] * (lefts - 1), (0, 0, 1.0))
        assert agents["weighted"].values()[0] == 1.0
        estimate = agents["ordinary"].values()[0]
        probability = (
            math.exp(lefts * math.log(0.5) + (lefts - 1) * math.log(0.9) + math.log(0.1))
            if lefts < 300
            else 0.0
        )
        assert estimate == min(2.0**lefts, 1e100)
        expectation += probability * estimate
        square.append(probability * estimate**2)
    # 300 terms, which leaves out .9^299 = 2e-14; exponents are rounded like k, 10 on average
    assert expectation == near(1.0, terms=300, size=10)
    assert square[200] > 1e3 * square[150] > 0  # the terms of the second moment grow: it diverges


def test_an_agent_saved_in_the_middle_of_an_episode_goes_on_with_it() -> None:
    for task in ("control", "prediction"):
        config = {"task": task, "policy": "uniform", "epsilon": 0.7}
        whole, first, second = (agent_of(3, 2, **config) for _ in range(3))
        steps = [
            Step(0, 0, 1.0, 1, False, False),
            Step(1, 1, 2.0, 2, False, False),
            Step(2, 0, 3.0, 0, True, False),
        ]
        for step in steps:
            whole.learn(step)
        first.learn(steps[0])
        second.load_state_dict(first.state_dict())
        for step in steps[1:]:
            second.learn(step)
        assert all(
            np.array_equal(table, second.state_dict()["memory"][name])
            for name, table in whole.state_dict()["memory"].items()
        )


def test_prediction_is_judged_by_its_own_policy() -> None:
    model = TabularMDP.from_env(rlbook.make("FrozenLake-v1"))
    run = rlbook.train(
        "off_policy_mc", "FrozenLake-v1", episodes=50, task="prediction", gamma=0.9, eval_every=0
    )
    exact = model.policy_values(run.agent.target_policy, 0.9)[0]
    condition = (1 + 0.9) / (1 - 0.9)  # of I - γ P, at most
    greedy = model.policy_values(run.agent.greedy_policy(), 0.9)[0]
    assert exact == near(greedy, terms=model.num_states, size=condition)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"task": "evaluation"}, "task must be one of 'control', 'prediction', got 'evaluation'"),
        (
            {"task": "prediction", "weighting": "wis"},
            "weighting must be one of 'ordinary', 'weighted', 'truncated', got 'wis'",
        ),
        ({"weighting": "ordinary"}, "weighting must be 'weighted' with task 'control'"),
        ({"task": "prediction", "epsilon": "inverse(1.0)"}, "epsilon cannot be inverse"),
        (
            {"exploration": "ucb"},
            "exploration must be one of 'epsilon-greedy', 'softmax', got 'ucb'",
        ),
        ({"clip": 0.0}, "clip must be a number above 0, got 0.0"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        OffPolicyMCConfig(**config)
