"""One batch, many shapes: [B] = [B, 1], a batch = its samples, a batch = its micro-batches; and
ours = the peers' numbers."""

import math

import pytest
import torch
from closeness import assert_near, largest, near

from rlbook.functional.averages import (
    constant,
    per_sequence,
    per_token,
    weighted_sum,
)
from rlbook.functional.divergences import k3
from rlbook.functional.policy_losses import (
    clipped_surrogate_loss,
    clipped_weight_loss,
    episode_log_ratio,
    negative_log_likelihood_loss,
    policy_gradient_loss,
    truncated_importance_weight,
)
from rlbook.functional.post_training.preference_losses import (
    dpo_loss,
    hinge_preference_loss,
    ipo_loss,
)
from rlbook.functional.value_losses import clipped_value_loss, huber_loss, squared_value_loss

ELEMENTWISE = {
    "clipped_surrogate": (clipped_surrogate_loss, 3),
    "clipped_surrogate_dual": (
        lambda *args, **options: clipped_surrogate_loss(
            *args, clip_high=0.3, dual_clip=2.0, **options
        ),
        3,
    ),
    "clipped_weight": (clipped_weight_loss, 3),
    "policy_gradient": (policy_gradient_loss, 2),
    "likelihood": (negative_log_likelihood_loss, 1),
    "squared_value": (squared_value_loss, 2),
    "clipped_value": (clipped_value_loss, 3),
    "huber": (huber_loss, 2),
}
AVERAGES = {"per_token": per_token, "per_sequence": per_sequence, "constant": constant(6)}


@pytest.fixture(params=ELEMENTWISE)
def loss_and_inputs(request):
    loss, arguments = ELEMENTWISE[request.param]
    generator = torch.Generator().manual_seed(7)
    return loss, [
        torch.randn(6, 5, generator=generator, dtype=torch.float64) for _ in range(arguments)
    ]


def rounded(inputs):
    """Of a sum of at most 30 elements A ρ, with ρ = e^(new - old)."""
    size = largest(inputs)
    return {"terms": 30, "size": size * math.exp(2 * size)}


def ragged(rows=6, length=5):
    return torch.arange(length) < torch.tensor([5, 3, 1, 4, 2, 5])[:rows, None]


def test_a_batch_of_steps_is_a_batch_of_one_step_sequences(loss_and_inputs):
    loss, inputs = loss_and_inputs
    flat = [tensor[:, 0] for tensor in inputs]
    column = [tensor[:, :1] for tensor in inputs]
    for average in (per_token, per_sequence):
        assert_near(loss(*flat, average=average), loss(*column, average=average), **rounded(inputs))
        mask = torch.tensor([True, False, True, True, False, True])
        assert_near(
            loss(*flat, mask=mask, average=average),
            loss(*column, mask=mask[:, None], average=average),
            **rounded(inputs),
        )


def test_a_batchs_loss_is_the_mean_of_its_samples_losses(loss_and_inputs):
    loss, inputs = loss_and_inputs
    flat = [tensor.flatten() for tensor in inputs]
    alone = torch.stack([loss(*(tensor[i : i + 1] for tensor in flat)) for i in range(30)])
    assert_near(loss(*flat), alone.mean(), **rounded(inputs))


def test_no_mask_is_a_mask_of_ones(loss_and_inputs):
    loss, inputs = loss_and_inputs
    everything = torch.ones(6, 5, dtype=torch.bool)
    for average in AVERAGES.values():
        assert_near(
            loss(*inputs, average=average),
            loss(*inputs, mask=everything, average=average),
            **rounded(inputs),
        )


@pytest.mark.parametrize("name", AVERAGES)
def test_micro_batches_add_up_to_the_batch_in_loss_and_gradient(loss_and_inputs, name):
    loss, (first, *rest) = loss_and_inputs
    mask = ragged()
    first.requires_grad_()
    whole = loss(first, *rest, mask=mask, average=AVERAGES[name])
    (whole_gradient,) = torch.autograd.grad(whole, first)
    weights = AVERAGES[name](mask.double())
    for split in ([6], [1, 5], [2, 2, 2], [1] * 6):
        parts, start = [], 0
        for size in split:
            rows = slice(start, start + size)
            parts.append(
                loss(
                    first[rows],
                    *(t[rows] for t in rest),
                    mask=mask[rows],
                    average=weights[rows],
                )
            )
            start += size
        total = torch.stack(parts).sum()
        assert_near(total, whole, **rounded([first, *rest]))
        assert_near(torch.autograd.grad(total, first)[0], whole_gradient, **rounded([first, *rest]))


