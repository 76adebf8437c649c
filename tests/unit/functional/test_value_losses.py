"""Critic losses and Q-learning targets against hand-computed numbers."""

import pytest
import torch
from closeness import assert_near, near

from rlbook.functional.value_losses import (
    clipped_value_loss,
    double_q_target,
    expectile_loss,
    huber_loss,
    q_target,
    squared_value_loss,
)

NAN = float("nan")


@pytest.fixture
def value_case(fixtures):
    case = fixtures["losses"]["ppo"]["value"]
    return {
        name: torch.tensor(case[name], dtype=torch.float64)
        for name in ("v_new", "v_old", "returns")
    } | {"expected": case}


@pytest.fixture
def dqn(fixtures):
    case = fixtures["losses"]["dqn"]
    tensors = {
        name: torch.tensor(case[name], dtype=torch.float64)
        for name in ("q", "r", "q_target_next", "q_online_next")
    }
    tensors["value"] = tensors["q"].gather(1, torch.tensor(case["a"])[:, None]).squeeze(1)
    return tensors | {
        "terminated": torch.tensor(case["terminated"]).bool(),
        "gamma": case["gamma"],
        "expected": case,
    }


def test_the_squared_loss_is_half_the_mean_squared_error(value_case):
    loss = squared_value_loss(value_case["v_new"], value_case["returns"])
    assert loss.item() == near((0.5**2 + 0.1**2 + 0) / 3 / 2, terms=3, size=1.0)
    assert loss.item() == near(value_case["expected"]["cleanrl_unclipped_0.5"], decimals=10)
    assert 2 * loss.item() == near(value_case["expected"]["mse"], decimals=10)


def test_each_value_meets_its_own_target_and_no_other():
    """The third is off by 1, the others are right. Each against each, as broadcasting compares a
    column with a row, would be far off."""
    value, target = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0])
    losses = (
        squared_value_loss(value, target),
        huber_loss(value, target),
        clipped_value_loss(value, value, target),
    )
    assert [loss.item() for loss in losses] == near(
        3 * [0.5 * (0 + 0 + 1) / 3], dtype="float32", terms=3
    )


def test_the_clipped_loss_takes_the_worse_of_both(value_case):
    loss = clipped_value_loss(
        value_case["v_new"], value_case["v_old"], value_case["returns"], clip=0.2
    )
    # clipped values 1.2, 1.9, 2.8: errors max(.25, .64), max(.01, .01), max(0, .64)
    # of values of size 2
    assert loss.item() == near((0.64 + 0.01 + 0.64) / 3 / 2, terms=3, size=2.0)
    assert loss.item() == near(
        value_case["expected"]["cleanrl_clipped_0.5*max_mean"], terms=3, size=2.0
    )


def test_a_wide_clip_changes_nothing(value_case):
    new, old, target = value_case["v_new"], value_case["v_old"], value_case["returns"]
    assert_near(
        clipped_value_loss(new, old, target, clip=100.0),
        squared_value_loss(new, target),
        terms=3,
        size=2.0,
    )


def test_q_targets_are_the_hand_computed_ones(dqn):
    target = q_target(dqn["r"], dqn["terminated"], dqn["q_target_next"], dqn["gamma"])
    assert_near(target, [1 + 0.99 * 5, -1.0, 2 + 0.99 * 4], terms=2)
    # the online network prefers action 0, (a tie), 1
    double = double_q_target(
        dqn["r"], dqn["terminated"], dqn["q_target_next"], dqn["q_online_next"], dqn["gamma"]
    )
    assert_near(double, [1 + 0.99 * 2, -1.0, 2 + 0.99 * 4], terms=2)
    assert_near(target, dqn["expected"]["target"], terms=2)
    assert_near(double, dqn["expected"]["double_target"], terms=2)


