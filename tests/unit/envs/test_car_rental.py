"""Jack's car rental: its tables against sums and simulations written out, and the answers of figure
4.2."""

from __future__ import annotations

import inspect
import math
import time
from functools import cache
from typing import Any

import numpy as np
import pytest
from closeness import assert_near, near

from rlbook.envs.car_rental import (
    REQUESTS,
    RETURNS,
    CarRental,
    CarRentalVector,
    car_rental_model,
    lot,
)
from rlbook.envs.tabular.mdp import TabularMDP

CORNERS = [0, 20, 10 * 21 + 10, 20 * 21, 20 * 21 + 20]


@cache
def solved(modified: bool) -> tuple[np.ndarray, np.ndarray]:
    """V* for γ = 0.9 and a best policy, by policy iteration with dense linear solves."""
    model = CarRental(modified).model()
    chance, states = model.transitions.toarray().reshape(441, 11, 441), np.arange(441)
    policy = np.full(441, 5)
    while True:
        values = np.linalg.solve(
            np.eye(441) - 0.9 * chance[states, policy], model.rewards[states, policy]
        )
        action_values = model.rewards + 0.9 * chance @ values
        better = action_values.max(axis=1) > action_values[states, policy] + 1e-9
        if not better.any():
            return values, policy
        policy = np.where(better, action_values.argmax(axis=1), policy)


@pytest.mark.thorough
def test_the_docstring_states_the_known_answer() -> None:
    doc = inspect.getdoc(CarRental) or ""
    for name, modified in (("example 4.2", False), ("`modified`", True)):
        assert (
            f"| {name} | "
            + " | ".join(f"{value:.3f}" for value in solved(modified)[0][CORNERS])
            + " |"
            in doc
        )
    moved = CarRental().moved[np.arange(441), solved(False)[1]]
    assert moved[CORNERS].tolist() == [0, -4, 0, 5, 0]
    headings = [line.removeprefix("## ") for line in doc.splitlines() if line.startswith("## ")]
    assert headings[:6] == [
        "Description",
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
    ]
    assert headings[6:] == ["Arguments", "Known answer", "Version History"]


def test_the_best_policy_has_the_shape_of_figure_4_2() -> None:
    """Along its upper edge (20 cars on the first lot) and along its right one (20 on the second),
    from the axis outwards."""
    moved = CarRental().moved[np.arange(441), solved(False)[1]].reshape(21, 21)
    assert moved[20].tolist() == [5, 5, 5, 5, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2, 2, 1, 1, 1, 0, 0, 0]
    assert moved[:, 20].tolist() == [-4, -3, -2, -2, -1, *[0] * 16]
    assert (np.diff(moved, axis=0) >= 0).all() and (np.diff(moved, axis=1) <= 0).all()
    assert (moved.min(), moved.max()) == (-4, 5)


def poisson(average: float, count: int) -> float:
    return math.exp(-average) * average**count / math.factorial(count)


@pytest.mark.parametrize(("requests", "returns"), list(zip(REQUESTS, RETURNS, strict=True)))
def test_a_lots_day_is_the_sum_over_customers_and_returns(requests: float, returns: float) -> None:
    """The same by a double sum over 60 × 60 counts; what lies beyond is below 1e-30."""
    day = lot(requests, returns)
    chance, rented = np.zeros((21, 21)), np.zeros((21, 21))
    for morning in range(21):
        for asked in range(60):
            for returned in range(60):
                rentals = min(asked, morning)
                probability = poisson(requests, asked) * poisson(returns, returned)
                chance[morning, min(morning - rentals + returned, 20)] += probability
                rented[morning, min(morning - rentals + returned, 20)] += probability * rentals
    assert_near(day.chance, chance, terms=60 * 60, size=1.0)
    assert_near(day.rentals * day.chance, rented, terms=60 * 60, size=20.0)
    assert_near(day.chance.sum(axis=1), np.ones(21), terms=21)


def simulated_returns(
    start: tuple[int, int], modified: bool, count: int, rng: np.random.Generator
) -> np.ndarray:
    """[count]: discounted returns of the best policy over 150 days of the story itself; 0.9^150 is
    below 1e-6."""
    moves = CarRental(modified).moved[np.arange(441), solved(modified)[1]]
    first, second = np.full(count, start[0]), np.full(count, start[1])
    returns = np.zeros(count)
    for day in range(150):
        moved = moves[21 * first + second]
        first, second = np.minimum(first - moved, 20), np.minimum(second + moved, 20)
        price = 2.0 * abs(moved)
        if modified:
            price = price - 2.0 * (moved > 0) + 4.0 * (first > 10) + 4.0 * (second > 10)
        rentals = (
            np.minimum(rng.poisson(3, count), first),
            np.minimum(rng.poisson(4, count), second),
        )
        returns += 0.9**day * (10.0 * sum(rentals) - price)
        first = np.minimum(first - rentals[0] + rng.poisson(3, count), 20)
        second = np.minimum(second - rentals[1] + rng.poisson(2, count), 20)
    return returns