@pytest.mark.parametrize("name", AVERAGES)
def test_more_padding_changes_nothing(loss_and_inputs, name):
    loss, inputs = loss_and_inputs
    mask = ragged()
    for extra in range(1, 8):
        padded = [
            torch.nn.functional.pad(tensor, (0, extra), value=float("nan")) for tensor in inputs
        ]
        padded_mask = torch.nn.functional.pad(mask, (0, extra), value=False)
        found = loss(*padded, mask=padded_mask, average=AVERAGES[name])
        assert_near(found, loss(*inputs, mask=mask, average=AVERAGES[name]), **rounded(inputs))


@pytest.mark.parametrize("loss", [dpo_loss, ipo_loss, hinge_preference_loss])
def test_preference_pairs_add_up_too(loss):
    pairs = torch.randn(
        4, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    ).unbind()
    whole = loss(*pairs)
    alone = torch.stack([loss(*(tensor[i : i + 1] for tensor in pairs)) for i in range(6)])
    size = (4 * largest(pairs) + 5) ** 2  # ipo's (h - 1 / 2β)², h of four numbers
    assert_near(whole, alone.mean(), terms=6 * 4, size=size)
    weights = per_token(torch.ones(6, dtype=torch.float64))
    parts = [
        loss(*(t[rows] for t in pairs), average=weights[rows])
        for rows in (slice(0, 2), slice(2, 6))
    ]
    assert_near(torch.stack(parts).sum(), whole, terms=6 * 4, size=size)


def language_model_case(fixtures):
    case = fixtures["language_model_losses"]
    new, old, reference = (
        torch.tensor(case[name], dtype=torch.float64)
        for name in ("log_prob", "old_log_prob", "reference_log_prob")
    )
    advantage = torch.tensor(case["advantage"], dtype=torch.float64)[:, None].expand(2, 3)
    return case, new, old, reference, advantage, torch.tensor(case["mask"]).bool()


@pytest.mark.parametrize(
    "golden, average",
    [
        ("token_mean", per_token),
        ("seq_mean_token_mean", per_sequence),
        ("seq_mean_token_sum", constant(1)),
    ],
)
def test_the_clipped_loss_is_verls(fixtures, golden, average):
    case, new, old, _, advantage, mask = language_model_case(fixtures)
    loss = clipped_surrogate_loss(
        new,
        old,
        advantage,
        clip=case["clip"],
        clip_high=case["clip_high"],
        dual_clip=case["dual_clip"],
        mask=mask,
        average=average,
    )
    assert loss.item() == near(case[golden], decimals=6)


def test_k3_is_verls(fixtures):
    case, new, _, reference, *_ = language_model_case(fixtures)
    assert_near(k3(new, reference), case["k3"], decimals=6)


@pytest.mark.parametrize(
    "golden, average, beta",
    [
        ("loss_grpo(seq-mean-then-mean)", per_sequence, 0.04),
        ("loss_bnpo/dapo(token-mean)", per_token, 0.04),
        ("loss_dr_grpo(maxlen=4)", constant(4), 0.04),
        ("loss_grpo_beta0", per_sequence, 0.0),
    ],
)
def test_surrogate_and_kl_together_are_trls_grpo_loss(fixtures, golden, average, beta):
    case = fixtures["losses"]["grpo"]["loss_case"]
    new, old, reference = (
        torch.tensor(case[name], dtype=torch.float64) for name in ("logp", "logp_old", "ref")
    )
    mask = torch.tensor(case["mask"]).bool()
    advantage = torch.tensor(case["adv"], dtype=torch.float64)[:, None].expand(2, 4)
    assert_near(k3(new, reference, mask), case["k3_kl"], decimals=10)
    loss = clipped_surrogate_loss(new, old, advantage, clip=case["eps"], mask=mask, average=average)
    loss = loss + beta * weighted_sum(k3(new, reference, mask), mask, average)
    assert loss.item() == near(case[golden], decimals=6)
    assert abs(loss.item() - case["loss_unmasked_BUG"]) > 1e-3


