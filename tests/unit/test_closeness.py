"""The one helper that all numeric tests compare with: wide enough for any order of a sum, narrow
enough for a bug."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closeness import assert_near, near, rounding_bound, widths


@pytest.mark.parametrize("terms", [1, 10, 1000, 100_000])
def test_every_order_of_a_sum_is_within_the_bound(terms: int) -> None:
    rng = np.random.default_rng(terms)
    numbers = rng.normal(size=terms).astype(np.float32)
    exact = float(numbers.astype(np.float64).sum())
    for _ in range(20):
        one_by_one = float(np.cumsum(rng.permutation(numbers), dtype=np.float32)[-1])
        assert one_by_one == near(
            exact, dtype="float32", terms=terms, size=float(np.abs(numbers).sum())
        )


def test_the_bound_is_eps_times_the_size_times_the_root_of_the_count() -> None:
    assert rounding_bound("float32", terms=100, size=3.0) == 8 * 10 * 2**-23 * 3
    assert rounding_bound(np.float64) == rounding_bound(torch.float64) == 8 * 2**-52
    assert rounding_bound(torch.bfloat16) == 8 * 2**-7


def test_the_coarser_dtype_and_the_larger_side_decide() -> None:
    assert_near(torch.tensor([1.0, 8.0]), np.array([1.0, 8.0 + 7e-6]))
    with pytest.raises(AssertionError):
        assert_near(torch.tensor([1.0, 8.0], dtype=torch.float64), np.array([1.0, 8.0 + 7e-6]))
    with pytest.raises(AssertionError):
        assert_near(torch.tensor([1.0, 8.0]), np.array([1.0, 8.001]))


def test_shapes_have_to_be_the_same() -> None:
    with pytest.raises(AssertionError, match="shapes"):
        assert_near(torch.ones(3, 1), torch.ones(3))
    assert_near([torch.ones(2), torch.zeros(1)], [torch.ones(2), torch.zeros(1)])


def test_numbers_lists_and_mappings_are_compared_and_nan_is_not_near() -> None:
    assert near([0.3, 1.0]) == [0.1 + 0.2, 1.0]
    assert near({"loss": 0.3}) == {"loss": 0.1 + 0.2}
    assert float("nan") != near(0.3) and near(0.3, dtype="float32") != 0.3001


def test_the_terms_of_a_network_are_its_inner_widths() -> None:
    """Matrices [4, 3] and [1, 4], biases [4] and [1]: 3 + 4 + 4 + 1."""
    assert (
        widths(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)))
        == 12
    )


def test_printed_numbers_are_known_to_half_a_unit_of_their_last_decimal() -> None:
    assert (
        near([3.142, -1.0], decimals=3) == [3.14249, -1.0005] and near(3.142, decimals=3) != 3.14251
    )
    assert_near(np.array([3.14249]), [3.142], decimals=3)
    with pytest.raises(AssertionError):
        assert_near(np.array([3.14251]), [3.142], decimals=3)
