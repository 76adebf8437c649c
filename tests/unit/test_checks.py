"""Refusals of hyper-parameters: one sentence that names the field, what it must be, and what
came."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pytest

from rlbook import checks
from rlbook.functional.schedules import Constant, Inverse, Linear, Schedule
from rlbook.hyperparameters import Hyperparameters, counts_visits, field_names, field_values


@dataclass(frozen=True)
class Settings(Hyperparameters):
    gamma: Annotated[float, checks.unit_interval] = 0.99
    batch_size: Annotated[int, checks.positive_int] = 64
    kl_in: Literal["reward", "loss"] = "reward"
    hidden_sizes: Annotated[tuple[int, ...], checks.positive_ints] = (64, 64)
    target_kl: Annotated[float, checks.positive] | None = None
    epsilon: Annotated[Schedule, checks.unit_interval] = Linear(1.0, 0.05)
    alpha: Annotated[Schedule, checks.positive_fraction, counts_visits] = Constant(0.1)
    learning_rate: Annotated[float | Schedule, checks.positive] = 3e-4
    double: bool = True


@dataclass(frozen=True)
class OwnSettings(Settings):
    clip: Annotated[float, checks.positive] = 0.2
    gamma: float = 0.9


def refusal(**fields):
    with pytest.raises(ValueError) as error:
        Settings(**fields)
    return str(error.value)


def test_a_refusal_names_the_field_the_range_and_the_value():
    assert refusal(gamma=1.5) == "gamma must be a number in [0, 1], got 1.5"
    assert refusal(gamma=float("nan")) == "gamma must be a number in [0, 1], got nan"
    assert refusal(batch_size=0) == "batch_size must be an integer of at least 1, got 0"
    assert (
        refusal(hidden_sizes=(64, 0))
        == "hidden_sizes must be a tuple of integers of at least 1, got (64, 0)"
    )
    assert refusal(target_kl=-1) == "target_kl must be a number above 0, or none, got -1"


def test_an_unknown_choice_suggests_the_nearest():
    assert (
        refusal(kl_in="rewards")
        == "kl_in must be one of 'reward', 'loss', got 'rewards' (did you mean 'reward'?)"
    )
    assert refusal(kl_in="xyz") == "kl_in must be one of 'reward', 'loss', got 'xyz'"


@pytest.mark.parametrize("value", [True, "0.5", None, float("inf"), -float("inf"), [0.5], 1j])
def test_what_is_not_a_finite_number_is_refused(value):
    assert refusal(gamma=value).startswith("gamma must be")


@pytest.mark.parametrize("value", [True, 64.0, "64", None, -1])
def test_what_is_not_a_positive_integer_is_refused(value):
    assert refusal(batch_size=value).startswith("batch_size must be")


def test_good_values_pass_numpy_scalars_included():
    assert (
        Settings(gamma=0, batch_size=np.int64(3), hidden_sizes=[32], target_kl=0.1).batch_size == 3
    )
    assert Settings(gamma=np.float32(1.0), hidden_sizes=()).gamma == 1.0


@pytest.mark.parametrize(
    "kind, good, bad",
    [
        (checks.positive_fraction, 1.0, 0.0),
        (checks.positive, 1e-9, 0),
        (checks.non_negative, 0, -1e-9),
        (checks.non_negative_int, 0, -1),
        (checks.at_least(2), 2, 1),
        (checks.number_in(-1, 1), -1, 1.01),
        (checks.finite, -5, float("nan")),
        (checks.boolean, False, 0),
    ],
)
def test_each_kind_has_the_border_it_states(kind, good, bad):
    checks.check("field", good, kind)
    with pytest.raises(ValueError, match="field must be"):
        checks.check("field", bad, kind)


def test_schedules_are_parsed_and_checked_at_both_ends():
    assert Settings(epsilon=0.1).epsilon == Constant(0.1)
    assert Settings(epsilon="linear(0.5, 0.1, 0.2)").epsilon == Linear(0.5, 0.1, 0.2)
    assert (
        refusal(epsilon="linear(1.5, 0.1)")
        == "epsilon must be a number in [0, 1] at all times, got linear(1.5, 0.1)"
    )
    assert refusal(epsilon=2) == "epsilon must be a number in [0, 1] at all times, got 2"
    assert refusal(epsilon="quick").startswith("epsilon: a schedule must be a number, linear(")


def test_a_rate_stays_a_number_or_becomes_a_schedule_that_may_end_at_0():
    assert Settings(learning_rate="1e-3").learning_rate == 1e-3
    assert Settings(learning_rate="linear(1e-3, 0)").learning_rate == Linear(1e-3, 0.0)
    assert refusal(learning_rate=0.0) == "learning_rate must be a number above 0, got 0.0"
    assert (
        refusal(learning_rate="linear(-1, 0)")
        == "learning_rate must be a number of at least 0 at all times, got linear(-1, 0)"
    )


def test_only_an_algorithm_that_counts_visits_takes_an_inverse_schedule():
    assert Settings(alpha="inverse(1.0)").alpha == Inverse(1.0)
    assert refusal(epsilon="inverse(1.0)").startswith(
        "epsilon cannot be inverse(1.0, 1.0): an inverse schedule depends on visit counts"
    )


def test_bool_and_literal_say_by_themselves_what_they_allow():
    assert refusal(double=1) == "double must be true or false, got 1"
    assert refusal(kl_in=None) == "kl_in must be one of 'reward', 'loss', got None"


def test_a_field_that_is_restated_for_another_default_keeps_its_range():
    assert OwnSettings().gamma == 0.9
    with pytest.raises(ValueError, match=r"gamma must be a number in \[0, 1\], got 2"):
        OwnSettings(gamma=2)


def test_the_fields_of_a_class_come_before_those_it_inherits():
    assert field_names(OwnSettings)[:4] == ["clip", "gamma", "batch_size", "kl_in"]
    assert list(field_values(OwnSettings())) == field_names(OwnSettings)


def test_the_nearest_name_ignores_case_and_may_not_exist():
    assert checks.nearest_name("PPPO", ["ppo", "dqn"]) == "ppo"
    assert checks.nearest_name("maze-v0", ["rlbook/Maze-v0", "Maze-v0"]) == "Maze-v0"
    assert checks.nearest_name("zzz", ["ppo", "dqn"]) is None
    assert checks.nearest_name("dnq", ["dyna_q", "dqn"]) == "dqn"  # two letters in the other order
