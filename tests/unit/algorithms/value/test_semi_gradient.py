"""Semi-gradient TD and SARSA: their arithmetic by hand, and that with a table's features they are
the tabular ones."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
from closeness import assert_near, near
from gymnasium import Env, spaces

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.value.semi_gradient_sarsa import SemiGradientSarsa, SemiGradientSarsaConfig
from rlbook.algorithms.value.semi_gradient_td import SemiGradientTD, SemiGradientTDConfig


class Numbered(Env[Any, Any]):
    """The spaces alone: four states, two actions."""

    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(2)


TWO = ((1.0, 0.0, 1.0), (0.0, 1.0, 1.0), (0.0, 0.0, 2.0), (1.0, 1.0, 0.0))
"""x(s) of four states, three features."""


def predictor(**options: Any) -> SemiGradientTD:
    return SemiGradientTD(
        Numbered(), SemiGradientTDConfig(**{"features": TWO, "gamma": 0.5, "alpha": 0.1, **options})
    )


def actor(**options: Any) -> SemiGradientSarsa:
    both: dict[str, Any] = {"features": TWO, "gamma": 0.5, "alpha": 0.1, "epsilon": 0.0}
    return SemiGradientSarsa(Numbered(), SemiGradientSarsaConfig(**both | options))


def test_one_step_moves_the_weights_along_the_features() -> None:
    agent = predictor()
    agent.weights[:, 0] = 1, 2, 3
    # v(0) = 1 + 3 = 4, v(1) = 2 + 3 = 5; δ = 1 + 0.5 · 5 - 4 = -0.5
    assert agent.learn(Step(0, 0, 1.0, 1, False, False))["td_error"] == 0.5
    assert_near(agent.weights[:, 0], [1 - 0.05, 2, 3 - 0.05], terms=4)
    assert_near(agent.values(), [0.95 + 2.95, 2 + 2.95, 2 * 2.95, 0.95 + 2], terms=7)
    assert_near(agent.value(np.array([3, 0])), [2.95, 3.9], terms=7)


def test_only_termination_stops_bootstrapping() -> None:
    for terminated, error in ((True, 1 - 4), (False, 1 + 0.5 * 5 - 4)):
        agent = predictor()
        agent.weights[:, 0] = 1, 2, 3
        assert agent.learn(Step(0, 0, 1.0, 1, terminated, not terminated))["td_error"] == abs(error)
        assert_near(agent.weights[:, 0], [1 + 0.1 * error, 2, 3 + 0.1 * error], terms=4)


def test_the_step_size_is_shared_out_among_the_tilings() -> None:
    agent = predictor(features="tiles", tilings=4, bins=2)
    for _ in range(2):
        agent.learn(Step(1, 0, 1.0, 1, True, False))
    assert agent.value(np.array([1]))[0] == near(0.1 + 0.1 * 0.9, terms=8, size=1.0), (
        "each update removes a tenth of the error"
    )


def test_n_step_targets_by_hand() -> None:
    agent = predictor(features="table", n=2)
    agent.weights[:, 0] = 0, 0, 8, 0
    assert "td_error" not in agent.learn(Step(0, 0, 1.0, 1, False, False))
    agent.learn(Step(1, 0, 2.0, 2, False, False))  # G = 1 + 0.5 · 2 + 0.25 · 8 = 4
    assert_near(agent.weights[:, 0], [0.4, 0, 8, 0], terms=4)
    # G = 2 + 0.5 · 4 = 4 for state 1, and 4 for state 2
    agent.learn(Step(2, 0, 4.0, 3, True, False))
    assert_near(agent.weights[:, 0], [0.4, 0.4, 8 - 0.4, 0], terms=4)
    assert agent.window == []


def test_a_long_n_is_monte_carlo() -> None:
    agent = predictor(features="table", n=10**9)
    for state, reward, over in ((0, 1.0, False), (1, 2.0, False), (2, 4.0, True)):
        agent.learn(Step(state, 0, reward, state + 1, over, False))
    assert_near(agent.weights[:, 0], [0.1 * (1 + 1 + 1), 0.1 * (2 + 2), 0.1 * 4, 0], terms=4)


@pytest.mark.parametrize(
    ("traces", "again"), [("accumulating", 0.1 * 0.5 * 0.8 + 0.1), ("replacing", 0.1)]
)
def test_traces_by_hand(traces: str, again: float) -> None:
    agent = actor(features="table", trace_decay=0.8, traces=traces)
    agent.learn(Step(0, 1, 0.0, 0, False, False))
    agent.learn(Step(0, 1, 1.0, 0, False, True))  # δ = 1: all is 0 still
    assert_near(agent.weights, [[0, again], [0, 0], [0, 0], [0, 0]], terms=4)
    assert not agent.traces.any(), "traces end with their episode"


def test_a_planted_bug_is_found() -> None:
    """A time limit that is taken for a termination learns another value: the bootstrap is what
    differs, α γ q = 0.1 · 0.5 · 2."""
    right, wrong = actor(), actor()
    for agent in (right, wrong):
        agent.weights[:] = 1.0
    right.learn(Step(0, 0, 0.0, 1, False, True))
    wrong.learn(Step(0, 0, 0.0, 1, True, False))
    assert (right.weights - wrong.weights).max() == near(0.1 * 0.5 * 2, terms=4, size=2.0)
    assert right.pending == wrong.pending == -1


SAME = [
    ("sarsa", "semi_gradient_sarsa", {}),
    ("n_step_sarsa", "semi_gradient_sarsa", {"n": 4}),
    ("sarsa_lambda", "semi_gradient_sarsa", {"trace_decay": 0.8, "traces": "replacing"}),
    ("sarsa_lambda", "semi_gradient_sarsa", {"trace_decay": 0.8, "traces": "accumulating"}),
    ("td_prediction", "semi_gradient_td", {}),
    ("n_step_td", "semi_gradient_td", {"n": 3}),
    ("td_lambda", "semi_gradient_td", {"trace_decay": 0.8, "traces": "accumulating"}),
]


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("env", ["Maze-v0", "WindyGridWorld-v0", "FrozenLake-v1", "Blackjack-v1"])
@pytest.mark.parametrize(
    ("tabular", "linear", "options"), SAME, ids=[f"{a}-{o.get('traces', '')}" for a, _, o in SAME]
)
def test_with_a_tables_features_it_is_the_tabular_algorithm_bit_for_bit(
    tabular: str, linear: str, options: dict[str, Any], env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLBOOK_PLAIN", "1")
    both: dict[str, Any] = {"steps": 600, "seed": 1, "eval_every": 0, **options}
    both |= {"alpha": 0.1, "gamma": 0.99}  # the presets differ
    if "sarsa" in linear:
        both["epsilon"] = 0.1
    one = rlbook.train(tabular, env, simulate=False, **both)
    other = rlbook.train(linear, env, features="table", **both)
    assert one.episode_returns == other.episode_returns
    table = one.agent.memory.q if "sarsa" in linear else one.agent.memory.v[:, None]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(table, other.agent.weights)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(one.agent.greedy_policy(), other.agent.greedy_policy())  # type: ignore[attr-defined]


def test_values_of_observations_and_of_states_agree() -> None:
    run = rlbook.train(
        "semi_gradient_sarsa", "Maze-v0", steps=500, features="fourier", eval_every=0
    )
    agent: Any = run.agent
    assert_near(
        agent.value(np.arange(25)),
        agent.values(),
        terms=len(agent.weights),
        size=float(np.abs(agent.weights).sum()),
    )
    assert agent.action_values().shape == (25, 4) and agent.greedy_policy().shape == (25,)
    car: Any = rlbook.train("semi_gradient_sarsa", "MountainCar-v0", steps=50, eval_every=0).agent
    assert car.value(np.array([[-0.5, 0.0], [0.3, 0.01]], dtype=np.float32)).shape == (2,)
    with pytest.raises(TypeError, match="a table cannot list"):
        car.values()


@pytest.mark.parametrize("options", [{"n": 3}, {"trace_decay": 0.5, "features": "table"}], ids=str)
def test_an_agent_goes_on_from_its_state_as_if_nothing_had_been(options: dict[str, Any]) -> None:
    one, other = actor(**options, epsilon=0.3), actor(**options, epsilon=0.3)
    steps = [Step(state, 1, 1.0, (state + 1) % 4, False, False) for state in (0, 1, 2, 3, 0)]
    for step in steps[:2]:
        one.learn(step)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for step in steps[2:]:
        assert one.act(step.obs) == other.act(step.obs) and one.learn(step) == other.learn(step)
    np.testing.assert_array_equal(one.weights, other.weights)


def test_a_state_that_does_not_fit_is_refused() -> None:
    agent = actor(n=3)
    agent.learn(Step(0, 1, 1.0, 1, False, False))
    for name, value, sentence in (
        ("weights", np.zeros((2, 2)), "the saved weights must have shape"),
        ("pending", 2, "the saved pending must be an action or -1"),
        (
            "window",
            agent.state_dict()["window"] | {"columns": np.array([7])},
            "the saved columns must be in",
        ),
        (
            "window",
            agent.state_dict()["window"] | {"features": np.zeros((1, 2))},
            "the saved features must have shape",
        ),
    ):
        with pytest.raises(ValueError, match=sentence):
            actor(n=3).load_state_dict(agent.state_dict() | {name: value})


@pytest.mark.parametrize(
    ("algorithm", "env", "options", "sentence"),
    [
        (
            "semi_gradient_sarsa",
            "Maze-v0",
            {"n": 2, "trace_decay": 0.5},
            "n must be 1 with trace_decay above 0, got 2",
        ),
        ("semi_gradient_sarsa", "Maze-v0", {"traces": "replace"}, "(did you mean 'replacing'?)"),
        (
            "semi_gradient_sarsa",
            "CartPole-v1",
            {"low": (), "high": ()},
            "features 'tiles' need bounds, but dimension 1 of",
        ),
        (
            "semi_gradient_sarsa",
            "MountainCar-v0",
            {"features": "fourier"},
            "traces 'replacing' need binary features, and",
        ),
        (
            "semi_gradient_td",
            "MountainCar-v0",
            {"policy": "optimal"},
            "policy must be 'uniform' where states are not numbered",
        ),
        (
            "semi_gradient_td",
            "Maze-v0",
            {"policy": "epsilon-greedy"},
            "epsilon must be above 0 with policy 'epsilon-greedy', got 0",
        ),
        (
            "semi_gradient_td",
            "Maze-v0",
            {"alpha": 0},
            "alpha must be a number above 0 at all times, got 0",
        ),
        (
            "semi_gradient_td",
            "Maze-v0",
            {"features": ((1.0, math.nan),)},
            "or a vector for each state, got ((1.0, nan),)",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    algorithm: str, env: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(rlbook.RequestError) as refused:
        rlbook.train(algorithm, env, steps=10, **options)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)
