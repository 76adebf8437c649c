"""What is claimed of each planner: the gambler, ties, bounds, resuming, and the same bits with and
without numba."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near, rounding_bound
from scipy import sparse

import rlbook
from rlbook.algorithms.planning import prioritized_sweeping
from rlbook.algorithms.planning.modified_policy_iteration import ModifiedPolicyIteration
from rlbook.algorithms.planning.policy_evaluation import PolicyEvaluation
from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.algorithms.planning.prioritized_sweeping import PrioritizedSweeping
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.algorithms.planning.undiscounted import gaining_states
from rlbook.algorithms.planning.value_iteration import ValueIteration, ValueIterationConfig
from rlbook.envs import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.fast.compiled import available
from rlbook.fast.tabular import planning, sweeps
from rlbook.fast.tabular.sweeps import CompiledSweeps, SparseSweeps
from rlbook.fast_forms import use_plain_forms

Planner = tuple[type[TablePlanner], dict[str, Any]]
TOLERANCE = 1e-9  # of a value where γ < 1; where γ = 1, of what another sweep would change
PLANNERS: dict[str, Planner] = {
    "value_iteration": (ValueIteration, {"tolerance": TOLERANCE}),
    "gauss-seidel": (ValueIteration, {"tolerance": TOLERANCE, "sweep": "gauss-seidel"}),
    "policy_iteration": (PolicyIteration, {}),
    "modified_policy_iteration": (ModifiedPolicyIteration, {"tolerance": TOLERANCE}),
    "prioritized_sweeping": (PrioritizedSweeping, {"tolerance": TOLERANCE}),
}
METHODS = ("in-place", "synchronous", "linear")
FROZEN_LAKE_8X8 = TabularMDP.from_env(gymnasium.make("FrozenLake8x8-v1"))
SLIPPERY_CLIFF = TabularMDP.from_env(gymnasium.make("CliffWalkingSlippery-v1"))

every_planner = pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)


def solve(planner: Planner, model: TabularMDP, **config: Any) -> TablePlanner:
    return planner[0].solve(model, **planner[1] | config)


def arrays(
    rng: np.random.Generator, num_states: int, num_actions: int
) -> tuple[sparse.csr_array, np.ndarray]:
    """A CSR matrix put together by hand: successors unsorted, some of them twice in one row."""
    branches = int(rng.integers(1, 5))
    indices = rng.integers(num_states, size=(num_states * num_actions, branches))
    data = rng.dirichlet(np.ones(branches), size=num_states * num_actions)
    indptr = np.arange(0, indices.size + 1, branches)
    shape = (num_states * num_actions, num_states)
    return sparse.csr_array((data.ravel(), indices.ravel(), indptr), shape=shape), rng.normal(
        size=(num_states, num_actions)
    )


def gambler(heads: float) -> TabularMDP:
    """Capital 1 … 99, stakes 1 … 50 (too high a stake counts as the highest that is allowed); 100
    pays 1 and ends, 0 ends."""
    entries = []
    for capital in range(1, 100):
        for action in range(50):
            stake = min(action + 1, capital, 100 - capital)
            won, lost = capital + stake, capital - stake
            entries += [
                (capital, action, won, heads, float(won == 100), won == 100),
                (capital, action, lost, 1 - heads, 0.0, lost == 0),
            ]
    entries += [
        (state, action, state, 1.0, 0.0, True) for state in (0, 100) for action in range(50)
    ]
    return from_entries(entries, 101, 50)


@every_planner
def test_where_every_stake_is_optimal_planning_comes_to_an_end(planner: Planner) -> None:
    """A fair coin: V(s) = s / 100, whatever is staked, so that the policies of the textbook's
    policy iteration take turns forever."""
    agent = solve(planner, gambler(0.5), gamma=1.0)
    error = TOLERANCE * 50 * 50  # a game takes s (100 - s) steps at most
    np.testing.assert_allclose(agent.values()[1:100], np.arange(1, 100) / 100, rtol=0, atol=error)
    assert np.ptp(agent.action_values()[1:100], axis=1).max() < 2 * error


@every_planner
@pytest.mark.parametrize(
    ("heads", "known"),
    [
        (0.4, {25: 0.16, 50: 0.4, 75: 0.64, 51: 0.403098, 1: 0.002066, 99: 0.964333}),
        (0.25, {50: 0.25, 75: 0.4375}),
    ],
)
def test_the_gambler_is_worth_what_bold_play_wins(
    planner: Planner, heads: float, known: dict[int, float]
) -> None:
    """At 50: heads. At 25: heads twice. At 75: heads, or tails and then heads, p + (1 - p) p. The
    others are the recorded numbers."""
    values = solve(planner, gambler(heads), gamma=1.0).values()
    for capital, value in known.items():
        error = TOLERANCE * 99 / (1 - 2 * heads)  # a game takes s / (1 - 2 p) steps at most
        assert values[capital] == pytest.approx(value, rel=0, abs=5e-7 + error)  # six decimals


def test_policy_iteration_improves_in_every_round_and_stays_short() -> None:
    model = FROZEN_LAKE_8X8
    agent = PolicyIteration(Spaces(model), PolicyIteration.Config(gamma=0.99))
    rounds = []
    for metrics in agent.plan(model):
        rounds.append((agent.values(), metrics["changed"]))
    rounding = rounding_bound("float64", terms=64, size=199)  # (1 + γ) / (1 - γ), V ≤ 1
    for (before, _), (after, _) in itertools.pairwise(rounds):
        assert (after >= before - rounding).all() and (after > before + 2 * rounding).any()
    assert [changed > 0 for _, changed in rounds] == [True] * (len(rounds) - 1) + [False]
    assert len(rounds) < 20


@pytest.mark.thorough
def test_where_long_play_wins_prioritized_sweeping_takes_few_backups() -> None:
    """p = .55: small stakes win in the end, and news goes to and fro. Sweeps over all states take 3
    700 times 99 backups."""
    model = gambler(0.55)
    agent = PrioritizedSweeping.solve(model, gamma=1.0, tolerance=1e-2)
    exact = PolicyIteration.solve(model, gamma=1.0).values()
    assert agent.converged and agent.state_dict()["backups"] < 100_000
    np.testing.assert_allclose(agent.values(), exact, rtol=0, atol=agent.config.tolerance)


LOOPS = {
    "pays": [
        (0, 0, 0, 1.0, 1.0, False),
        (0, 1, 0, 1.0, 0.0, True),
    ],  # 1 a step forever, beside an exit
    "pays every other step": [
        (0, 0, 1, 1.0, 1.0, False),
        (0, 1, 0, 1.0, 0.0, True),
        (1, 0, 0, 1.0, -0.5, False),
        (1, 1, 0, 1.0, 0.0, True),
    ],
}


@every_planner
@pytest.mark.parametrize("loop", LOOPS)
def test_without_discount_no_planner_returns_values_that_grow_for_ever(
    planner: Planner, loop: str
) -> None:
    entries = LOOPS[loop]
    with pytest.raises(rlbook.TrainingError, match="infinity"):
        solve(planner, from_entries(entries, entries[-1][0] + 1, 2), gamma=1.0)


@every_planner
def test_without_discount_no_planner_returns_values_that_fall_for_ever(planner: Planner) -> None:
    """-1 a step and no way out: the answer was -500 000 once, 100 000 sweeps and what the bound
    made of them."""
    costly = from_entries([(0, 0, 0, 1.0, -1.0, False), (1, 0, 1, 1.0, -1.0, True)], 2, 1)
    with pytest.raises(
        ValueError,
        match=(
            "with gamma 1 no policy has finite values in 1 states, from which nothing ends the"
            " episode"
        ),
    ):
        solve(planner, costly, gamma=1.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("reward", [-1.0, 1.0])
def test_without_discount_no_policy_is_evaluated_that_never_ends(
    method: str, reward: float
) -> None:
    model = from_entries([(0, 0, 0, 1.0, reward, False)], 1, 1)
    with pytest.raises(
        rlbook.TrainingError,
        match="policy never ends the episode from 1 states, so with gamma 1 it has no values",
    ):
        PolicyEvaluation.solve(model, gamma=1.0, method=method)


@every_planner
def test_a_limit_that_was_reached_is_said(planner: Planner) -> None:
    """By a flag where the limit was asked for, by an error where it was not, and in the log."""
    kind, options = planner
    model = FROZEN_LAKE_8X8
    assert not solve(planner, model, max_sweeps=1).converged and solve(planner, model).converged
    reports = list(kind(Spaces(model), kind.Config(**options | {"max_sweeps": 2})).plan(model))
    assert [report.get("converged") for report in reports] == [None, 0.0]
    whole = list(kind(Spaces(model), kind.Config(**options)).plan(model))
    assert [report.get("converged") for report in whole] == [None] * (len(whole) - 1) + [1.0]


def test_a_limit_nobody_asked_for_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ValueIteration,
        "Config",
        lambda **options: ValueIterationConfig(**options | {"max_sweeps": 3}),
    )
    with pytest.raises(
        rlbook.TrainingError, match="values were not within tolerance after max_sweeps = 3 sweeps"
    ):
        ValueIteration.solve(FROZEN_LAKE_8X8)


@every_planner
@pytest.mark.parametrize("k", [1e-12, 1e12])
def test_tiny_and_huge_rewards_have_the_policy_of_the_others(planner: Planner, k: float) -> None:
    """Tolerances are of the size of the rewards: with rewards of 1e-12 one of 1e-8 would stop
    everything after a sweep."""
    transitions, rewards = arrays(np.random.default_rng(0), 30, 3)
    agent = solve(planner, TabularMDP.from_arrays(transitions, rewards), gamma=0.9)
    scaled = solve(planner, TabularMDP.from_arrays(transitions, k * rewards), gamma=0.9)
    np.testing.assert_array_equal(scaled.greedy_policy(), agent.greedy_policy())
    rounding = rounding_bound("float64", terms=30, size=19 * 10 * np.abs(rewards).max())
    within = TOLERANCE * (1 + np.abs(rewards).max()) + rounding
    np.testing.assert_allclose(scaled.values() / k, agent.values(), rtol=0, atol=within)


def test_rewards_that_add_up_to_infinity_are_told_and_not_iterated() -> None:
    """A loop that pays 1 a step beside an exit; a loop that costs 1 a step without one."""
    paying = from_entries([(0, 0, 0, 1.0, 1.0, False), (0, 1, 0, 1.0, 0.0, True)], 1, 2)
    with pytest.raises(rlbook.TrainingError, match="policy never ends the episode from 1 states"):
        PolicyIteration.solve(paying, gamma=1.0)
    costly = from_entries([(0, 0, 0, 1.0, -1.0, False)], 1, 1)
    with pytest.raises(ValueError, match="with gamma 1 no policy has finite values in 1 states"):
        PolicyIteration.solve(costly, gamma=1.0)
    with pytest.raises(rlbook.TrainingError, match="policy never ends the episode from 1 states"):
        PolicyEvaluation.solve(costly, gamma=1.0, method="linear")


@every_planner
def test_resting_unpaid_for_ever_is_worth_more_than_an_end_that_costs(planner: Planner) -> None:
    """State 0: stay for 0, or leave; leaving costs 1 in the state after. Every policy that ends is
    worth -1, and V* is 0."""
    entries = [
        (0, 0, 1, 1.0, 0.0, False),
        (0, 1, 0, 1.0, 0.0, False),
        (1, 0, 1, 1.0, -1.0, True),
        (1, 1, 1, 1.0, -1.0, True),
    ]
    np.testing.assert_array_equal(
        solve(planner, from_entries(entries, 2, 2), gamma=1.0).values(), [0.0, -1.0]
    )


@pytest.mark.parametrize("evaluations", [0, 1, 5, 50])
def test_modified_policy_iteration_between_its_two_limits(evaluations: int) -> None:
    """m = 0 is value iteration to the bit; more evaluating sweeps mean fewer improving ones, down
    to policy iteration's."""
    model = FROZEN_LAKE_8X8
    agent = ModifiedPolicyIteration(
        Spaces(model), ModifiedPolicyIteration.Config(evaluation_sweeps=evaluations)
    )
    improvements = list(agent.plan(model))
    whole = ValueIteration(Spaces(model), ValueIteration.Config())
    if evaluations == 0:
        assert improvements == list(whole.plan(model))
        np.testing.assert_array_equal(agent.values(), whole.values())
    else:
        assert len(improvements) < 1.2 * len(list(whole.plan(model))) / (1 + evaluations) + 20


