"""Every planner against dense linear algebra, and against itself on models that are the same in
other clothes."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, rounding_bound
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import rlbook
from rlbook.algorithms.planning.modified_policy_iteration import ModifiedPolicyIteration
from rlbook.algorithms.planning.policy_evaluation import PolicyEvaluation, PolicyEvaluationConfig
from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.algorithms.planning.prioritized_sweeping import PrioritizedSweeping
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.envs import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries

Planner = tuple[type[TablePlanner], dict[str, Any]]
TOLERANCE = 1e-9  # where γ < 1 no value is further from the exact one
PLANNERS: dict[str, Planner] = {
    "value_iteration": (ValueIteration, {"tolerance": TOLERANCE}),
    "gauss-seidel": (ValueIteration, {"tolerance": TOLERANCE, "sweep": "gauss-seidel"}),
    "policy_iteration": (PolicyIteration, {}),
    "modified_policy_iteration": (ModifiedPolicyIteration, {"tolerance": TOLERANCE}),
    "prioritized_sweeping": (PrioritizedSweeping, {"tolerance": TOLERANCE}),
}
METHODS = ("in-place", "synchronous", "linear")
TOY_TEXT: list[tuple[str, dict[str, Any]]] = [
    ("FrozenLake-v1", {}),
    ("FrozenLake8x8-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("CliffWalking-v1", {}),
    ("CliffWalkingSlippery-v1", {}),
    ("Taxi-v4", {}),
]

every_planner = pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)


Entries = list[tuple[int, int, int, float, float, bool]]


@st.composite
def models(draw: Any) -> TabularMDP:
    """Successors named twice, states that nothing leads to, terminal states, transitions that end,
    transitions of probability 0."""
    seed, num_states, num_actions = (
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(1, 12)),
        draw(st.integers(1, 4)),
    )
    rng = np.random.default_rng(seed)
    unreachable = num_states > 2 and draw(st.booleans())
    if draw(st.booleans()):
        return TabularMDP.from_arrays(
            *arrays(rng, num_states, num_actions, unreachable),
            terminal=terminal(draw, rng, num_states),
        )
    return from_entries(
        entries(rng, num_states, num_actions, unreachable, draw(st.sampled_from([0.0, 0.3]))),
        num_states,
        num_actions,
    )


def terminal(draw: Any, rng: np.random.Generator, num_states: int) -> np.ndarray | None:
    return rng.random(num_states) < 0.3 if draw(st.booleans()) else None


def arrays(
    rng: np.random.Generator, num_states: int, num_actions: int, unreachable: bool
) -> tuple[sparse.csr_array, np.ndarray]:
    """A CSR matrix put together by hand: successors unsorted, some of them twice in one row."""
    branches = int(rng.integers(1, 5))
    indices = rng.integers(num_states - unreachable, size=(num_states * num_actions, branches))
    data = rng.dirichlet(np.ones(branches), size=num_states * num_actions)
    indptr = np.arange(0, indices.size + 1, branches)
    shape = (num_states * num_actions, num_states)
    return sparse.csr_array((data.ravel(), indices.ravel(), indptr), shape=shape), rng.normal(
        size=(num_states, num_actions)
    )


def entries(
    rng: np.random.Generator, num_states: int, num_actions: int, unreachable: bool, ending: float
) -> Entries:
    """As gymnasium lists them: rewards and ends belong to transitions."""
    listed = []
    for state in range(num_states):
        for action in range(num_actions):
            chances = rng.dirichlet(np.ones(int(rng.integers(1, 5))))
            for chance in chances:
                successor = int(rng.integers(num_states - unreachable))
                listed.append(
                    (
                        state,
                        action,
                        successor,
                        float(chance),
                        float(rng.normal()),
                        bool(rng.random() < ending),
                    )
                )
    return listed


def dense(model: TabularMDP) -> np.ndarray:
    """[S, A, S]: P(s'|s, a), the episode going on."""
    return model.continues_by_state.toarray().reshape(
        model.num_states, model.num_actions, model.num_states
    )


def rounding(model: TabularMDP, gamma: float) -> float:
    """Of values v with (I - γ P) v = r, a matrix whose condition is at most (1 + γ) / (1 - γ)."""
    size = (1 + gamma) / (1 - gamma) * np.abs(model.rewards).max() / (1 - gamma)
    return rounding_bound("float64", terms=model.num_states, size=size)


def dense_policy_values(model: TabularMDP, policy: np.ndarray, gamma: float) -> np.ndarray:
    """V^π of probabilities [S, A] by a dense solve."""
    chain = np.einsum("sa,sat->st", policy, dense(model))
    return np.linalg.solve(
        np.eye(model.num_states) - gamma * chain, (policy * model.rewards).sum(axis=1)
    )


def dense_optimal_values(model: TabularMDP, gamma: float) -> np.ndarray:
    """V* by Howard's policy iteration on dense matrices, γ < 1."""
    transitions, states = dense(model), np.arange(model.num_states)
    policy = np.zeros(model.num_states, dtype=int)
    while True:
        values = np.linalg.solve(
            np.eye(model.num_states) - gamma * transitions[states, policy],
            model.rewards[states, policy],
        )
        action_values = model.rewards + gamma * transitions @ values
        better = action_values.max(axis=1) > values + rounding(model, gamma)
        if not better.any():
            return values
        policy = np.where(better, action_values.argmax(axis=1), policy)


def solve(planner: Planner, model: TabularMDP, **config: Any) -> TablePlanner:
    return planner[0].solve(model, **planner[1] | config)


@pytest.mark.slow
@every_planner
@given(model=models(), gamma=st.sampled_from([0.0, 0.5, 0.9, 0.97]))
@settings(max_examples=200, deadline=None)
def test_planners_agree_with_a_dense_solve_on_random_models(
    planner: Planner, model: TabularMDP, gamma: float
) -> None:
    expected = dense_optimal_values(model, gamma)
    agent = solve(planner, model, gamma=gamma)
    bound = TOLERANCE + rounding(model, gamma)
    np.testing.assert_allclose(agent.values(), expected, rtol=0, atol=bound)
    np.testing.assert_allclose(agent.action_values().max(axis=1), expected, rtol=0, atol=bound)
    followed = dense_policy_values(model, np.eye(model.num_actions)[agent.greedy_policy()], gamma)
    np.testing.assert_allclose(followed, expected, rtol=0, atol=2 * bound / (1 - gamma))


@pytest.mark.thorough
@given(model=models(), gamma=st.sampled_from([0.0, 0.5, 0.9, 0.97]), seed=st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_evaluation_agrees_with_a_dense_solve_on_random_models(
    model: TabularMDP, gamma: float, seed: int
) -> None:
    policy = np.random.default_rng(seed).dirichlet(
        np.ones(model.num_actions), size=model.num_states
    )
    policy[0] = np.eye(model.num_actions)[0]
    expected = dense_policy_values(model, policy, gamma)
    for method in METHODS:
        agent = PolicyEvaluation.solve(
            model, policy=policy, gamma=gamma, method=method, tolerance=TOLERANCE
        )
        bound = TOLERANCE + rounding(model, gamma)
        np.testing.assert_allclose(agent.values(), expected, rtol=0, atol=bound)
    solved = model.policy_values(policy, gamma)
    np.testing.assert_allclose(solved, expected, rtol=0, atol=rounding(model, gamma))


def tabular_environments() -> dict[str, TabularMDP]:
    """Every environment that brings a model of fewer than 5 000 states."""
    found = {
        f"{name}{options or ''}": TabularMDP.from_env(gymnasium.make(name, **options))
        for name, options in TOY_TEXT
    }
    for name, spec in rlbook.environments().items():
        if str(spec.entry_point).startswith("rlbook.llm."):
            continue  # texts: no table, and seconds until all prompts are made
        env: Any = rlbook.make(name).unwrapped
        if callable(getattr(env, "model", None)) and env.model().num_states < 5_000:
            found[name] = copy.copy(env.model())
            found[name].observable = True  # a planner may look at the state itself here
    return found


TABULAR = tabular_environments()


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("env", TABULAR)
@pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)
def test_planners_agree_with_a_dense_solve_on_every_environment(planner: Planner, env: str) -> None:
    model, gamma = TABULAR[env], 0.9
    expected = dense_optimal_values(model, gamma)
    agent = solve(planner, model, gamma=gamma)
    bound = TOLERANCE + rounding(model, gamma)
    np.testing.assert_allclose(agent.values(), expected, rtol=0, atol=bound)
    followed = model.policy_values(agent.greedy_policy(), gamma)
    np.testing.assert_allclose(followed, expected, rtol=0, atol=2 * bound / (1 - gamma))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("env", TABULAR)
def test_evaluation_agrees_with_a_dense_solve_on_every_environment(env: str, method: str) -> None:
    model = TABULAR[env]
    uniform = np.full(model.rewards.shape, 1 / model.num_actions)
    agent = PolicyEvaluation.solve(model, gamma=0.9, method=method, tolerance=TOLERANCE)
    expected, bound = dense_policy_values(model, uniform, 0.9), TOLERANCE + rounding(model, 0.9)
    np.testing.assert_allclose(agent.values(), expected, rtol=0, atol=bound)


@pytest.mark.thorough(quick=1)
@every_planner
@pytest.mark.parametrize(
    "env", [name for name in TABULAR if not name.startswith("CarRental") and TABULAR[name].can_end]
)
def test_without_discount_planners_agree_with_each_other_and_with_their_policy(
    env: str, planner: Planner
) -> None:
    """Where some policy has finite values from everywhere; elsewhere policy iteration says so."""
    model = TABULAR[env]
    try:
        expected = PolicyIteration.solve(model, gamma=1.0)
    except ValueError as error:
        assert "with gamma 1 no policy has finite values" in str(error)
        return
    values = expected.values()
    backed_up = model.backup(values, 1.0).max(axis=1)
    assert_near(backed_up, values, terms=model.num_states, size=2 * np.abs(values).max())
    # what a last sweep would still change is within the tolerance, at each step of an episode
    within = TOLERANCE * model.expected_steps(expected.greedy_policy()).max()
    assert within < 1e-6  # so that it tells policies apart
    found = solve(planner, model, gamma=1.0).values()
    np.testing.assert_allclose(found, values, rtol=0, atol=within)


def test_policies_are_named_or_given() -> None:
    model = TABULAR["FrozenLake-v1"]
    optimal = PolicyIteration.solve(model, gamma=0.9)
    by_name = PolicyEvaluation.solve(model, policy="epsilon-greedy", epsilon=0.0, gamma=0.9)
    by_action = PolicyEvaluation.solve(model, policy=optimal.greedy_policy(), gamma=0.9)
    bound = 1e-8 + rounding(model, 0.9)  # 1e-8 is the tolerance by default
    np.testing.assert_allclose(by_name.values(), optimal.values(), rtol=0, atol=bound)
    np.testing.assert_allclose(by_action.values(), optimal.values(), rtol=0, atol=bound)
    everything_random = PolicyEvaluation.solve(
        model, policy="epsilon-greedy", epsilon=1.0, gamma=0.9
    )
    uniform = PolicyEvaluation.solve(model, gamma=0.9)
    np.testing.assert_allclose(everything_random.values(), uniform.values(), rtol=0, atol=2 * bound)
    softened = PolicyEvaluation.solve(
        model, policy="epsilon-greedy", epsilon=0.2, gamma=0.9, method="linear"
    )
    probabilities = 0.2 / 4 + 0.8 * np.eye(4)[optimal.greedy_policy()]
    expected = dense_policy_values(model, probabilities, 0.9)
    np.testing.assert_allclose(softened.values(), expected, rtol=0, atol=rounding(model, 0.9))


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ("best", "policy must be one of 'uniform', 'optimal', 'epsilon-greedy'"),
        ([], 'policy must be "uniform", "optimal", "epsilon-greedy", an action for each state'),
        ([[1.0], [0.5, 0.5]], 'policy must be "uniform"'),
    ],
)
def test_what_is_no_policy_is_refused(policy: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        PolicyEvaluationConfig(policy=policy)


@pytest.mark.parametrize(
    "policy",
    [[0, 1], [0] * 15 + [4], [-1] * 16, [0.5] * 16, [[0.5, 0.5]] * 16, [[0.5, 0.5, 0.5, 0.5]] * 16],
)
def test_a_policy_for_another_model_is_refused(policy: Any) -> None:
    with pytest.raises(
        ValueError,
        match=(
            "policy must be 16 actions from 0 to 3, or 16 rows of 4 probabilities, got numbers of"
            " shape"
        ),
    ):
        PolicyEvaluation.solve(TABULAR["FrozenLake-v1"], policy=policy)
    with pytest.raises(rlbook.RequestError, match="policy must be 16 actions"):
        rlbook.train("policy_evaluation", "FrozenLake-v1", policy=policy)


# ---- the same model in other clothes

# Of the models below, with γ = .9: 30 states, rewards of up to 7.
ROUNDING = rounding_bound("float64", terms=30, size=19 * 70)
WITHIN = 2 * (TOLERANCE + ROUNDING)


def model_of(seed: int) -> tuple[sparse.csr_array, np.ndarray]:
    return arrays(np.random.default_rng(seed), 30, 3, unreachable=False)


@every_planner
@pytest.mark.parametrize("seed", range(3))
def test_rewards_times_k_scale_values_by_k_and_keep_the_policy(planner: Planner, seed: int) -> None:
    transitions, rewards = model_of(seed)
    agent = solve(planner, TabularMDP.from_arrays(transitions, rewards), gamma=0.9)
    for k in (0.25, 1000.0):
        scaled = solve(planner, TabularMDP.from_arrays(transitions, k * rewards), gamma=0.9)
        within = (1 + k) * (TOLERANCE + ROUNDING)
        np.testing.assert_allclose(scaled.values(), k * agent.values(), rtol=0, atol=within)
        np.testing.assert_array_equal(scaled.greedy_policy(), agent.greedy_policy())


@every_planner
@pytest.mark.parametrize("seed", range(3))
def test_a_bonus_at_every_step_is_worth_its_sum_where_nothing_ends(
    planner: Planner, seed: int
) -> None:
    """V + c / (1 - γ): the geometric series of a reward c."""
    transitions, rewards = model_of(seed)
    agent = solve(planner, TabularMDP.from_arrays(transitions, rewards), gamma=0.9)
    raised = solve(planner, TabularMDP.from_arrays(transitions, rewards + 3.0), gamma=0.9)
    expected = agent.values() + 3.0 / (1 - 0.9)
    np.testing.assert_allclose(raised.values(), expected, rtol=0, atol=WITHIN)
    np.testing.assert_array_equal(raised.greedy_policy(), agent.greedy_policy())


@every_planner
@pytest.mark.parametrize("seed", range(3))
def test_relabelled_states_permute_values_and_policy(planner: Planner, seed: int) -> None:
    transitions, rewards = model_of(seed)
    order = np.random.default_rng(seed).permutation(30)  # new state i was old state order[i]
    rows = (order[:, None] * 3 + np.arange(3)).ravel()
    moved = TabularMDP.from_arrays(transitions.toarray()[rows][:, order], rewards[order])
    agent, relabelled = (
        solve(planner, TabularMDP.from_arrays(transitions, rewards), gamma=0.9),
        solve(planner, moved, gamma=0.9),
    )
    np.testing.assert_allclose(relabelled.values(), agent.values()[order], rtol=0, atol=WITHIN)
    np.testing.assert_array_equal(relabelled.greedy_policy(), agent.greedy_policy()[order])


@every_planner
def test_a_state_that_nothing_leads_to_changes_nothing(planner: Planner) -> None:
    transitions, rewards = model_of(0)
    wider = sparse.lil_array((31 * 3, 31))
    wider[:90, :30] = transitions.toarray()
    wider[90:, 7] = 1.0  # the new state leads to state 7, and pays 5
    model = TabularMDP.from_arrays(wider.tocsr(), np.vstack([rewards, np.full(3, 5.0)]))
    agent, more = (
        solve(planner, TabularMDP.from_arrays(transitions, rewards), gamma=0.9),
        solve(planner, model, gamma=0.9),
    )
    np.testing.assert_allclose(more.values()[:30], agent.values(), rtol=0, atol=WITHIN)
    assert abs(more.values()[30] - (5.0 + 0.9 * agent.values()[7])) <= WITHIN
    np.testing.assert_array_equal(more.greedy_policy()[:30], agent.greedy_policy())


@given(
    model=models(),
    gamma=st.sampled_from([0.5, 0.9]),
    sweeps=st.integers(1, 30),
    sweep=st.sampled_from(["synchronous", "gauss-seidel"]),
)
@settings(max_examples=100, deadline=None)
def test_the_bounds_on_values_and_policy_hold_whenever_it_stops(
    model: TabularMDP, gamma: float, sweeps: int, sweep: str
) -> None:
    expected = dense_optimal_values(model, gamma)
    agent = ValueIteration(
        Spaces(model),
        ValueIteration.Config(gamma=gamma, max_sweeps=sweeps, sweep=sweep, tolerance=1e-3),
    )
    metrics = list(agent.plan(model))[-1]
    solving = 2 * rounding(model, gamma)
    assert np.abs(agent.values() - expected).max() <= metrics["bound"] + solving
    followed = dense_policy_values(model, np.eye(model.num_actions)[agent.greedy_policy()], gamma)
    assert (expected - followed).max() <= metrics["policy_loss_bound"] + solving


class Spaces:
    """As much of an environment as a planner looks at."""

    def __init__(self, model: TabularMDP) -> None:
        self.observation_space = gymnasium.spaces.Discrete(model.num_states)
        self.action_space = gymnasium.spaces.Discrete(model.num_actions)


@pytest.mark.parametrize("pays", [0.0, 1.0])
@pytest.mark.parametrize("ends", [False, True])
@every_planner
def test_no_planner_logs_minus_zero(planner: Planner, ends: bool, pays: float) -> None:
    """A sweep that changes nothing has a change of 0, and so a bound of 0."""
    kind, config = planner
    chain = from_entries([(0, 0, 1, 1.0, pays, False), (1, 0, 1, 1.0, 0.0, ends)], 2, 1)
    agent = kind(Spaces(chain), kind.Config(gamma=0.9, **config))
    logged = [item for metrics in agent.plan(chain) for item in metrics.items()]
    assert logged and [item for item in logged if math.copysign(1.0, item[1]) < 0] == []


def test_without_the_planned_action_the_best_of_the_others_is_taken() -> None:
    """Every step costs 1, so that all values are negative."""
    agent: Any = rlbook.train("value_iteration", "GridWorld-v0").agent
    values = agent.action_values()
    assert values.min() < -1.0
    for state, row in enumerate(values):
        allowed = np.arange(len(row)) != agent.act(state)
        taken = agent.act(state, action_mask=allowed)
        assert allowed[taken] and row[taken] == row[allowed].max()
