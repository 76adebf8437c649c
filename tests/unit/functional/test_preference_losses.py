"""Preference losses against hand-computed numbers."""

import math

import pytest
import torch
from closeness import assert_near, near

from rlbook.functional.post_training.preference_losses import (
    dpo_loss,
    hinge_preference_loss,
    implicit_reward,
    ipo_loss,
    mean_log_prob,
    preference_accuracy,
    sequence_log_prob,
)

LOSSES = (dpo_loss, ipo_loss, hinge_preference_loss)


@pytest.fixture
def pairs(fixtures):
    names = ("policy_chosen", "policy_rejected", "ref_chosen", "ref_rejected")
    return tuple(
        torch.tensor(fixtures["losses"]["dpo"][name], dtype=torch.float64) for name in names
    )


def test_dpo_is_the_hand_computed_one(pairs, fixtures):
    # Δ = 1.5 and -.5, β = .1
    expected = (math.log(1 + math.exp(-0.15)) + math.log(1 + math.exp(0.05))) / 2
    assert dpo_loss(*pairs, beta=0.1).item() == near(expected, terms=4, size=2.0)
    assert dpo_loss(*pairs, beta=0.1).item() == near(
        fixtures["losses"]["dpo"]["sigmoid_loss"], decimals=10
    )


def test_label_smoothing_mixes_in_the_swapped_pair(pairs, fixtures):
    chosen, rejected, reference_chosen, reference_rejected = pairs
    swapped = dpo_loss(rejected, chosen, reference_rejected, reference_chosen, beta=0.1)
    loss = dpo_loss(*pairs, beta=0.1, label_smoothing=0.1)
    assert_near(loss, 0.9 * dpo_loss(*pairs, beta=0.1) + 0.1 * swapped, terms=4, size=2.0)
    assert loss.item() == near(fixtures["losses"]["dpo"]["label_smoothing0.1_cdpo"], decimals=10)


def test_ipo_and_hinge_are_the_hand_computed_ones(pairs):
    # 21.25
    assert ipo_loss(*pairs, beta=0.1).item() == near(
        ((1.5 - 5) ** 2 + (-0.5 - 5) ** 2) / 2, terms=6, size=12 * 5.5
    )
    # .95
    assert hinge_preference_loss(*pairs, beta=0.1).item() == near(
        ((1 - 0.15) + (1 + 0.05)) / 2, terms=6, size=2.0
    )


def test_dpo_starts_at_ln_2_whatever_beta(pairs):
    chosen, rejected, *_ = pairs
    for beta in (0.01, 0.1, 5.0):
        assert dpo_loss(chosen, rejected, chosen, rejected, beta=beta).item() == near(
            math.log(2), terms=2
        )


def test_dpo_raises_the_chosen_and_lowers_the_rejected(pairs):
    chosen, rejected = (tensor.clone().requires_grad_() for tensor in pairs[:2])
    up, down = torch.autograd.grad(
        dpo_loss(chosen, rejected, *pairs[2:], beta=0.1), (chosen, rejected)
    )
    assert (up < 0).all() and (down > 0).all()
    # dL/dchosen = -β σ(-βΔ) / B for Δ = 1.5
    assert up[0].item() == near(-0.1 / (1 + math.exp(0.15)) / 2, terms=4)


def test_dpo_is_finite_far_from_the_reference():
    far = torch.tensor([1e4], dtype=torch.float32)
    assert dpo_loss(-far, far, 0 * far, 0 * far, beta=1.0).item() == near(
        2e4, dtype="float32", terms=2
    )
    assert dpo_loss(far, -far, 0 * far, 0 * far, beta=1.0).item() == 0.0


def test_implicit_rewards_and_accuracy(pairs, fixtures):
    chosen, rejected, reference_chosen, reference_rejected = pairs
    reward = implicit_reward(chosen, reference_chosen, 0.1)
    assert_near(reward, [0.1 * 0.5, 0.0])
    other = implicit_reward(rejected, reference_rejected, 0.1)
    assert preference_accuracy(reward, other).item() == fixtures["losses"]["dpo"]["accuracy"] == 0.5
    assert preference_accuracy(reward, reward).item() == 0.0  # a tie is no preference


def test_an_episodes_log_probability_sums_its_unmasked_actions():
    mask = torch.tensor([[True, True, False], [True, False, False]])
    log_prob = torch.tensor(
        [[-1.0, -2.0, float("nan")], [-0.5, float("nan"), 0.0]], requires_grad=True
    )
    result = sequence_log_prob(log_prob, mask)
    assert result.tolist() == [-3.0, -0.5]
    assert torch.autograd.grad(result.sum(), log_prob)[0].tolist() == mask.float().tolist()


@pytest.mark.parametrize("loss", LOSSES)
def test_shapes_are_never_broadcast(loss, pairs):
    with pytest.raises(ValueError, match="rejected must have the shape of chosen"):
        loss(pairs[0], pairs[1][:, None], *pairs[2:])
    with pytest.raises(ValueError, match=r"chosen must have shape \[B\]"):
        loss(*(tensor[:, None] for tensor in pairs))


def test_the_mean_log_probability_of_a_text_is_over_its_own_tokens():
    log_prob = torch.tensor([[-1.0, -2.0, float("nan")], [-3.0, float("nan"), float("nan")]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert_near(mean_log_prob(log_prob, mask), [(-1.0 - 2.0) / 2, -3.0 / 1], terms=2)