def test_the_largest_priority_is_the_largest_bellman_error() -> None:
    model = SLIPPERY_CLIFF
    agent = PrioritizedSweeping(Spaces(model), PrioritizedSweeping.Config(gamma=0.9))
    reports = 0
    for metrics in agent.plan(model):
        error = np.abs(model.backup(agent.values(), 0.9).max(axis=1) - agent.values())
        assert metrics["priority"] == error.max()
        reports += 1
    assert reports > 10


def test_prioritized_sweeping_updates_a_corridor_once_from_its_end() -> None:
    """A reward at the far end of 40 states: one backup a state, where sweeps from the near end take
    40 × 40."""
    entries = [(s, 0, s + 1, 1.0, 0.0, False) for s in range(39)] + [(39, 0, 39, 1.0, 1.0, True)]
    agent = PrioritizedSweeping.solve(from_entries(entries, 40, 1), gamma=0.9)
    assert_near(agent.values(), 0.9 ** np.arange(39, -1, -1), terms=39)
    assert agent.state_dict()["backups"] == 40


def test_prioritized_sweeping_takes_the_same_backups_on_whole_rows_as_on_lists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Row sums of 30 terms may round differently, and no more."""
    rng = np.random.default_rng(5)
    model = TabularMDP.from_arrays(rng.dirichlet(np.ones(30), size=90), rng.random((30, 3)))
    whole = PrioritizedSweeping.solve(model, gamma=0.8)
    monkeypatch.setattr(prioritized_sweeping, "is_dense", lambda model: False)
    listed = PrioritizedSweeping.solve(model, gamma=0.8)
    assert whole.state_dict()["backups"] == listed.state_dict()["backups"] > 200
    condition = (1 + 0.8) / (1 - 0.8)
    assert_near(whole.values(), listed.values(), terms=30, size=condition * whole.values().max())


# ---- stopping, going on, and running without numba


class Spaces:
    """As much of an environment as a planner looks at."""

    def __init__(self, model: TabularMDP) -> None:
        self.observation_space = gymnasium.spaces.Discrete(model.num_states)
        self.action_space = gymnasium.spaces.Discrete(model.num_actions)


RESUMED = PLANNERS | {
    f"policy_evaluation {method}": (PolicyEvaluation, {"method": method}) for method in METHODS
}


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("size", [40, 2_000])
@pytest.mark.parametrize("planner", RESUMED.values(), ids=RESUMED)
@pytest.mark.parametrize("gamma", [0.95, 1.0])
def test_planning_goes_on_bit_for_bit_where_it_was_saved(
    planner: Planner, gamma: float, size: int
) -> None:
    """The larger model is swept by compiled code where that is to be had."""
    transitions, rewards = arrays(np.random.default_rng(size), size, 3)
    ends = np.arange(size) % 10 == 0 if gamma == 1 else None
    model = TabularMDP.from_arrays(transitions, rewards - 3.0, terminal=ends)
    kind, options = planner
    config = kind.Config(**options | {"gamma": gamma, "max_sweeps": 60})
    whole = kind(Spaces(model), config)
    metrics = list(whole.plan(model))
    for stop in {0, 1, len(metrics) // 2, len(metrics)}:
        first, second = kind(Spaces(model), config), kind(Spaces(model), config)
        head = list(itertools.islice(first.plan(model), stop))
        second.load_state_dict(
            {
                key: value.copy() if isinstance(value, np.ndarray) else value
                for key, value in first.state_dict().items()
            }
        )
        assert head + list(second.plan(model)) == metrics
        np.testing.assert_array_equal(second.values(), whole.values())
        np.testing.assert_array_equal(second.greedy_policy(), whole.greedy_policy())


@pytest.mark.thorough
@pytest.mark.skipif(not available(), reason="numba is not installed")
@pytest.mark.parametrize("ending", [False, True])
@pytest.mark.parametrize("num_states", [8_000, 50_000])
def test_compiled_and_sparse_sweeps_give_the_same_bits(num_states: int, ending: bool) -> None:
    """Also after hundreds of sweeps in which both leave out actions that cannot be best (without
    numba in smaller models only)."""
    transitions, rewards = arrays(np.random.default_rng(0), num_states, 3)
    model = TabularMDP.from_arrays(
        transitions, rewards, terminal=np.arange(num_states) % 9 == 0 if ending else None
    )
    forms = [
        kind(model.continues_by_state, model.rewards, 0.95, model.can_end)
        for kind in (CompiledSweeps, SparseSweeps)
    ]
    pairs = [(np.zeros(num_states), np.empty(num_states)) for _ in forms]
    for _ in range(300):
        extremes = [form.optimal(*pair) for form, pair in zip(forms, pairs, strict=True)]
        assert extremes[0] == extremes[1]
        pairs = [pair[::-1] for pair in pairs]
        np.testing.assert_array_equal(pairs[0][0], pairs[1][0])
    improved = [
        form.improve(pair[1], np.empty(num_states)) for form, pair in zip(forms, pairs, strict=True)
    ]
    assert improved[0][0] == improved[1][0]
    policies = [policy for _, policy in improved]
    np.testing.assert_array_equal(*policies)
    after = [
        form.sweep_policy(policies[0], *pair, times=3)[0]
        for form, pair in zip(forms, pairs, strict=True)
    ]
    np.testing.assert_array_equal(*after)
    assert forms[0].sweep_in_place(after[0]) == forms[1].sweep_in_place(after[1])
    np.testing.assert_array_equal(*after)


def test_an_action_that_was_left_out_comes_back_when_values_have_moved_far_enough() -> None:
    """State 0 pays 1 a step forever, state 1 nothing; from the others one comes to state 1 and is
    paid 5, or, unpaid, to state 0.

    V(0) = (1 - γ^k) / (1 - γ) after k sweeps, so that the second is better once γ V(0) > 5: from
    the seventh sweep on with γ = 0.99.
    """
    paid = np.tile([5.0, 0.0, -50.0, -50.0], (6_000, 1))
    paid[0], paid[1] = 1.0, 0.0
    successors = np.ones((6_000, 4), dtype=int)
    successors[0], successors[2:, 1] = 0, 0
    rows = sparse.csr_array(
        (np.ones(24_000), successors.ravel(), np.arange(24_001)), shape=(24_000, 6_000)
    )
    form, values, left_out = SparseSweeps(rows, paid, 0.99, False), np.zeros(6_000), []
    for sweep in range(20):
        out = np.empty(6_000)
        form.optimal(values, out)
        assert out[2] == near(max(5.0, 0.99 * (1 - 0.99**sweep) / (1 - 0.99)), terms=20, size=20)
        left_out.append(form._rivals is not None)
        values = out
    assert any(left_out[:4]) and not left_out[6]


def test_a_large_model_is_swept_where_the_system_tells_no_cores_of_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """macOS has no `sched_getaffinity`."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(sweeps, "WORTH_SHARING", 4)
    # two states that lead to themselves, with rewards 1 and 2: one sweep from 0 gives these
    rows = sparse.csr_array(np.eye(2).repeat(2, axis=0))
    form = SparseSweeps(rows, np.array([[1.0, 0.0], [0.0, 2.0]]), 0.5, False)
    out = np.empty(2)
    form.optimal(np.zeros(2), out)
    assert out.tolist() == [1.0, 2.0]


