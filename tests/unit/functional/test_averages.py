"""Averages: mask → weights, and what they make of the peers' cases."""

import pytest
import torch
from closeness import assert_near, near

from rlbook.functional.averages import (
    constant,
    per_sequence,
    per_token,
    weighted_sum,
)

MASK = torch.tensor(
    [[True, True, False, False], [True, True, True, True], [True, False, False, False]]
)
VALUES = torch.tensor([[1.0, 2.0, 0.0, 0.0], [4.0, 4.0, 4.0, 8.0], [3.0, 0.0, 0.0, 0.0]])


def test_per_token_counts_every_element_alike():
    assert weighted_sum(VALUES, MASK, per_token).item() == near(
        (1 + 2 + 4 + 4 + 4 + 8 + 3) / 7, dtype="float32", terms=7
    )


def test_per_sequence_is_the_mean_of_the_rows_means():
    expected = ((1 + 2) / 2 + (4 + 4 + 4 + 8) / 4 + 3 / 1) / 3
    assert weighted_sum(VALUES, MASK, per_sequence).item() == near(
        expected, dtype="float32", terms=7
    )


def test_constant_divides_by_rows_times_divisor():
    assert weighted_sum(VALUES, MASK, constant(4)).item() == near(
        (1 + 2 + 4 + 4 + 4 + 8 + 3) / (3 * 4), dtype="float32", terms=7
    )


def test_a_row_of_padding_does_not_count_as_a_sequence():
    padded = torch.cat([MASK, torch.zeros(2, 4, dtype=torch.bool)])
    weights = per_sequence(padded)
    assert_near(weights[:3], per_sequence(MASK))
    assert not weights[3:].any()


@pytest.mark.parametrize("average", [per_token, per_sequence, constant(5), torch.full((2, 3), 9.0)])
def test_nothing_unmasked_is_zero_and_not_nan(average):
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    if not isinstance(average, torch.Tensor):
        assert average(nothing).tolist() == [[0.0] * 3] * 2
    assert weighted_sum(torch.ones(2, 3), nothing, average).item() == 0.0


@pytest.mark.parametrize("average", [per_token, per_sequence])
def test_a_batch_of_steps_is_averaged_plainly(average):
    mask = torch.tensor([True, False, True, True])
    assert_near(average(mask), [1 / 3, 0, 1 / 3, 1 / 3])
    assert weighted_sum(torch.tensor([1.0, 2.0, 6.0]), None, average).item() == 3.0
    assert weighted_sum(torch.tensor([]), None, average).item() == 0.0


@pytest.mark.parametrize("average", [per_token, per_sequence, constant(7)])
def test_no_mask_is_a_mask_of_ones(average):
    assert_near(
        weighted_sum(VALUES, None, average),
        weighted_sum(VALUES, torch.ones_like(MASK), average),
        terms=12,
    )


def test_given_weights_are_cut_by_the_mask_and_never_broadcast():
    assert weighted_sum(torch.ones(3, 4), MASK, torch.full((3, 4), 0.5)).item() == 0.5 * 7
    with pytest.raises(ValueError, match="weights must have the shape of values"):
        weighted_sum(torch.ones(3, 4), MASK, torch.ones(3, 1))
    with pytest.raises(ValueError, match="divisor must be a number above 0"):
        constant(0)


@pytest.mark.parametrize("average", [per_token, per_sequence, constant(4)])
def test_the_weights_of_float64_values_are_float64(average):
    """1/3 in float32 is 1e-8 off."""
    third = torch.tensor([[True, True, True, False]])
    found = weighted_sum(torch.ones(1, 4, dtype=torch.float64), third, average)
    assert found.dtype == torch.float64
    assert found.item() == near(
        3 / 4 if average not in (per_token, per_sequence) else 1.0, dtype="float64", terms=4
    )
    one = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    share = 1 / 4 if average not in (per_token, per_sequence) else 1 / 3
    assert weighted_sum(one, third, average).item() == near(share, dtype="float64", terms=2)


def test_given_weights_of_float64_stay_as_they_are():
    weights = torch.full((3, 4), 1 / 3, dtype=torch.float64)
    assert weighted_sum(VALUES.double(), MASK, weights).item() == near(
        26 / 3, dtype="float64", terms=7
    )
