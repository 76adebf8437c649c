"""Schedules: values, text and refusals."""

import math

import pytest
from closeness import near, rounding_bound
from hypothesis import given
from hypothesis import strategies as st

from rlbook.functional.schedules import (
    Constant,
    Cosine,
    Exponential,
    Inverse,
    Linear,
    parse_schedule,
    scheduled_value,
)

number = st.floats(-1e6, 1e6)
positive = st.floats(1e-6, 1e6)
fraction = st.floats(1e-3, 1)
schedules = st.one_of(
    st.builds(Constant, number),
    st.builds(Linear, number, number, fraction),
    st.builds(Exponential, positive, positive, fraction),
)


def test_the_linear_schedule_hits_the_scripted_values(fixtures):
    case = fixtures["losses"]["linear_eps"]
    epsilon = Linear(case["start"], case["end"], case["fraction"])
    for step in (0, 50, 100, 999):
        # 1, (1 + .05) / 2, .05, .05
        expected = case[f"eps_at_step{step}" if step == 0 else f"eps_at_{step}"]
        assert epsilon(step / case["total"]) == near(expected, terms=2, size=1.0)


def test_every_schedule_starts_at_its_start_and_stays_at_its_end():
    for kind in (Linear, Exponential):
        schedule = kind(0.7, 0.01, 0.3)
        assert schedule(0.0) == 0.7
        assert schedule(0.3) == schedule(0.5) == schedule(1.0) == near(0.01)


def test_the_exponential_schedule_is_halfway_at_the_geometric_mean():
    assert Exponential(1.0, 0.01)(0.5) == near(math.sqrt(1.0 * 0.01), terms=2)


@given(schedule=schedules, progress=st.floats(0, 1))
def test_text_and_schedule_are_the_same_thing(schedule, progress):
    again = parse_schedule(str(schedule))
    assert again == schedule and again(progress) == schedule(progress)
    low, high = schedule.range
    rounding = rounding_bound("float64", terms=2, size=max(abs(low), abs(high)))
    assert low - rounding <= schedule(progress) <= high + rounding


def test_the_cosine_rises_in_its_warm_up_and_falls_along_half_a_period():
    """Warm-up over the first tenth; then end + (start - end) (1 + cos πu) / 2 with u from 0 at .1
    to 1 at .9."""
    schedule = parse_schedule("cosine(1.0, 0.2, 0.9, warmup=0.1)")
    assert schedule == Cosine(1.0, 0.2, 0.9, 0.1) == parse_schedule(str(schedule))
    halfway = 0.2 + 0.8 * (1 + math.cos(math.pi / 2)) / 2
    quarter = 0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2
    for progress, value in (
        (0.0, 0.0),
        (0.05, 0.5),
        (0.1, 1.0),
        (0.3, quarter),
        (0.5, halfway),
        (0.9, 0.2),
        (1.0, 0.2),
    ):
        assert schedule(progress) == near(value, terms=4, size=1.0)
    assert parse_schedule("cosine(3e-4)") == Cosine(3e-4) and Cosine(3e-4)(1.0) == 0.0


def test_a_number_alone_is_a_constant():
    assert (
        parse_schedule(0.1)
        == parse_schedule("0.1")
        == parse_schedule("constant(0.1)")
        == Constant(0.1)
    )
    assert (
        parse_schedule("linear(1.0, 0.05, 0.1)")
        == parse_schedule(" Linear( 1, .05,.1 ) ")
        == Linear(1.0, 0.05, 0.1)
    )
    assert parse_schedule(Linear(1, 0)) == Linear(1.0, 0.0, 1.0)
    assert parse_schedule(Constant(3))(0.5) == 3.0


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "fast",
        "nan",
        "inf",
        "linear",
        "linear()",
        "linear(1)",
        "linear(1,2,3,4)",
        "linear(1, x)",
        "constant(1, 2)",
        "cosine()",
        "cosine(1, 0, 1, 1)",
        "cosine(1, 0, 0.5, 0.1, warmup=0.1)",
        "cosine(warmup=0.1)",
        "linear(1, 0, 0)",
        "linear(1, 0, 1.5)",
        "linear(1, nan)",
        "exponential(0, 1)",
        "exponential(1, -1)",
        float("nan"),
        True,
        None,
        [0.1],
    ],
)
def test_anything_else_is_refused_in_one_sentence(bad):
    with pytest.raises(ValueError, match="schedule must be") as refusal:
        parse_schedule(bad)
    assert "\n" not in str(refusal.value) and "got" in str(refusal.value)


@pytest.mark.parametrize(
    ("power", "count", "value"),
    [(1.0, 1, 2.0), (1.0, 4, 0.5), (0.5, 1, 2.0), (0.5, 4, 1.0), (0.75, 16, 0.25)],
)
def test_an_inverse_schedule_falls_by_its_power(power: float, count: int, value: float) -> None:
    """2 / N^p: of N = 4 the root is 2; of N = 16 the fourth root is 2, and its third power 8."""
    found = parse_schedule(f"inverse(2.0, {power})")
    assert isinstance(found, Inverse)
    assert found(0.3, count) == scheduled_value(found.numbers, 0.9, count) == near(value)