PLAIN_FORMS: dict[str, Planner] = {
    "synchronous": (ValueIteration, {"sweep": "synchronous"}),
    "gauss-seidel": (ValueIteration, {"sweep": "gauss-seidel"}),
    "modified_policy_iteration": (ModifiedPolicyIteration, {"evaluation_sweeps": 3}),
    "evaluation, synchronous": (PolicyEvaluation, {"method": "synchronous"}),
    "evaluation, in place": (PolicyEvaluation, {"method": "in-place"}),
}


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("planner", PLAIN_FORMS.values(), ids=PLAIN_FORMS)
@pytest.mark.parametrize("compiles_from", [0, 10**9], ids=["compiled", "arrays"])
@pytest.mark.parametrize("ending", [False, True])
def test_a_plain_sweep_and_its_fast_form_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, planner: Planner, compiles_from: int, ending: bool
) -> None:
    monkeypatch.setattr(sweeps, "WORTH_COMPILING", compiles_from)
    transitions, rewards = arrays(np.random.default_rng(3), 60, 3)
    model = TabularMDP.from_arrays(
        transitions, rewards, terminal=np.arange(60) % 9 == 0 if ending else None
    )
    kind, options = planner
    reports = {}
    for plain in (False, True):
        with use_plain_forms(plain):
            agent = kind(Spaces(model), kind.Config(**options, gamma=0.9, max_sweeps=60))
            reports[plain] = list(agent.plan(model)), agent.values().tolist()
    assert reports[True] == reports[False]


