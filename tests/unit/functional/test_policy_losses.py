"""Policy losses against hand-computed numbers, and what padding must never do."""

import math

import pytest
import torch
from closeness import assert_near, near

from rlbook.functional.advantages import normalize
from rlbook.functional.averages import per_sequence
from rlbook.functional.policy_losses import (
    clip_fraction,
    clipped_surrogate_loss,
    negative_log_likelihood_loss,
    policy_gradient_loss,
)

NAN = float("nan")


@pytest.fixture
def case(fixtures):
    ppo = fixtures["losses"]["ppo"]
    tensors = [
        torch.tensor(ppo[name], dtype=torch.float64)
        for name in ("logp_new", "logp_old", "adv_unnormalised")
    ]
    return tensors[0].requires_grad_(), tensors[1], tensors[2]


def test_the_clipped_surrogate_is_the_hand_computed_one(case, fixtures):
    log_prob, old, advantage = case
    loss = clipped_surrogate_loss(log_prob, old, advantage, clip=0.2)
    # ρ = e^.4, e^-.4, 1, e^.5: clipped to 1.2 · 1, clipped to .8 · -1, 1 · .5, unclipped e^.5 · -2
    expected = -(1.2 - 0.8 + 0.5 - 2 * math.exp(0.5)) / 4
    assert loss.item() == near(expected, terms=4, size=2.0)
    assert loss.item() == near(fixtures["losses"]["ppo"]["policy_loss"], decimals=10)
    (gradient,) = torch.autograd.grad(loss, log_prob)
    assert gradient.tolist() == near(fixtures["losses"]["ppo"]["grad_logp"], decimals=10)


@pytest.mark.parametrize("ddof", [1, 0])
def test_the_clipped_surrogate_of_normalised_advantages(case, fixtures, ddof):
    log_prob, old, advantage = case
    loss = clipped_surrogate_loss(log_prob, old, normalize(advantage, ddof=ddof), clip=0.2)
    printed = fixtures["losses"]["ppo"][f"policy_loss_normalised_adv(ddof={ddof})"]
    assert loss.item() == near(printed, decimals=10)


def test_the_clip_fraction_counts_where_the_clip_takes_the_gradient_away(case):
    """ρ = e^.4, e^-.4, 1, e^.5 and A = 1, -1, .5, -2: the last ratio is outside, and the loss
    brings it back."""
    log_prob, old, advantage = case
    assert clip_fraction(log_prob, old, advantage, clip=0.2).item() == 0.5
    # e^.4 = 1.49 is inside now
    assert clip_fraction(log_prob, old, advantage, clip=0.2, clip_high=0.5).item() == 0.25
    (gradient,) = torch.autograd.grad(
        clipped_surrogate_loss(log_prob, old, advantage, clip=0.2), log_prob
    )
    assert (gradient == 0).double().mean().item() == 0.5
    assert clip_fraction(log_prob, old, torch.zeros_like(old), clip=0.2).item() == 0.0


def test_where_the_clip_bounds_a_weight_it_counts_on_both_sides(case):
    log_prob, old, _ = case
    assert clip_fraction(log_prob, old, None, clip=0.2).item() == 0.75  # all but ρ = 1
    # e^.5 = 1.65 alone
    assert clip_fraction(log_prob, old, None, clip=1.0, clip_high=0.5).item() == 0.25


@pytest.mark.parametrize("seed", range(5))
def test_the_clip_fraction_is_verls_and_trls(seed):
    """verl: the clipped loss is above the unclipped one. TRL: is_low_clipped or is_high_clipped."""
    numbers = torch.Generator().manual_seed(seed)
    log_prob, old, advantage = (
        torch.randn(6, 9, generator=numbers, dtype=torch.float64) for _ in range(3)
    )
    mask = torch.rand(6, 9, generator=numbers) > 0.3
    ratio = (log_prob - old).exp()
    plain, clipped = -advantage * ratio, -advantage * ratio.clamp(0.8, 1.28)
    verl = (clipped > plain).double()[mask].mean().item()
    trl = (
        (((ratio < 0.8) & (advantage < 0)) | ((ratio > 1.28) & (advantage > 0)))
        .double()[mask]
        .mean()
        .item()
    )
    found = clip_fraction(log_prob, old, advantage, clip=0.2, clip_high=0.28, mask=mask).item()
    assert found == near(verl, dtype="float64", terms=54) and verl == trl
    assert found < clip_fraction(log_prob, old, None, clip=0.2, clip_high=0.28, mask=mask).item()


def test_the_clip_fraction_of_verls_own_example_is_verls():
    """Of five tokens e^.4 with A = 1 and e^-1.5 with A = -1 are held; verl 0.9.1 says .4, and a loss of
    .182694 with c = 3."""
    old = torch.tensor([[-1.0, -2.0, -0.5], [-0.7, -1.5, -3.0]])
    new = torch.tensor([[-0.6, -2.5, -0.5], [-2.2, -0.2, -2.9]])
    advantage = torch.tensor([[1.0], [-1.0]]).expand(2, 3)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    options = {"clip": 0.2, "clip_high": 0.28, "mask": mask}
    found = clip_fraction(new, old, advantage, **options).item()
    assert found == near(0.4, dtype="float32", terms=5)
    loss = clipped_surrogate_loss(new, old, advantage, dual_clip=3.0, **options)
    assert loss.item() == near(0.182694, dtype="float32", terms=5, size=3.0, decimals=6)