@pytest.mark.slow
@pytest.mark.parametrize("modified", [False, True])
@pytest.mark.parametrize("start", [(0, 0), (20, 20), (3, 17)])
def test_jacks_story_earns_what_the_model_says(start: tuple[int, int], modified: bool) -> None:
    returns = simulated_returns(start, modified, 20_000, np.random.default_rng(0))
    four_errors = 4 * returns.std() / 20_000**0.5
    assert returns.mean() == pytest.approx(
        solved(modified)[0][21 * start[0] + start[1]], rel=0, abs=four_errors
    )


def test_what_is_sampled_has_the_expected_reward() -> None:
    model = car_rental_model(False)
    outcomes = model.outcomes
    probability = np.diff(np.concatenate([[0.0], outcomes.cumulative]))
    probability[outcomes.first[:-1]] = outcomes.cumulative[outcomes.first[:-1]]
    rewards = np.add.reduceat(probability * outcomes.reward, outcomes.first[:-1]).reshape(441, 11)
    # a probability is the difference of two numbers of size 1
    terms, size = np.diff(outcomes.first).max(), np.abs(outcomes.reward).max()
    assert_near(rewards, model.rewards, terms=float(terms), size=float(size))
    assert not outcomes.ends.any()


@pytest.mark.parametrize(
    ("first", "second", "action", "moved", "price"),
    [
        (20, 0, 10, 5, (10, 8 + 4)),  # 15 and 5 in the morning: four paid moves, one lot to park on
        (0, 20, 0, -5, (10, 10 + 4)),  # 5 and 15: the free car goes the other way only
        (3, 9, 10, 3, (6, 4 + 4)),  # 0 and 12: no more than there are
        (10, 2, 1, -2, (4, 4 + 4)),  # 12 and 0
        (10, 10, 5, 0, (0, 0)),  # ten cars park for nothing
        (11, 11, 5, 0, (0, 8)),
        (
            15,
            18,
            10,
            5,
            (10, 8 + 4),
        ),  # 10 and 20: three cars find no room, and are driven all the same
    ],
)
def test_a_night_moves_what_there_is_and_costs_what_it_should(
    first: int, second: int, action: int, moved: int, price: Any
) -> None:
    state = 21 * first + second
    morning = 21 * (first - moved) + min(second + moved, 20)
    for modified, expected in zip((False, True), price, strict=True):
        env = CarRental(modified)
        model = env.model()
        # the day that follows, with nothing moved and nothing parked
        stay = CarRental().model().rewards[morning, 5]
        assert env.moved[state, action] == moved
        assert model.rewards[state, action] == near(stay - expected, terms=4, size=100.0)
        rows = model.transitions[[11 * state + action, 11 * morning + 5]].toarray()
        np.testing.assert_array_equal(rows[0], rows[1])


def test_the_model_is_built_in_less_than_a_second() -> None:
    times = []
    for _ in range(3):
        car_rental_model.cache_clear()
        start = time.process_time()
        assert isinstance(car_rental_model(False), TabularMDP)
        times.append(time.process_time() - start)
    assert min(times) < 1.0
    assert CarRental().model() is CarRental().model(), "environments share it"


def test_the_rental_goes_on_until_the_time_limit() -> None:
    envs = CarRentalVector(50, max_episode_steps=100)
    assert (envs.reset(seed=0)[0] == 21 * 10 + 10).all()
    rng = np.random.default_rng(0)
    flags = [envs.step(rng.integers(11, size=50))[2:4] for _ in range(100)]
    assert not any(terminated.any() for terminated, _ in flags)
    assert [truncated.all() for _, truncated in flags] == [False] * 99 + [True]


def test_only_true_and_false_are_prices() -> None:
    with pytest.raises(ValueError, match=r"^modified must be true or false, got 1\.$"):
        CarRental(modified=1)  # type: ignore[arg-type]


def test_the_drawing_shows_every_car() -> None:
    env = CarRental()
    assert (
        env.draw_text(21 * 3 + 17)
        == "first  lot  3  ###.................\nsecond lot 17  #################..."
    )
    changed = (env.draw_pixels(0) != env.draw_pixels(21 * 3 + 17)).any(axis=2)
    car = (env.draw_pixels(0) != env.draw_pixels(1)).any(axis=2).sum()
    assert (changed[:24].sum(), changed[24:].sum()) == (3 * car, 17 * car)