def test_automatic_sweeps_reach_what_plain_ones_reach() -> None:
    model = slippery_grid(40)
    fast = ValueIteration.solve(model, gamma=0.99, tolerance=1e-7)
    with use_plain_forms():
        plain = ValueIteration.solve(model, gamma=0.99, tolerance=1e-7)
    np.testing.assert_allclose(
        fast.values(), plain.values(), rtol=0, atol=2 * fast.config.tolerance
    )


def test_planning_needs_no_numba() -> None:
    code = """
import sys
sys.modules["numba"] = None                                     # importing it raises ImportError
import numpy as np, rlbook
from importlib.machinery import PathFinder
class Without:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name == "numba" else PathFinder.find_spec(name, path, target)
del sys.modules["numba"]
sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
from rlbook.envs import TabularMDP
rng = np.random.default_rng(0)
indices, data = rng.integers(3000, size=(6000, 3)), rng.dirichlet(np.ones(3), size=6000)
from scipy import sparse
matrix = sparse.csr_array((data.ravel(), indices.ravel(), np.arange(0, 18001, 3)), shape=(6000, 3000))
model = TabularMDP.from_arrays(matrix, rng.random((3000, 2)))
for name in ("value_iteration", "modified_policy_iteration", "policy_iteration", "policy_evaluation", "prioritized_sweeping"):
    run = rlbook.train(name, model, gamma=0.5, eval_every=0)
    print(name, run.metrics[-1]["value"])
assert "numba" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    values = [float(line.split()[1]) for line in done.stdout.splitlines()]
    tolerance, evaluated = 1e-8, values.pop(3)
    assert max(values) - min(values) <= 2 * tolerance and evaluated < min(values)


@pytest.mark.parametrize(
    "name",
    ["policy_evaluation", "policy_iteration", "modified_policy_iteration", "prioritized_sweeping"],
)
def test_every_logged_number_is_explained(name: str) -> None:
    run = rlbook.train(name, "Maze-v0", env_kwargs={"slip": 0.1}, eval_every=0)
    told = set(run.metrics[-1]) - {"step", "episodes"}
    assert told <= set(rlbook.algorithms()[name].METRICS) and {"sweep", "bound", "value"} <= told


def slippery_grid(side: int) -> TabularMDP:
    """-1 a step to the last corner, where nothing is paid any more and nothing ends; a fifth of the
    moves go astray."""
    cell = np.arange(side * side)
    row, column = np.divmod(cell, side)
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    reached = np.stack(
        [np.clip(row + i, 0, side - 1) * side + np.clip(column + j, 0, side - 1) for i, j in moves]
    )
    reached[:, -1] = side * side - 1
    # [S, A, 3]
    successors = np.stack([reached[[a, (a + 1) % 4, (a + 3) % 4]].T for a in range(4)], axis=1)
    chances = np.broadcast_to([0.8, 0.1, 0.1], successors.shape)
    rewards = np.full((side * side, 4), -1.0)
    rewards[-1] = 0.0
    matrix = sparse.csr_array(
        (chances.ravel(), successors.ravel(), np.arange(0, successors.size + 1, 3)),
        shape=(4 * side**2, side**2),
    )
    return TabularMDP.from_arrays(matrix, rewards)


@pytest.mark.skipif(not available(), reason="numba is not installed")
def test_where_knowledge_travels_cell_by_cell_automatic_goes_on_in_place() -> None:
    model = slippery_grid(40)
    automatic = ValueIteration.solve(model, gamma=0.99, tolerance=1e-7)
    synchronous = ValueIteration.solve(model, gamma=0.99, tolerance=1e-7, sweep="synchronous")
    exact = PolicyIteration.solve(model, gamma=0.99).values()
    for agent in (automatic, synchronous):
        np.testing.assert_allclose(agent.values(), exact, rtol=0, atol=agent.config.tolerance)
    assert 1.5 * automatic.state_dict()["sweep"] < synchronous.state_dict()["sweep"]


@pytest.mark.skipif(not available(), reason="numba is not installed")
@pytest.mark.parametrize("stop", [3, 5, 9, 30])
def test_automatic_goes_on_bit_for_bit_where_it_was_saved(stop: int) -> None:
    model, config = slippery_grid(40), ValueIteration.Config(gamma=0.99)
    whole = ValueIteration(Spaces(model), config)
    metrics = list(whole.plan(model))
    first, second = ValueIteration(Spaces(model), config), ValueIteration(Spaces(model), config)
    head = list(itertools.islice(first.plan(model), stop))
    second.load_state_dict(
        {
            key: np.copy(value) if isinstance(value, np.ndarray) else value
            for key, value in first.state_dict().items()
        }
    )
    assert head + list(second.plan(model)) == metrics
    np.testing.assert_array_equal(second.values(), whole.values())


@pytest.mark.skipif(not available(), reason="numba is not installed")
@pytest.mark.parametrize("ending", [False, True])
@pytest.mark.parametrize("gamma", [0.5, 0.95, 0.999])
def test_sweeps_made_in_one_go_are_those_made_one_by_one(
    monkeypatch: pytest.MonkeyPatch, gamma: float, ending: bool
) -> None:
    transitions, rewards = arrays(np.random.default_rng(1), 3_000, 3)
    terminal = np.arange(3_000) % 50 == 0 if ending else None
    for model in (
        TabularMDP.from_arrays(transitions, rewards, terminal=terminal),
        slippery_grid(40),
    ):
        config: dict[str, Any] = {"gamma": gamma, "tolerance": 1e-6, "max_sweeps": 900}
        ahead = ValueIteration(Spaces(model), ValueIteration.Config(**config))
        metrics = list(ahead.plan(model))
        at_once = ValueIteration.solve(model, **config)
        with monkeypatch.context() as patch:
            patch.setattr(planning, "AHEAD", 1)
            patch.setattr(planning, "AT_ONCE", 1)
            single = ValueIteration(Spaces(model), ValueIteration.Config(**config))
            assert list(single.plan(model)) == metrics
        for other in (ahead, at_once):
            np.testing.assert_array_equal(other.values(), single.values())
            assert {**other.state_dict(), "values": 0} == {**single.state_dict(), "values": 0}


def test_a_planner_plays_a_model_only_where_that_is_asked_for() -> None:
    model = slippery_grid(4)
    assert "eval_return" not in rlbook.train("value_iteration", model, gamma=0.9).metrics[-1]
    assert (
        "eval_return"
        in rlbook.train("value_iteration", model, gamma=0.9, eval_every=1, eval_episodes=1).metrics[
            -1
        ]
    )


@pytest.mark.parametrize("planner", ["value_iteration", "policy_iteration", "prioritized_sweeping"])
def test_a_run_without_a_folder_reports_the_sweeps_that_one_with_a_folder_does(
    planner: str, tmp_path: Path
) -> None:
    runs = [
        rlbook.train(planner, slippery_grid(6), gamma=0.9, out=folder)
        for folder in (None, tmp_path / "run")
    ]
    watched = rlbook.train(planner, slippery_grid(6), gamma=0.9, on_report=lambda run: None)
    assert runs[0].metrics == runs[1].metrics == watched.metrics and len(watched.metrics) > 2
    cut = [
        rlbook.train(planner, slippery_grid(6), gamma=0.9, steps=2, out=folder)
        for folder in (None, tmp_path / "cut")
    ]
    assert cut[0].metrics == cut[1].metrics and cut[0].steps == 2


def test_states_that_gain_for_ever_are_counted_one_by_one() -> None:
    """States 0 and 1 lead to each other and are paid 1 and 3, so 2 a step; state 2 stays, unpaid."""
    successors = np.eye(3)[[1, 0, 2]][:, None]  # [S, 1, S]
    model = TabularMDP.from_arrays(successors, [[1.0], [3.0], [0.0]])
    states, least = gaining_states(model, np.zeros(3))
    assert states == 2 and least == near(2.0, terms=100)
