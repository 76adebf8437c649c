"""Masked logits, maxima and entropies, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from closeness import near

from rlbook.functional.action_masks import masked_argmax, masked_logits, masked_max
from rlbook.functional.divergences import categorical_entropy

LOGITS = torch.tensor([[1.0, 5.0, 1.0], [2.0, 0.0, 9.0]], dtype=torch.float64)
ALLOWED = torch.tensor([[True, False, True], [False, True, False]])


def test_forbidden_actions_have_no_probability_and_the_others_all_of_it() -> None:
    share = masked_logits(LOGITS, ALLOWED).softmax(-1)
    assert share.tolist() == [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]
    assert masked_logits(LOGITS, None) is LOGITS


def test_the_maximum_is_over_allowed_actions() -> None:
    values = torch.tensor([[-1.0, 5.0, -2.0], [2.0, -3.0, 9.0]])
    assert masked_max(values, ALLOWED).tolist() == [-1.0, -3.0]
    assert masked_argmax(values, ALLOWED).tolist() == [0, 1]
    assert masked_max(values, None).tolist() == [5.0, 9.0]


def test_the_entropy_is_that_of_the_allowed_actions_and_its_gradient_is_finite() -> None:
    logits = LOGITS.clone().requires_grad_()
    entropy = categorical_entropy(masked_logits(logits, ALLOWED).log_softmax(-1))
    assert entropy.tolist() == near([math.log(2.0), 0.0], dtype="float64", terms=3)
    entropy.sum().backward()
    assert logits.grad is not None and logits.grad.isfinite().all()
    assert (logits.grad[~ALLOWED] == 0.0).all()


def test_without_a_mask_the_entropy_is_that_of_the_softmax() -> None:
    expected = torch.distributions.Categorical(logits=LOGITS).entropy()
    assert categorical_entropy(LOGITS.log_softmax(-1)).tolist() == near(
        expected.tolist(), dtype="float64", terms=6
    )


def test_masks_of_another_shape_or_type_are_refused() -> None:
    with pytest.raises(ValueError, match="action_mask must have the shape of logits"):
        masked_logits(LOGITS, ALLOWED[0])
    with pytest.raises(ValueError, match="action_mask must be a bool tensor"):
        masked_logits(LOGITS, ALLOWED.long())