def test_a_ratio_of_the_episode_is_trls_and_verls_gspo(fixtures):
    """Row 1: log ratios .4, -.5, 0 have the mean -1/30; row 2: -1.5, 1.3 and padding have -.1. TRL
    clips exp of those, and multiplies A.

    verl's form, sg[s] · π / sg[π] at each token, has the same gradient.
    """
    case, new, old, _, advantage, mask = language_model_case(fixtures)
    new.requires_grad_()
    ratio = episode_log_ratio(new, old, mask)
    assert_near(ratio[:, 0], [-1 / 30, -0.1], terms=3, size=3.0)
    for average in (per_token, per_sequence, constant(4)):
        loss = clipped_surrogate_loss(
            ratio, torch.zeros_like(old), advantage, clip=case["clip"], mask=mask, average=average
        )
        (ours,) = torch.autograd.grad(loss, new, retain_graph=True)
        verl = clipped_surrogate_loss(
            new - new.detach() + ratio.detach(),
            torch.zeros_like(old),
            advantage,
            clip=case["clip"],
            mask=mask,
            average=average,
        )
        assert_near(ours, torch.autograd.grad(verl, new)[0], terms=6, size=1.0)
        assert ours[mask].abs().min() > 0.01 and not ours[~mask].any()
    loss = clipped_surrogate_loss(
        ratio, torch.zeros_like(old), advantage, clip=case["clip"], mask=mask, average=per_sequence
    )
    assert loss.item() == near((-math.exp(-1 / 30) + math.exp(-0.1)) / 2, terms=6, size=3.0)
    assert loss.item() == near(case["gspo_trl"], decimals=6)
    product = episode_log_ratio(new, old, mask, mean=False)[:, 0]
    assert_near(product, [-0.1, -0.2], terms=3, size=3.0)


def test_cispo_is_trls_with_its_cap_and_verls_with_its_clip(fixtures):
    """-sg[clip ρ] A log π. TRL's epsilon_high is the cap, 5; verl's cap is 1 + epsilon_high."""
    case, new, old, _, advantage, mask = language_model_case(fixtures)
    new.requires_grad_()
    loss = clipped_weight_loss(new, old, advantage, clip=1.0, clip_high=4.0, mask=mask)
    rho = [math.exp(x) for x in (0.4, -0.5, 0.0, -1.5, 1.3)]
    by_hand = -(rho[0] * -0.6 + rho[1] * -2.5 + rho[2] * -0.5 - rho[3] * -2.2 - rho[4] * -0.2) / 5
    assert loss.item() == near(by_hand, terms=5, size=4.0) and loss.item() == near(
        case["cispo_trl"], decimals=6
    )
    (gradient,) = torch.autograd.grad(loss, new)
    assert_near(gradient, -((new.detach() - old).exp() * advantage * mask) / 5, terms=3, size=4.0)
    tight = clipped_weight_loss(
        new, old, advantage, clip=case["clip"], clip_high=case["clip_high"], mask=mask
    )
    clipped = [min(max(x, 0.8), 1.28) for x in rho]
    by_hand = (
        -(
            clipped[0] * -0.6
            + clipped[1] * -2.5
            + clipped[2] * -0.5
            - clipped[3] * -2.2
            - clipped[4] * -0.2
        )
        / 5
    )
    assert tight.item() == near(by_hand, terms=5, size=4.0)


def test_the_weight_of_anothers_sample_is_cut_at_two():
    """log ratios 1, -1, unknown: e is cut to 2; of the product, e^0 = 1 stays; 1 outside the mask,
    and NaN there reaches nothing."""
    new, behaviour = (
        torch.tensor([[0.0, -2.0, -1.0, torch.nan]]),
        torch.tensor([[-1.0, -1.0, torch.nan, 3.0]]),
    )
    mask = torch.tensor([[True, True, True, False]])
    assert_near(
        truncated_importance_weight(new, behaviour, mask), [[2.0, math.exp(-1), 1.0, 1.0]], terms=2
    )
    assert_near(
        truncated_importance_weight(new, behaviour, mask, episode=True), torch.ones(1, 4), terms=2
    )
    lower = truncated_importance_weight(new - 0.5, behaviour, mask, episode=True)[0, 0]
    assert lower.log().item() == near(-1.0, dtype="float32", terms=4)
