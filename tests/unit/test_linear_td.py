"""Linear TD: updates by hand, their means as matrices, their fixed points; and the deadly triad."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from rlbook.book import baird
from rlbook.book.figures import figure, measured
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
    """δ = 3 + .5·2 - 1 = 3. TD: w₁ += .1 · 2 · 3. With h = (4, 5): x·h = 4; TDC: (3, 0) - .5 · 4 (0, 1) = (3, -2), times .2;
    h₁ += .3 · 2 (3 - 4). GTD2: 4 (1, -.5) = (4, -2), times .2."""
    h, step = np.array([4.0, 5.0]), {"gamma": 0.5, "alpha": 0.1, "ratio": 2.0}
    assert td_error(W, X, 3.0, NEXT, 0.5) == 3.0
    np.testing.assert_allclose(semi_gradient_update(W, X, 3.0, NEXT, **step), [1.6, 2.0])
    found: Any = tdc_update(W, h, X, 3.0, NEXT, beta=0.3, **step)
    np.testing.assert_allclose(found, [[1.6, 1.6], [3.4, 5.0]])
    found = gtd2_update(W, h, X, 3.0, NEXT, beta=0.3, **step)
    np.testing.assert_allclose(found, [[1.8, 1.6], [3.4, 5.0]])


def outcomes_of_baird() -> list[tuple[float, int, int, float]]:
    """Probability, state, next state and ratio of each outcome that the behaviour may see."""
    found = []
    for state, successor in product(range(7), range(7)):
        chance = 1 / 7 * (6 / 7 / 6 if successor < 6 else 1 / 7)
        found.append((chance, state, successor, 0.0 if successor < 6 else 7.0))
    return found


@pytest.mark.parametrize("kind", ["td", "tdc", "gtd2"])
def test_the_mean_of_the_updates_is_their_matrix_form(kind: str) -> None:
    """Over all 49 outcomes of Baird's problem, with made-up rewards r(s') of the solid action, from random w and h."""
    rng = np.random.default_rng(0)
    x, w, h, reward = baird.baird_features(), rng.normal(size=8), rng.normal(size=8), 1.5
    chain = baird.baird_model().chain(baird.TARGET)[0].toarray()
    a, b, c = system = td_system(x, baird.VISITS, chain, np.full(7, reward), 0.99)
    step = {"gamma": 0.99, "alpha": 0.1, "beta": 0.2}
    total_w, total_h = np.zeros(8), np.zeros(8)
    for chance, s, successor, ratio in outcomes_of_baird():
        if kind == "td":
            moved, helper = semi_gradient_update(w, x[s], reward, x[successor], gamma=0.99, alpha=0.1, ratio=ratio), h
        else:
            update = tdc_update if kind == "tdc" else gtd2_update
            moved, helper = update(w, h, x[s], reward, x[successor], ratio=ratio, **step)
        total_w += chance * moved
        total_h += chance * helper
    if kind == "tdc":
        np.testing.assert_allclose((total_w, total_h), mean_tdc_update(system, w, h, alpha=0.1, beta=0.2), atol=1e-12)
        return
    np.testing.assert_allclose(total_w, w + 0.1 * (b - a @ w if kind == "td" else a.T @ h), atol=1e-12)
    np.testing.assert_allclose(total_h, h if kind == "td" else h + 0.2 * (b - a @ w - c @ h), atol=1e-12)


def test_tds_fixed_point_with_a_table_is_the_value_and_with_aggregation_has_no_projected_error() -> None:
    """The walk of 9 states in three groups of three: w solves A w = b, PBE = 0, and VE is above 0 but at most 1/(1 - γ) of the least."""
    model, gamma = random_walk_model(9, 1, -1.0, 1.0), 0.9
    uniform = np.full((11, 2), 0.5)
    chain, rewards = model.chain(uniform)
    values, dense = model.policy_values(uniform, gamma), chain.toarray()
    visits = np.linalg.solve(np.eye(11) - dense.T, model.initial)
    table = td_system(np.eye(11), visits, dense, rewards, gamma)
    np.testing.assert_allclose(least_squares_solution(table.a, table.b)[1:-1], values[1:-1], atol=1e-12)
    x = np.zeros((11, 3))
    x[np.arange(1, 10), np.arange(9) // 3] = 1.0
    groups = td_system(x, visits, dense, rewards, gamma)
    w = least_squares_solution(groups.a, groups.b)
    np.testing.assert_allclose(groups.a @ w, groups.b, atol=1e-12)
    assert projected_bellman_error(w, groups) == pytest.approx(0.0, abs=1e-20)
    assert projected_bellman_error(w + 0.1, groups) > 1e-4
    best = least_squares_solution(x.T * visits @ x, x.T * visits @ values)
    least = value_error(best, x, values, visits)
    assert 0 < least < value_error(w, x, values, visits) <= least / (1 - gamma)


def test_the_features_and_the_streams_of_bairds_problem() -> None:
    """All states alike; dashed in 6 of 7 cases, and then one of the first six; within four standard errors of 7 000 steps."""
    x = baird.baird_features()
    assert x[2].tolist() == [0, 0, 2, 0, 0, 0, 0, 1] and x[6].tolist() == [0, 0, 0, 0, 0, 0, 1, 2]
    assert np.linalg.matrix_rank(x) == 7
    seen = baird.stream(7_000, 1)
    assert (np.abs(np.bincount(seen.state) - 1000) < 4 * np.sqrt(7_000 * 6 / 49)).all()
    assert ((seen.state[1:] == 6) == (seen.action == baird.SOLID)).all() and not seen.reward.any()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_the_triad_diverges_and_without_any_one_of_the_three_it_converges(seed: int) -> None:
    """All values are 0. They begin at 3 and 12."""
    largest = {left_out: np.abs(values).max() for left_out, values in baird.triad(seed=seed).items()}
    assert largest.pop("nothing") > 1e20
    assert set(largest) == {"function approximation", "bootstrapping", "off-policy learning"}
    assert max(largest.values()) < 0.1, largest


def test_what_the_triad_does_is_in_the_eigenvalues_of_its_mean_update() -> None:
    """w ← w + α (b - A w) diverges if and only if A has an eigenvalue with a negative real part."""
    x, table = baird.baird_features(), np.eye(7)
    least = {
        "nothing": np.linalg.eigvals(baird.system(x).a).real.min(),
        "function approximation": np.linalg.eigvals(baird.system(table).a).real.min(),
        "bootstrapping": np.linalg.eigvalsh(baird.system(x).c).min(),
        "off-policy learning": np.linalg.eigvals(baird.system(x, baird.BEHAVIOUR).a).real.min(),
    }
    assert least.pop("nothing") < -0.2
    assert min(least.values()) > -1e-12


def test_figures_11_2_and_11_5_show_what_the_book_shows() -> None:
    """TD: w₈ passes 200 within 1 000 steps and sweeps; TDC: √PBE goes to 0, √VE stays near 2, w₇ near 6.6 and w₈ near -2.3."""
    diverged, converged = (measured(number, figure(number)) for number in ("11.2", "11.5"))
    assert min(diverged["steps: w₈"], diverged["sweeps: w₈"]) > 200
    assert converged["sweeps: √PBE"] < 0.01 and converged["steps: √PBE"] < 0.2
    for kind in ("steps", "sweeps"):
        assert converged[f"{kind}: √VE"] == pytest.approx(1.93, abs=0.1)
        assert converged[f"{kind}: w₇"] == pytest.approx(6.6, abs=0.3) and converged[f"{kind}: w₈"] == pytest.approx(-2.3, abs=0.3)
