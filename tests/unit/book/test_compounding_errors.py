"""What mistakes cost over a horizon: exact values by hand, the two bounds, and the two
exponents."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import assert_near, near, rounding_bound

from rlbook.book.experiments.compounding_errors import (
    BACK,
    DEPTH,
    SIGHTS,
    Costs,
    draw,
    expected_returns,
    measurements,
    mistake_rate,
    road,
    run,
)


def test_the_expert_costs_nothing_and_who_never_returns_costs_what_the_hand_computes() -> None:
    """With ε per step on the road and never back, t steps later one is in the field with
    probability 1 - (1 - ε)^t."""
    there = road(0, ends=0.0)
    assert expected_returns(there.model, there.right, 50)[-1] == 0.0
    clone = there.right.copy()
    clone[100:] = (clone[100:] + 1) % BACK  # wrong about the rare sights, and "back" in no lane
    epsilon = float(there.model.initial[100:].sum())
    assert mistake_rate(there, clone, there.right, 50) == near(epsilon, terms=50 * SIGHTS)
    exact = np.cumsum(1 - (1 - epsilon) ** np.arange(50))
    assert_near(-expected_returns(there.model, clone, 50), exact, terms=50 * SIGHTS)
    assert (exact <= epsilon * np.arange(1, 51) ** 2).all()


def test_who_knows_the_way_back_pays_three_steps_for_each_mistake() -> None:
    """In the long run: of 1 + 3 ε steps, 3 ε are in the field."""
    there = road(0, ends=0.0)
    policy = there.right.copy()
    policy[100:SIGHTS] = (policy[100:SIGHTS] + 1) % BACK
    epsilon = float(there.model.initial[100:].sum())
    costs = -expected_returns(there.model, policy, 400)
    expected = DEPTH * epsilon / (1 + DEPTH * epsilon)
    assert costs[-1] - costs[-2] == near(expected, terms=400 * SIGHTS, size=float(costs[-1]))
    for steps in (1, 2, 10, 400):
        most = DEPTH * mistake_rate(there, policy, policy, steps) * steps
        assert costs[steps - 1] <= most + rounding_bound("float64", terms=steps * SIGHTS, size=most)


def test_the_exponent_is_the_slope_of_logarithms_and_of_no_mistake_there_is_none() -> None:
    """Costs of 3 T² and of 2 T; beside them a learner that costs nothing."""
    at = np.array([2, 4, 8])
    costs = np.array([3.0 * at**2, 0.0 * at, 2.0 * at])
    found = Costs(at, costs, costs, np.zeros(3), np.zeros((3, 3))).exponents(costs)
    assert found[[0, 2]] == near([2.0, 1.0], terms=9, size=10.0)
    assert np.isnan(found[1])
    assert np.isnan(Costs(at, costs, costs, np.zeros(3), np.zeros((3, 3))).exponents(costs[1:2])[0])


def costs_within_the_bounds(seed: int) -> Costs:
    """One clone and one DAgger, whose costs stay below the two bounds."""
    costs = run(1, first=seed)
    horizons, epsilon = costs.horizons, float(costs.clone_mistakes[0])
    exact = [float((1 - (1 - epsilon) ** np.arange(steps)).sum()) for steps in horizons]
    assert_near(costs.clone[0], exact, terms=max(horizons) * SIGHTS)
    assert 0.001 < epsilon < 0.02 and (costs.clone[0] <= epsilon * horizons**2).all()
    assert (costs.dagger[0] <= DEPTH * costs.dagger_mistakes[0] * horizons).all()
    assert costs.dagger[0, -1] < costs.clone[0, -1] / 3
    return costs


@pytest.mark.slow
def test_a_clones_cost_grows_with_the_square_of_the_horizon_and_daggers_with_the_horizon() -> None:
    costs = costs_within_the_bounds(0)
    assert 1.8 < costs.exponents(costs.clone)[0] < 2.1
    assert 0.95 < costs.exponents(costs.dagger)[0] < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_it_does_so_from_every_seed(seed: int) -> None:
    costs = costs_within_the_bounds(seed)
    assert 1.8 < costs.exponents(costs.clone)[0] < 2.1
    assert 0.95 < costs.exponents(costs.dagger)[0] < 1.2


@pytest.mark.thorough
def test_the_picture_shows_both_and_their_bounds() -> None:
    costs = run(1, labels=400)
    labels = [line.get_label() for line in draw(costs).axes[0].get_lines()]
    assert labels == ["behaviour cloning", "bound ε T²", "DAgger", "bound u ε T, u = 3"]
    assert len(measurements(costs)) == 6
