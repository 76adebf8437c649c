"""Linear TD: updates by hand, their means as matrices, their fixed points; and the deadly triad."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from closeness import assert_near, rounding_bound

from rlbook.book.experiments import baird
from rlbook.book.figures import figure, measurements
from rlbook.envs.random_walk import random_walk_model
from rlbook.functional.linear_td import (
    gtd2_update,
    least_squares_solution,
    mean_tdc_update,
    projected_bellman_error,
    semi_gradient_update,
    td_error,
    td_system,
    tdc_update,
    value_error,
)

W, X, NEXT = np.array([1.0, 2.0]), np.array([1.0, 0.0]), np.array([0.0, 1.0])


def test_the_updates_by_hand() -> None:
    """δ = 3 + .5·2 - 1 = 3. TD: w₁ += .1 · 2 · 3. With h = (4, 5): x·h = 4; TDC: (3, 0) - .5 · 4
    (0, 1) = (3, -2), times .2; h₁ += .3 · 2 (3 - 4). GTD2: 4 (1, -.5) = (4, -2), times .2."""
    h, step = np.array([4.0, 5.0]), {"gamma": 0.5, "alpha": 0.1, "ratio": 2.0}
    assert td_error(W, X, 3.0, NEXT, 0.5) == 3.0
    assert_near(semi_gradient_update(W, X, 3.0, NEXT, **step), [1.6, 2.0], terms=4)
    found: Any = tdc_update(W, h, X, 3.0, NEXT, beta=0.3, **step)
    assert_near(np.array(found), [[1.6, 1.6], [3.4, 5.0]], terms=4)
    found = gtd2_update(W, h, X, 3.0, NEXT, beta=0.3, **step)
    assert_near(np.array(found), [[1.8, 1.6], [3.4, 5.0]], terms=4)


def outcomes_of_baird() -> list[tuple[float, int, int, float]]:
    """Probability, state, next state and ratio of each outcome that the behaviour may see."""
    found = []
    for state, successor in product(range(7), range(7)):
        chance = 1 / 7 * (6 / 7 / 6 if successor < 6 else 1 / 7)
        found.append((chance, state, successor, 0.0 if successor < 6 else 7.0))
    return found


@pytest.mark.parametrize("kind", ["td", "tdc", "gtd2"])
def test_the_mean_of_the_updates_is_their_matrix_form(kind: str) -> None:
    """Over all 49 outcomes of Baird's problem, with made-up rewards r(s') of the solid action, from
    random w and h."""
    rng = np.random.default_rng(0)
    x, w, h, reward = baird.baird_features(), rng.normal(size=8), rng.normal(size=8), 1.5
    chain = baird.baird_model().chain(baird.TARGET)[0].toarray()
    a, b, c = system = td_system(x, baird.VISITS, chain, np.full(7, reward), 0.99)
    step = {"gamma": 0.99, "alpha": 0.1, "beta": 0.2}
    total_w, total_h = np.zeros(8), np.zeros(8)
    for chance, s, successor, ratio in outcomes_of_baird():
        if kind == "td":
            moved, helper = (
                semi_gradient_update(
                    w, x[s], reward, x[successor], gamma=0.99, alpha=0.1, ratio=ratio
                ),
                h,
            )
        else:
            update = tdc_update if kind == "tdc" else gtd2_update
            moved, helper = update(w, h, x[s], reward, x[successor], ratio=ratio, **step)
        total_w += chance * moved
        total_h += chance * helper
    # 49 outcomes of 8 products each; |w| < 2, and in one case of 7 the ratio 7 times .1 |δ| |x| < 2
    sums = {"terms": 49 * 8, "size": 4}
    if kind == "tdc":
        by_matrix = mean_tdc_update(system, w, h, alpha=0.1, beta=0.2)
        assert_near((total_w, total_h), by_matrix, **sums)
        return
    assert_near(total_w, w + 0.1 * (b - a @ w if kind == "td" else a.T @ h), **sums)
    assert_near(total_h, h if kind == "td" else h + 0.2 * (b - a @ w - c @ h), **sums)


def test_tds_fixed_point_with_a_table_is_the_value_and_with_aggregation_has_no_projected_error() -> (
    None
):
    """The walk of 9 states in three groups of three: w solves A w = b, PBE = 0, and VE is above 0
    but at most 1/(1 - γ) of the least."""
    model, gamma = random_walk_model(9, 1, -1.0, 1.0), 0.9
    uniform = np.full((11, 2), 0.5)
    chain, rewards = model.chain(uniform)
    values, dense = model.policy_values(uniform, gamma), chain.toarray()
    visits = np.linalg.solve(np.eye(11) - dense.T, model.initial)
    table = td_system(np.eye(11), visits, dense, rewards, gamma)
    solved = least_squares_solution(table.a, table.b)[1:-1]
    condition = np.linalg.cond(table.a[1:-1, 1:-1])
    assert_near(solved, values[1:-1], terms=11, size=condition * np.abs(values).max())
    x = np.zeros((11, 3))
    x[np.arange(1, 10), np.arange(9) // 3] = 1.0
    groups = td_system(x, visits, dense, rewards, gamma)
    w = least_squares_solution(groups.a, groups.b)
    products = np.abs(groups.a) @ np.abs(w) * np.linalg.cond(groups.a)
    residual = rounding_bound("float64", terms=11, size=products.max())
    np.testing.assert_allclose(groups.a @ w, groups.b, rtol=0, atol=residual)
    # PBE = dᵀ C⁻¹ d with d = b - A w
    least = 3 * residual**2 * np.linalg.norm(np.linalg.inv(groups.c), 2)
    assert 0 <= projected_bellman_error(w, groups) <= least < rounding_bound("float64")
    assert projected_bellman_error(w + 0.1, groups) > 1e-4
    best = least_squares_solution(x.T * visits @ x, x.T * visits @ values)
    least = value_error(best, x, values, visits)
    assert 0 < least < value_error(w, x, values, visits) <= least / (1 - gamma)


def test_the_features_and_the_streams_of_bairds_problem() -> None:
    """All states alike; dashed in 6 of 7 cases, and then one of the first six; within four standard
    errors of 7 000 steps."""
    x = baird.baird_features()
    assert x[2].tolist() == [0, 0, 2, 0, 0, 0, 0, 1] and x[6].tolist() == [0, 0, 0, 0, 0, 0, 1, 2]
    assert np.linalg.matrix_rank(x) == 7
    seen = baird.stream(7_000, 1)
    assert (np.abs(np.bincount(seen.state) - 1000) < 4 * np.sqrt(7_000 * 6 / 49)).all()
    assert ((seen.state[1:] == 6) == (seen.action == baird.SOLID)).all() and not seen.reward.any()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_the_triad_diverges_and_without_any_one_of_the_three_it_converges(seed: int) -> None:
    """All values are 0. They begin at 3 and 12."""
    largest = {
        left_out: np.abs(values).max() for left_out, values in baird.triad(seed=seed).items()
    }
    assert largest.pop("nothing") > 1e20
    assert set(largest) == {"function approximation", "bootstrapping", "off-policy learning"}
    assert max(largest.values()) < 0.1, largest


def test_what_the_triad_does_is_in_the_eigenvalues_of_its_mean_update() -> None:
    """w ← w + α (b - A w) diverges if and only if A has an eigenvalue with a negative real part."""
    x, table = baird.baird_features(), np.eye(7)
    matrices = {
        "nothing": baird.system(x).a,
        "function approximation": baird.system(table).a,
        "bootstrapping": baird.system(x).c,
        "off-policy learning": baird.system(x, baird.BEHAVIOUR).a,
    }
    assert np.linalg.eigvals(matrices.pop("nothing")).real.min() < -0.2
    for matrix in matrices.values():
        values, vectors = np.linalg.eig(matrix)
        # Bauer & Fike: rounding of A moves its eigenvalues by at most cond(vectors) times as much
        size = np.linalg.norm(matrix, 2) * np.linalg.cond(vectors)
        assert values.real.min() > -rounding_bound("float64", terms=len(matrix), size=size) > -1e-6


def test_figures_11_2_and_11_5_show_what_the_book_shows() -> None:
    """TD: w₈ passes 200 within 1 000 steps and sweeps.

    TDC: √PBE goes to 0, √VE stays at 1.9, w₇ at 6.6 and w₈ at -2.3.
    """
    diverged, converged = (measurements(number, figure(number)) for number in ("11.2", "11.5"))
    assert min(diverged["steps: w₈"], diverged["sweeps: w₈"]) > 200
    assert converged["sweeps: √PBE"] < 0.01 and converged["steps: √PBE"] < 0.2
    for kind in ("steps", "sweeps"):
        for name, printed in {"√VE": 1.9, "w₇": 6.6, "w₈": -2.3}.items():  # one decimal
            assert converged[f"{kind}: {name}"] == pytest.approx(printed, rel=0, abs=0.05)