def test_targets_carry_no_gradient_and_ignore_what_lies_behind_the_end(dqn):
    after = dqn["q_target_next"].clone()
    after[1] = NAN
    target = q_target(dqn["r"], dqn["terminated"], after.requires_grad_(), dqn["gamma"])
    assert target.isfinite().all() and not target.requires_grad
    assert not double_q_target(
        dqn["r"], dqn["terminated"], after, after, dqn["gamma"]
    ).requires_grad


def test_the_huber_loss_is_the_hand_computed_one(dqn):
    target = q_target(dqn["r"], dqn["terminated"], dqn["q_target_next"], dqn["gamma"])
    # errors -3.95, 1.5, -2.96, all beyond δ = 1: |e| - ½
    assert huber_loss(dqn["value"], target).item() == near(
        (3.45 + 1.0 + 2.46) / 3, terms=3, size=6.0
    )
    assert huber_loss(dqn["value"], target).item() == near(
        dqn["expected"]["huber_loss"], decimals=10
    )
    assert 2 * squared_value_loss(dqn["value"], target).item() == near(
        dqn["expected"]["mse"], decimals=10
    )
    double = double_q_target(
        dqn["r"], dqn["terminated"], dqn["q_target_next"], dqn["q_online_next"], dqn["gamma"]
    )
    assert huber_loss(dqn["value"], double).item() == near(
        dqn["expected"]["huber_double"], decimals=10
    )


def test_the_huber_loss_is_a_square_inside_and_a_line_outside():
    zero = torch.zeros(1, dtype=torch.float64)
    for delta in (0.5, 1.0, 3.0):
        inside, outside = (
            torch.tensor([0.9 * delta], dtype=torch.float64),
            torch.tensor([-4 * delta], dtype=torch.float64),
        )
        assert huber_loss(inside, zero, delta=delta).item() == near(0.5 * (0.9 * delta) ** 2)
        assert huber_loss(outside, zero, delta=delta).item() == near(
            delta * (4 * delta - 0.5 * delta), terms=2
        )
        both = torch.cat([inside, outside])
        torchs = torch.nn.functional.huber_loss(
            both, torch.zeros_like(both), reduction="sum", delta=delta
        )
        assert_near(huber_loss(both, torch.zeros_like(both), delta=delta) * 2, torchs, terms=2)


def test_the_column_against_row_mistake_is_refused_not_broadcast(dqn):
    target = q_target(dqn["r"], dqn["terminated"], dqn["q_target_next"], dqn["gamma"])
    column = dqn["value"][:, None]
    broadcast = (column - target).square().mean().item()
    assert broadcast == near(dqn["expected"]["BUG_mse_broadcast_(N,1)vs(N)"], decimals=10)
    for loss in (squared_value_loss, huber_loss):
        with pytest.raises(
            ValueError, match=r"target must have the shape of value, \[3, 1\], got \[3\]"
        ):
            loss(column, target)
    with pytest.raises(ValueError, match="next_value must have the shape of reward"):
        q_target(dqn["r"][:, None], dqn["terminated"][:, None], dqn["q_target_next"], dqn["gamma"])


def test_nan_in_the_padding_reaches_neither_loss_nor_gradient():
    mask = torch.tensor([True, False])
    value = torch.tensor([1.0, NAN], requires_grad=True)
    target = torch.tensor([3.0, NAN])
    losses = (
        squared_value_loss(value, target, mask=mask),
        huber_loss(value, target, mask=mask),
        clipped_value_loss(value, target, target, mask=mask),
        expectile_loss(value, target, 0.75, mask=mask),
    )
    for loss, expected in zip(losses, (0.5 * 4, 2 - 0.5, 0.5 * 4, 0.5 * 0.75 * 4), strict=True):
        assert loss.item() == expected
        assert torch.autograd.grad(loss, value)[0].isfinite().all()


def test_importance_weights_of_prioritised_replay_weigh_each_error():
    value, target = torch.tensor([1.0, 5.0]), torch.zeros(2)
    weights = torch.tensor([0.5, 0.25]) / 2
    # every digit a binary one
    assert huber_loss(value, target, average=weights).item() == (0.5 * 0.5 + 0.25 * 4.5) / 2
