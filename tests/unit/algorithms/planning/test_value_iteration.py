"""Value iteration: exact on every model we have, stopped by a bound that holds, and greedy in a way
that arrives."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import near, rounding_bound

from rlbook.algorithms.exact_metrics import EXACT_METRICS
from rlbook.algorithms.planning.value_iteration import ValueIteration, ValueIterationConfig
from rlbook.envs import Maze, TabularMDP
from rlbook.envs.registration import register
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.mdp_checks import checked_arrays

register()

# γ < 1: of a value; γ = 1: of what another sweep would change, at each step
TOLERANCE = ValueIterationConfig().tolerance
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("FrozenLake-v1", {"map_name": "4x4"}),
    ("FrozenLake-v1", {"map_name": "8x8"}),
    ("FrozenLake-v1", {"map_name": "4x4", "is_slippery": False}),
    ("FrozenLake-v1", {"map_name": "8x8", "is_slippery": False}),
    ("CliffWalking-v1", {}),
    ("CliffWalkingSlippery-v1", {}),
    ("Taxi-v4", {}),
    ("rlbook/Maze-v0", {}),
    ("rlbook/Maze-v0", {"rewards": "shaped", "slip": 0.2}),
]


def solved(env: Any, **config: Any) -> tuple[ValueIteration, TabularMDP, list[dict[str, float]]]:
    agent = ValueIteration(env, ValueIterationConfig(**config))
    model = TabularMDP.from_env(env)
    return agent, model, list(agent.plan(model))


def rounding(matrix: np.ndarray, values: np.ndarray) -> float:
    """Of values v with matrix · v = r."""
    size = float(np.linalg.cond(matrix, np.inf) * np.abs(values).max())
    return rounding_bound("float64", terms=len(values), size=size)


def fixed_point_error(
    model: TabularMDP, agent: ValueIteration, gamma: float
) -> tuple[float, float]:
    """How far the agent's V is from V*, by dense linear algebra that shares nothing with value
    iteration; and how far rounding may go.

    Howard's policy iteration on dense matrices: V^π from a linear solve, then a strictly better
    policy, until there is none.
    """
    num_states, num_actions = model.num_states, model.num_actions
    dense = model.continues.toarray().reshape(num_actions, num_states, num_states)
    # at γ = 1 it must start from one that ends
    policy = np.zeros(num_states, dtype=int) if gamma < 1 else agent.greedy_policy()
    while True:
        matrix = np.eye(num_states) - gamma * dense[policy, np.arange(num_states)]
        values = np.linalg.solve(matrix, model.rewards[np.arange(num_states), policy])
        action_values, rounded = (
            model.rewards + gamma * np.einsum("ast,t->sa", dense, values),
            rounding(matrix, values),
        )
        better = action_values.max(axis=1) > values + rounded
        if not better.any():
            return float(np.abs(agent.values() - values).max()), rounded
        policy = np.where(better, action_values.argmax(axis=1), policy)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("gamma", [0.9, 0.99, 1.0])
@pytest.mark.parametrize(("env_id", "options"), MODELS)
def test_values_are_exact(env_id: str, options: dict[str, Any], gamma: float) -> None:
    agent, model, metrics = solved(gymnasium.make(env_id, **options), gamma=gamma)
    assert metrics[-1]["bound"] <= TOLERANCE
    error, rounded = fixed_point_error(model, agent, gamma)
    within = rounded + TOLERANCE * (
        1.0 if gamma < 1 else model.expected_steps(agent.greedy_policy()).max()
    )
    assert error <= within
    np.testing.assert_allclose(
        agent.action_values(), model.backup(agent.values(), gamma), rtol=0, atol=2 * within
    )


@pytest.mark.parametrize(
    ("env_id", "start", "value"),
    [
        ("FrozenLake-v1", 0, 0.5420259320),
        ("FrozenLake8x8-v1", 0, 0.4146403618),
        ("CliffWalking-v1", 36, -sum(0.99**k for k in range(13))),
    ],
)
def test_known_values_at_the_start(env_id: str, start: int, value: float) -> None:
    """The lakes' numbers are the recorded ones; along the cliff the shortest way has 13 steps of
    -1."""
    agent, _, _ = solved(gymnasium.make(env_id))
    ten_decimals = 0.5e-10
    assert agent.values()[start] == pytest.approx(value, rel=0, abs=TOLERANCE + ten_decimals)


@pytest.mark.parametrize("gamma", [0.9, 0.99, 1.0])
@pytest.mark.parametrize("rewards", ["standard", "shaped"])
def test_the_maze_takes_ten_sweeps_and_all_its_optimal_actions_are_found(
    fixtures: dict[str, Any], rewards: str, gamma: float
) -> None:
    """The farthest cell is 9 moves away, so 9 sweeps reach it and the tenth confirms."""
    agent, _, metrics = solved(Maze(rewards=rewards), gamma=gamma)
    assert [item["sweep"] for item in metrics] == list(range(1, 11))
    assert [item["change"] > 0 for item in metrics] == [True] * 9 + [False]
    expected = fixtures["maze5x5"][f"{'A' if rewards == 'standard' else 'B'}_gamma{gamma}"][
        "optimal_actions"
    ]
    for cell, names in expected.items():
        row, column = (int(number) for number in cell.strip("()").split(","))
        values = agent.action_values()[row * 5 + column]
        assert {"UDLR"[a] for a in np.flatnonzero(values >= values.max() - 1e-9)} == set(names)
        assert "UDLR"[agent.greedy_policy()[row * 5 + column]] in names


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
@pytest.mark.parametrize(("env_id", "options"), [MODELS[0], MODELS[5], MODELS[8]])
def test_the_stated_bound_holds_after_every_sweep(
    env_id: str, options: dict[str, Any], gamma: float
) -> None:
    env = gymnasium.make(env_id, **options)
    exact, model, _ = solved(env, gamma=gamma, tolerance=1e-12)
    for sweeps in (1, 2, 5, 10, 20, 40):
        bound = solved(env, gamma=gamma, tolerance=0.0, max_sweeps=sweeps)[2][-1]["bound"]
        # in units of the largest reward where that is below 1
        tolerance = bound * (1 + 1e-9) / min(1.0, model.largest_reward)
        agent = ValueIteration(env, ValueIterationConfig(gamma=gamma, tolerance=tolerance))
        assert len(list(agent.plan(model))) <= sweeps
        assert np.abs(agent.values() - exact.values()).max() <= bound + 1e-11


def test_where_nothing_ends_the_bound_needs_far_fewer_sweeps_than_the_largest_change() -> None:
    """A random chain mixes quickly: after k sweeps all states change by nearly the same, and only
    the difference counts."""
    rng = np.random.default_rng(0)
    model = TabularMDP.from_arrays(rng.dirichlet(np.ones(20), size=40), rng.normal(size=(20, 2)))
    env: Any = Spaces(20, 2)
    agent = ValueIteration(env, ValueIterationConfig(gamma=0.99))
    sweeps = len(list(agent.plan(model)))
    values, usual = np.zeros(20), 0
    while True:
        new, usual = model.backup(values, 0.99).max(axis=1), usual + 1
        if 0.99 / (1 - 0.99) * np.abs(new - values).max() <= TOLERANCE:
            break
        values = new
    condition = (1 + 0.99) / (1 - 0.99)  # of I - γ P, at most
    rounded = rounding_bound("float64", terms=20, size=condition * np.abs(new).max())
    np.testing.assert_allclose(agent.values(), new, rtol=0, atol=2 * TOLERANCE + rounded)
    assert sweeps * 9 < usual


class Spaces:
    """As much of an environment as a planner looks at."""

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_states)
        self.action_space = gymnasium.spaces.Discrete(num_actions)


@pytest.mark.parametrize("gamma", [0.9, 1.0])
@pytest.mark.parametrize(
    ("env_id", "options", "shortest", "optimum"),
    [
        ("FrozenLake-v1", {"is_slippery": False}, 6, 1),
        ("FrozenLake-v1", {"is_slippery": False, "map_name": "8x8"}, 14, 1),
        ("CliffWalking-v1", {}, 13, -13),
        ("rlbook/Maze-v0", {}, 8, 3),
        ("rlbook/Maze-v0", {"rewards": "shaped"}, 8, 9.2),
    ],
)
def test_the_greedy_policy_arrives_by_the_shortest_way(
    env_id: str, options: dict[str, Any], gamma: float, shortest: int, optimum: float
) -> None:
    env = gymnasium.make(env_id, **options)
    agent, _, _ = solved(env, gamma=gamma)
    observation, _ = env.reset(seed=0)
    rewards, ended = [], False
    while not ended and len(rewards) < 100:
        observation, reward, ended, _, _ = env.step(agent.act(observation, explore=False))
        rewards.append(float(reward))
    assert (len(rewards), sum(rewards)) == (shortest, near(optimum, terms=shortest, size=20.0))


def test_without_discount_the_greedy_policy_is_as_good_as_the_values_say() -> None:
    """On a slippery lake too: the value of the policy that was chosen is V*, so no tie leads
    astray."""
    for options in ({"map_name": "4x4"}, {"map_name": "8x8"}):
        agent, model, _ = solved(gymnasium.make("FrozenLake-v1", **options), gamma=1.0)
        policy = agent.greedy_policy()
        within = TOLERANCE * model.expected_steps(policy).max()
        np.testing.assert_allclose(
            model.policy_values(policy, 1.0), agent.values(), rtol=0, atol=within
        )


def test_of_all_the_best_ways_over_a_slippery_lake_the_quickest_is_taken() -> None:
    """On the 8 × 8 lake caution always pays at γ = 1: V* = 1, and 117 steps are enough where other
    best policies need thousands."""
    agent, model, _ = solved(gymnasium.make("FrozenLake8x8-v1"), gamma=1.0)
    steps = model.expected_steps(agent.greedy_policy())
    assert agent.values()[0] == pytest.approx(1.0, rel=0, abs=TOLERANCE * steps.max())
    # condition 2 · steps
    assert steps[0] == near(116.96507353, terms=64, size=2 * steps.max() ** 2, decimals=8)
    best = agent.action_values() >= agent.values()[:, None] - 1e-7
    for state, action in np.argwhere(best):
        policy = agent.greedy_policy()
        policy[state] = action
        try:
            assert model.expected_steps(policy)[0] >= steps[0] - 1e-6
        except ValueError:  # this exchange leads in circles forever
            continue


def test_a_tie_is_not_broken_towards_where_the_end_may_be_missed() -> None:
    """State 0: action 0 ends at once or falls into the loop of state 2, half each; action 1 goes to
    state 1, which ends. All worth 0."""
    transitions = np.zeros((3 * 2, 3))
    transitions[[0, 0], [0, 2]] = 0.5
    transitions[1, 1] = 1
    transitions[[2, 3], [1, 1]] = 1
    transitions[[4, 5], [2, 2]] = 1
    continues = transitions.copy()
    continues[0, 0] = continues[2, 1] = continues[3, 1] = 0
    model = TabularMDP(*checked_arrays(transitions, np.zeros((3, 2)), continues=continues))
    env: Any = Spaces(3, 2)
    agent = ValueIteration(env, ValueIterationConfig(gamma=1.0))
    list(agent.plan(model))
    assert agent.greedy_policy()[0] == 1


def test_values_of_a_sparse_corridor_are_powers_of_gamma() -> None:
    """The reward comes only at the far end: a sweep that changes nothing near the start is no
    reason to stop."""
    agent, _, metrics = solved(Maze(layout="S" + "." * 28 + "G", rewards="shaped"), gamma=0.5)
    values = [
        sum(0.5**k * -0.1 for k in range(steps)) + 0.5 ** (steps - 1) * 10
        for steps in range(29, 0, -1)
    ]
    np.testing.assert_allclose(agent.values()[:-1], values, rtol=0, atol=TOLERANCE)
    assert len(metrics) >= 28


def test_tolerance_zero_means_as_exact_as_the_numbers_allow() -> None:
    agent, model, metrics = solved(gymnasium.make("FrozenLake-v1"), gamma=0.99, tolerance=0.0)
    error, rounded = fixed_point_error(model, agent, 0.99)
    assert error <= 2 * rounded
    assert metrics[-1]["sweep"] < 5000


def test_max_sweeps_stops_what_grows_for_ever_and_says_so() -> None:
    """1 a step forever, beside an exit: after k sweeps V is k."""
    entries = [(0, 0, 0, 1.0, 1.0, False), (0, 1, 0, 1.0, 0.0, True)]
    env: Any = Spaces(1, 2)
    agent = ValueIteration(env, ValueIterationConfig(gamma=1.0, max_sweeps=20))
    metrics = list(agent.plan(from_entries(entries, 1, 2)))
    assert [item["value"] for item in metrics] == list(range(1, 21))
    assert "bound" not in metrics[-1] and metrics[-1]["converged"] == 0.0


@pytest.mark.parametrize("stop", [0, 1, 7, 10])
def test_planning_picks_up_where_it_was_saved(stop: int) -> None:
    env = Maze(slip=0.1)
    whole, model, metrics = solved(env)
    first = ValueIteration(env, ValueIterationConfig())
    head = list(itertools.islice(first.plan(model), stop))
    second = ValueIteration(env, ValueIterationConfig())
    second.load_state_dict(first.state_dict())
    assert head + list(second.plan(model)) == metrics
    np.testing.assert_array_equal(second.action_values(), whole.action_values())
    np.testing.assert_array_equal(second.greedy_policy(), whole.greedy_policy())
    assert list(second.plan(model)) == []


def test_every_logged_number_is_explained() -> None:
    _, _, metrics = solved(Maze())
    assert set(metrics[-1]) == set(ValueIteration.METRICS) - set(EXACT_METRICS)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"gamma": 1.5}, r"gamma must be a number in \[0, 1\], got 1.5"),
        ({"gamma": float("nan")}, r"gamma must be a number in \[0, 1\], got nan"),
        ({"tolerance": -1e-3}, "tolerance must be a number of at least 0, got -0.001"),
        ({"max_sweeps": 0}, "max_sweeps must be an integer of at least 1, got 0"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ValueIterationConfig(**config)


def test_a_model_that_the_agent_cannot_act_on_is_refused() -> None:
    env: Any = Spaces(3**9, 4)
    agent = ValueIteration(env, ValueIterationConfig())
    with pytest.raises(
        ValueError,
        match="the agent has 19683 observations and 4 actions and the model 25 states and 4",
    ):
        next(agent.plan(Maze(observation="local").model()))
