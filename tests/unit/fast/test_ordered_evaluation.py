"""Planning without numba on maps that knowledge crosses cell by cell: sweeps over a policy, in an
order that is worked out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from closeness import assert_near, rounding_bound
from scipy import sparse

from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.envs import TabularMDP
from rlbook.fast.tabular import planning, sparse_product, sweeps
from rlbook.fast.tabular.ordered_evaluation import distances, evaluate_in_order
from rlbook.fast.tabular.sparse_product import add_product, runs_in_place
from rlbook.fast_forms import use_plain_forms


class Size(NamedTuple):
    n: int


class Spaces:
    """As much of an environment as a planner looks at."""

    def __init__(self, model: TabularMDP) -> None:
        self.observation_space, self.action_space = Size(model.num_states), Size(model.num_actions)


@pytest.fixture
def no_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """And no model too small to be swept in order, also where RLBOOK_PLAIN leaves other fast forms
    alone."""
    monkeypatch.setattr(sweeps, "WORTH_COMPILING", 2**62)
    monkeypatch.setattr(planning, "WORTH_ORDERING", 0)
    with use_plain_forms(False):
        yield


def corridor(length: int, *, ends: bool = False) -> TabularMDP:
    """Left or right, a tenth of the moves goes the other way; -1 a step until the last cell, which
    ends the episode or is forever."""
    cell = np.arange(length)
    left, right = np.maximum(cell - 1, 0), np.minimum(cell + 1, length - 1)
    left[-1] = right[-1] = length - 1
    # [S, A, 2]
    successors = np.stack(
        [np.stack([left, right], axis=1), np.stack([right, left], axis=1)], axis=1
    )
    starts = np.arange(0, successors.size + 1, 2)
    chances = np.broadcast_to([0.9, 0.1], successors.shape).ravel()
    matrix = sparse.csr_array((chances, successors.ravel(), starts), shape=(2 * length, length))
    rewards = np.full((length, 2), -1.0)
    rewards[-1] = 0.0
    return TabularMDP.from_arrays(matrix, rewards, terminal=cell == length - 1 if ends else None)


def test_distances_count_steps_back_from_the_known_states() -> None:
    """Known: cell 3 of 5. Cells 2, 1 and 0 lead to it in 1, 2 and 3 steps, cell 4 never, since
    nothing leaves it."""
    model = corridor(5)
    order, distance = distances(model.continues_by_state, 2, np.arange(5) == 3)
    assert distance[:4].tolist() == [4.0, 3.0, 2.0, 1.0] and distance[4] > 4.0
    assert order.tolist() == [3, 2, 1, 0, 4]


def test_one_sweep_in_order_crosses_a_map_where_no_move_goes_astray() -> None:
    """Going right from cell 0 to 99: V = -(1 + γ + … + γ^(98 - s)) = -(1 - γ^(99 - s)) / (1 - γ)
    after a single sweep."""
    successors = np.minimum(np.arange(100) + 1, 99)
    rows = sparse.csr_array((np.ones(100), successors, np.arange(101)), shape=(100, 100))
    rewards, values = np.where(np.arange(100) == 99, 0.0, -1.0)[:, None], np.full(100, -7.0)
    evaluate_in_order(
        rows,
        rewards,
        0.9,
        np.arange(100)[::-1],
        np.zeros(100, dtype=int),
        values,
        times=1,
        enough=0.0,
    )
    assert_near(values, -(1 - 0.9 ** (99 - np.arange(100))) / (1 - 0.9), terms=100)


def test_many_sweeps_in_order_solve_the_equations_of_a_policy() -> None:
    rng = np.random.default_rng(1)
    model = TabularMDP.from_arrays(rng.dirichlet(np.ones(30), size=90), rng.normal(size=(30, 3)))
    policy, values = rng.integers(3, size=30), rng.normal(size=30)
    exact = model.policy_values(policy, 0.9)
    left = 0.9**300 * np.abs(values - exact).max()  # a sweep leaves γ of the distance
    evaluate_in_order(
        model.continues_by_state,
        model.rewards,
        0.9,
        rng.permutation(30),
        policy,
        values,
        times=300,
        enough=0.0,
    )
    condition = (1 + 0.9) / (1 - 0.9)  # of I - γ P, at most
    rounding = rounding_bound("float64", terms=30, size=condition * np.abs(exact).max())
    np.testing.assert_allclose(values, exact, rtol=0, atol=left + rounding)


@pytest.mark.usefixtures("no_numba")
@pytest.mark.parametrize("ends", [False, True])
def test_without_numba_a_long_corridor_takes_few_sweeps_and_is_solved_to_the_tolerance(
    ends: bool,
) -> None:
    """Synchronous sweeps reach cell 0 after 400 of them; these stop after a few, by the same
    bound."""
    model = corridor(400, ends=ends)
    agent = ValueIteration.solve(model, gamma=0.99, tolerance=1e-6)  # bounds the values' error
    exact = PolicyIteration.solve(model, gamma=0.99).values()
    np.testing.assert_allclose(agent.values(), exact, rtol=0, atol=agent.config.tolerance)
    assert agent.converged and agent.state_dict()["sweep"] < 40


@pytest.mark.usefixtures("no_numba")
@pytest.mark.parametrize("stop", [1, 4, 6])
def test_without_numba_planning_goes_on_bit_for_bit_where_it_was_saved(stop: int) -> None:
    model, config = corridor(400), ValueIteration.Config(gamma=0.99)
    whole, first, second = (ValueIteration(Spaces(model), config) for _ in range(3))
    metrics = list(whole.plan(model))
    head = list(itertools.islice(first.plan(model), stop))
    second.load_state_dict(
        {
            key: np.copy(value) if isinstance(value, np.ndarray) else value
            for key, value in first.state_dict().items()
        }
    )
    assert head + list(second.plan(model)) == metrics and len(metrics) > 6
    np.testing.assert_array_equal(second.values(), whole.values())


@pytest.mark.usefixtures("no_numba")
def test_a_forged_order_is_refused() -> None:
    model = corridor(400)
    agent = ValueIteration(Spaces(model), ValueIteration.Config(gamma=0.99))
    list(itertools.islice(agent.plan(model), 5))
    state = agent.state_dict()
    assert sorted(state["order"]) == list(range(400))
    for forged in (np.full(400, 7), np.arange(1, 401), np.arange(399)):
        with pytest.raises(ValueError, match="order must name each of 400 states once"):
            ValueIteration(Spaces(model), ValueIteration.Config(gamma=0.99)).load_state_dict(
                state | {"order": forged}
            )


@pytest.mark.usefixtures("no_numba")
def test_the_public_product_stands_in_where_the_private_one_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows 3 to 5 of a matrix of 8; without the private function nothing runs in place, so sweeps
    stay synchronous."""
    rng = np.random.default_rng(2)
    matrix = sparse.csr_array(sparse.random_array((8, 6), density=0.5, rng=rng))
    x, out = rng.normal(size=6), rng.normal(size=3)
    expected = out + (matrix @ x)[3:6]
    for private in (sparse_product._private, None):
        monkeypatch.setattr(sparse_product, "_private", private)
        found = out.copy()
        add_product(matrix.indptr[3:7], matrix.indices, matrix.data, x, found)
        assert_near(found, expected, terms=6, size=np.abs(x).sum() + 3)
    runs_in_place.cache_clear()
    assert not runs_in_place()
    model = corridor(60)
    agent = ValueIteration.solve(model, gamma=0.9, tolerance=1e-6)
    exact = PolicyIteration.solve(model, gamma=0.9).values()
    np.testing.assert_allclose(agent.values(), exact, rtol=0, atol=agent.config.tolerance)
    assert agent.state_dict()["order"] is None
    runs_in_place.cache_clear()
