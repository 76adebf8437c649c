"""Process rewards by hand."""

from __future__ import annotations

from math import log

import pytest
import torch
from closeness import near

from rlbook.functional.post_training.process_rewards import (
    AGGREGATES,
    aggregate_steps,
    step_label_loss,
)

SCORE = torch.tensor([[0.5, 0.25, 0.75], [0.5, 0.125, float("nan")], [0.9, 0.9, 0.9]])
MASK = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("min", [0.25, 0.125, 0.0]),
        ("product", [0.5 * 0.25 * 0.75, 0.5 * 0.125, 0.0]),
        ("last", [0.75, 0.125, 0.0]),
        ("mean", [(0.5 + 0.25 + 0.75) / 3, (0.5 + 0.125) / 2, 0.0]),
        ("sum", [0.5 + 0.25 + 0.75, 0.5 + 0.125, 0.0]),
    ],
)
def test_a_solution_is_judged_by_its_steps(how: str, expected: list[float]) -> None:
    assert how in AGGREGATES
    found = aggregate_steps(SCORE, MASK, how).tolist()
    assert found == near(expected, dtype="float32", terms=3)


def test_another_way_is_refused() -> None:
    with pytest.raises(ValueError, match=r"how must be one of min, product, .*, got 'max'"):
        aggregate_steps(SCORE, MASK, "max")
    with pytest.raises(ValueError, match="mask must have the shape of score"):
        aggregate_steps(SCORE, MASK[:, :1], "min")


def test_the_loss_is_the_cross_entropy_of_the_steps_that_there_are() -> None:
    odds = torch.tensor([[3.0, 1.0], [1 / 3, 7.0]], dtype=torch.float64)  # p = 3/4, 1/2; 1/4, -
    logit = odds.log().requires_grad_()
    label = torch.tensor([[1.0, 0.5], [0.0, float("nan")]], dtype=torch.float64)
    mask = torch.tensor([[True, True], [True, False]])
    loss = step_label_loss(logit, label, mask=mask)
    expected = -(log(3 / 4) + log(1 / 2) + log(3 / 4)) / 3
    assert loss.item() == near(expected, dtype="float64", terms=6)
    loss.backward()
    assert logit.grad is not None
    # (p - y) / 3, and nothing where there is no step
    assert logit.grad.flatten().tolist() == near(
        [(3 / 4 - 1) / 3, 0.0, (1 / 4) / 3, 0.0], dtype="float64", terms=6, size=1.0
    )
    none = step_label_loss(logit, label, mask=torch.zeros_like(mask))
    assert none.item() == 0.0