def test_each_side_has_its_own_clip_range():
    log_ratio = torch.tensor([1.0, -1.0], requires_grad=True)
    loss = clipped_surrogate_loss(
        log_ratio, torch.zeros(2), torch.tensor([1.0, -1.0]), clip=0.2, clip_high=0.28
    )
    assert loss.item() == near(-(1.28 - 0.8) / 2, dtype="float32", terms=2, size=1.28)


def test_dual_clip_bounds_the_loss_of_a_bad_action_and_leaves_good_ones_alone():
    log_prob, old = torch.log(torch.tensor([10.0, 10.0])), torch.zeros(2)
    advantage = torch.tensor([-1.0, 1.0])
    # log 10 rounded, then its exponential
    rounded = {"dtype": "float32", "terms": 2, "size": 10 * math.log(10)}
    assert clipped_surrogate_loss(log_prob, old, advantage).item() == near(
        (10 - 1.2) / 2, **rounded
    )
    assert clipped_surrogate_loss(log_prob, old, advantage, dual_clip=3.0).item() == near(
        (3 - 1.2) / 2, **rounded
    )


def test_nan_in_the_padding_reaches_neither_loss_nor_gradient():
    mask = torch.tensor([[True, True, False], [True, False, False]])
    clean = torch.tensor([[-1.0, -2.0, 0.0], [-0.5, 0.0, 0.0]])
    log_prob = clean.masked_fill(~mask, NAN).requires_grad_()
    other = (clean - 0.1).masked_fill(~mask, NAN)
    losses = {
        "clipped": clipped_surrogate_loss(log_prob, other, other, mask=mask),
        "gradient": policy_gradient_loss(log_prob, other, mask=mask),
        "likelihood": negative_log_likelihood_loss(log_prob, mask=mask, average=per_sequence),
    }
    for name, loss in losses.items():
        (gradient,) = torch.autograd.grad(loss, log_prob, retain_graph=True)
        assert loss.isfinite() and gradient.isfinite().all(), name
        assert gradient[mask].all() and not gradient[~mask].any(), name


def test_a_huge_ratio_gives_a_finite_gradient():
    log_prob = torch.tensor([200.0, 200.0, -200.0], requires_grad=True)
    loss = clipped_surrogate_loss(log_prob, torch.zeros(3), torch.tensor([1.0, 0.0, 1.0]))
    (gradient,) = torch.autograd.grad(loss, log_prob)
    assert loss.isfinite() and gradient.isfinite().all()


def test_nothing_unmasked_is_zero_loss_and_zero_gradient():
    log_prob = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    for average in ({}, {"average": per_sequence}):
        loss = clipped_surrogate_loss(
            log_prob, log_prob.detach(), torch.ones(2, 3), mask=nothing, **average
        )
        assert loss.item() == 0.0
        assert not torch.autograd.grad(loss, log_prob)[0].any()


def test_at_ratio_one_the_surrogate_has_the_policy_gradient():
    log_prob = torch.tensor([-1.0, -0.2, -3.0], requires_grad=True)
    advantage = torch.tensor([2.0, -1.0, 0.5])
    (surrogate,) = torch.autograd.grad(
        clipped_surrogate_loss(log_prob, log_prob.detach(), advantage), log_prob
    )
    (plain,) = torch.autograd.grad(policy_gradient_loss(log_prob, advantage), log_prob)
    assert_near(surrogate, plain, terms=3)


def test_the_policy_gradient_of_a_two_armed_bandit_is_the_exact_one(fixtures):
    case = fixtures["losses"]["pg_exact_2arm"]
    theta = torch.tensor(case["theta"], dtype=torch.float64, requires_grad=True)
    log_prob = theta.log_softmax(0)
    prob, reward = log_prob.exp().detach(), torch.tensor(case["r"], dtype=torch.float64)
    # the expectation over both arms: weight each arm's term by its probability
    loss = policy_gradient_loss(log_prob, reward, average=lambda mask: prob)
    (gradient,) = torch.autograd.grad(loss, theta)
    assert (-gradient).tolist() == near(case["grad"], decimals=10)


def test_the_likelihood_loss_is_the_mean_negative_log_probability():
    assert negative_log_likelihood_loss(torch.tensor([-1.0, -3.0])).item() == 2.0


def test_shapes_are_never_broadcast_and_masks_are_bool():
    three = torch.zeros(3)
    with pytest.raises(ValueError, match="advantage must have the shape of log_prob"):
        clipped_surrogate_loss(three, three, torch.zeros(3, 1))
    with pytest.raises(ValueError, match="mask must be a bool tensor"):
        policy_gradient_loss(three, three, mask=torch.ones(3))
    with pytest.raises(ValueError, match="mask must have the shape of log_prob"):
        negative_log_likelihood_loss(three, mask=torch.ones(2, dtype=torch.bool))
