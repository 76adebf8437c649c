"""Returns and targets, against arithmetic by hand."""

import pytest
import torch
from closeness import assert_near

from rlbook.functional.returns import discounted_returns, n_step_returns, td_target

GAMMA = 0.9
REWARD = torch.tensor([1.0, 2.0, 3.0])
NEVER = torch.zeros(3, dtype=torch.bool)
AT_LAST = torch.tensor([False, False, True])
NAN = float("nan")


def test_discounted_returns_are_the_hand_computed_ones():
    expected = torch.tensor([1 + 0.9 * (2 + 0.9 * 3), 2 + 0.9 * 3, 3.0])  # 5.23, 4.7, 3
    assert_near(discounted_returns(REWARD, AT_LAST, NEVER, GAMMA), expected, terms=3)


def test_a_return_does_not_look_past_either_kind_of_end():
    middle = torch.tensor([False, True, False])
    expected = torch.tensor([1 + 0.9 * 2, 2.0, 3.0])
    assert_near(discounted_returns(REWARD, middle, NEVER, GAMMA), expected, terms=3)
    assert_near(discounted_returns(REWARD, NEVER, middle, GAMMA), expected, terms=3)


def test_a_time_limit_and_the_end_of_the_data_bootstrap_if_a_value_is_given():
    next_value = torch.tensor([NAN, 10.0, 20.0])
    middle = torch.tensor([False, True, False])
    second = 2 + 0.9 * 10
    expected = torch.tensor([1 + 0.9 * second, second, 3 + 0.9 * 20])
    assert_near(
        discounted_returns(REWARD, NEVER, middle, GAMMA, next_value=next_value), expected, terms=3
    )


def test_both_flags_at_once_count_as_terminated():
    both = torch.ones(3, dtype=torch.bool)
    next_value = torch.full((3,), 100.0)
    assert torch.equal(td_target(REWARD, both, next_value, GAMMA), REWARD)
    assert torch.equal(discounted_returns(REWARD, both, both, GAMMA, next_value=next_value), REWARD)


def test_a_return_passes_over_steps_that_are_not_valid():
    reward = torch.tensor([1.0, NAN, NAN, 2.0, 3.0])
    valid = torch.tensor([True, False, False, True, True])
    ended = torch.tensor([False, False, False, False, True])
    expected = torch.tensor([5.23, 0.0, 0.0, 4.7, 3.0])  # as if the two were absent
    assert_near(
        discounted_returns(reward, ended, torch.zeros_like(ended), GAMMA, valid=valid),
        expected,
        terms=3,
    )


def test_truncation_still_bootstraps_and_termination_does_not():
    target = td_target(
        REWARD, torch.tensor([False, True, False]), torch.tensor([5.0, 5.0, 6.0]), GAMMA
    )
    assert_near(target, torch.tensor([1 + 0.9 * 5, 2.0, 3 + 0.9 * 6]), terms=2)


def test_the_value_behind_a_terminal_step_has_no_influence_even_as_nan():
    assert (
        td_target(REWARD, torch.ones(3, dtype=torch.bool), torch.full((3,), NAN), GAMMA).tolist()
        == REWARD.tolist()
    )


def test_a_target_is_a_constant():
    next_value = torch.ones(3, requires_grad=True)
    assert not td_target(REWARD, NEVER, next_value, GAMMA).requires_grad


@pytest.mark.parametrize("gamma, value", [(0.9, 10.0), (0.99, 100.0)])
def test_a_one_state_world_with_a_time_limit_is_worth_one_over_one_minus_gamma(gamma, value):
    reward, never = torch.ones(1), torch.zeros(1, dtype=torch.bool)
    estimate = torch.zeros(1)
    for _ in range(4000):  # the limit is never a termination, so every step has the same target
        estimate = td_target(reward, never, estimate, gamma)
    # of the last 1 / (1 - γ) steps each rounds in the same direction
    assert_near(estimate, [value], size=value / (1 - gamma))


def test_two_step_returns_are_the_hand_computed_ones():
    value = [10.0, 20.0, 30.0]
    next_value = torch.tensor([*value[1:], NAN])
    expected = torch.tensor([1 + 0.9 * 2 + 0.81 * 30, 2 + 0.9 * 3, 3.0])  # 27.1, 4.7, 3
    assert_near(n_step_returns(REWARD, AT_LAST, NEVER, next_value, GAMMA, 2), expected, terms=3)


def test_an_n_step_return_cut_by_a_time_limit_bootstraps_there():
    middle = torch.tensor([False, True, False])
    next_value = torch.tensor([20.0, 7.0, 40.0])
    expected = torch.tensor([1 + 0.9 * 2 + 0.81 * 7, 2 + 0.9 * 7, 3 + 0.9 * 40])
    assert_near(n_step_returns(REWARD, NEVER, middle, next_value, GAMMA, 3), expected, terms=4)


def test_one_step_is_the_td_target_and_many_steps_the_discounted_return():
    generator = torch.Generator().manual_seed(0)
    reward, next_value = torch.randn(2, 12, 3, generator=generator, dtype=torch.float64)
    terminated, truncated = torch.rand(2, 12, 3, generator=generator) < 0.2
    target = td_target(reward, terminated, next_value, GAMMA)
    assert_near(
        n_step_returns(reward, terminated, truncated, next_value, GAMMA, 1), target, terms=2
    )
    whole = discounted_returns(reward, terminated, truncated, GAMMA, next_value=next_value)
    for n in (12, 50):
        assert_near(
            n_step_returns(reward, terminated, truncated, next_value, GAMMA, n),
            whole,
            terms=13,
            size=13 * 3,
        )


def test_shapes_are_never_broadcast_and_flags_are_bool():
    with pytest.raises(
        ValueError, match=r"next_value must have the shape of reward, \[3\], got \[3, 1\]"
    ):
        td_target(REWARD, NEVER, torch.zeros(3, 1), GAMMA)
    with pytest.raises(ValueError, match="terminated must be a bool tensor"):
        td_target(REWARD, torch.zeros(3), REWARD, GAMMA)
    with pytest.raises(ValueError, match="n must be an integer of at least 1"):
        n_step_returns(REWARD, NEVER, NEVER, REWARD, GAMMA, 0)
