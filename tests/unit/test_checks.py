"""Refusals of hyper-parameters: one sentence that names the field, what it must be, and what came."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rlbook import checks
from rlbook.functional.schedules import Constant, Linear, Schedule


@dataclass(frozen=True)
class Settings:
    gamma: Any = 0.99
    batch_size: Any = 64
    kl_in: Any = "reward"
    hidden_sizes: Any = (64, 64)
    target_kl: Any = None
    epsilon: float | str | Schedule = Linear(1.0, 0.05)

    def __post_init__(self):
        checks.check_fields(
            self,
            gamma=checks.unit_interval,
            batch_size=checks.positive_int,
            kl_in=checks.one_of("reward", "loss"),
            hidden_sizes=checks.positive_ints,
            target_kl=checks.optional(checks.positive),
        )
        checks.check_schedules(self, epsilon=checks.unit_interval)


def refusal(**fields):
    with pytest.raises(ValueError) as error:
        Settings(**fields)
    return str(error.value)


def test_a_refusal_names_the_field_the_range_and_the_value():
    assert refusal(gamma=1.5) == "gamma must be a number in [0, 1], got 1.5"
    assert refusal(gamma=float("nan")) == "gamma must be a number in [0, 1], got nan"
    assert refusal(batch_size=0) == "batch_size must be an integer of at least 1, got 0"
    assert refusal(hidden_sizes=(64, 0)) == "hidden_sizes must be a tuple of integers of at least 1, got (64, 0)"
    assert refusal(target_kl=-1) == "target_kl must be a number above 0, or none, got -1"


def test_an_unknown_choice_suggests_the_nearest():
    assert refusal(kl_in="rewards") == "kl_in must be one of 'reward', 'loss', got 'rewards' (did you mean 'reward'?)"
    assert refusal(kl_in="xyz") == "kl_in must be one of 'reward', 'loss', got 'xyz'"


@pytest.mark.parametrize("value", [True, "0.5", None, float("inf"), -float("inf"), [0.5], 1j])
def test_what_is_not_a_finite_number_is_refused(value):
    assert refusal(gamma=value).startswith("gamma must be")


@pytest.mark.parametrize("value", [True, 64.0, "64", None, -1])
def test_what_is_not_a_positive_integer_is_refused(value):
    assert refusal(batch_size=value).startswith("batch_size must be")


def test_good_values_pass_numpy_scalars_included():
    assert Settings(gamma=0, batch_size=np.int64(3), hidden_sizes=[32], target_kl=0.1).batch_size == 3
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
    assert refusal(epsilon="linear(1.5, 0.1)") == "epsilon must be a number in [0, 1] at all times, got linear(1.5, 0.1)"
    assert refusal(epsilon=2) == "epsilon must be a number in [0, 1] at all times, got 2"
    assert refusal(epsilon="quick").startswith("epsilon: a schedule must be a number, linear(")


def test_the_nearest_name_ignores_case_and_may_not_exist():
    assert checks.nearest("PPPO", ["ppo", "dqn"]) == "ppo"
    assert checks.nearest("maze-v0", ["rlbook/Maze-v0", "Maze-v0"]) == "Maze-v0"
    assert checks.nearest("zzz", ["ppo", "dqn"]) is None
