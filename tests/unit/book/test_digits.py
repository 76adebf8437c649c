"""Hinton's experiment with scikit-learn's digits."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from rlbook.book.experiments import digits
from rlbook.seeding import rng_for, torch_generator

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")


def test_the_digits_are_split_once_and_the_same_each_time() -> None:
    x, y, test_x, test_y = digits.images(0)
    assert x.shape == (1_000, 64) and test_x.shape == (797, 64) and float(x.max()) == 1.0
    assert torch.equal(digits.images(0)[1], y) and not torch.equal(digits.images(1)[1], y)
    assert sorted(set(test_y.tolist())) == list(range(10))


def test_dropout_keeps_the_mean_and_draws_from_its_own_generator() -> None:
    """Over 400 draws. With positive weights no unit is cut off, and the network is linear."""
    network = digits.Network((50, 50), torch_generator(rng_for(0, "initialisation")))
    state, x = torch.get_rng_state(), torch.rand(1, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for weights in network.parameters():
            weights.abs_()
        hidden = torch.stack([network(x, 0.8) for _ in range(400)])
        standard_error = hidden.std(0) / 400**0.5
        assert ((hidden.mean(0) - network(x)).abs() < 5 * standard_error).all()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
def test_a_student_that_never_saw_a_three_knows_most_of_them_from_its_teacher() -> None:
    found = digits.run(seeds=1)
    assert found.right["teacher"][0] >= 0.95 and found.right["distilled"][0] >= 0.95
    assert (
        found.missing["alone, without threes"][0] == 0.0
        and found.missing["distilled, without threes"][0] >= 0.5
    )
