"""Every function of tensors gives float64 back for float64, and computes in nothing coarser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rlbook.functional import (
    advantages,
    adversarial,
    divergences,
    maximum_entropy,
    policy_losses,
    rainbow,
    returns,
    value_losses,
)
from rlbook.functional.averages import constant, per_sequence
from rlbook.functional.post_training import (
    distillation_losses,
    intrinsic_rewards,
    kto_losses,
    preference_losses,
    success_rates,
)

MASK = torch.tensor([[True, True, True, False], [True, False, False, False], [False] * 4])
ENDS = torch.tensor([False, True, False, False])


def numbers(*shape: int) -> Tensor:
    return -(1 + torch.arange(torch.Size(shape).numel(), dtype=torch.float64)).reshape(shape) / 3


B, BT = numbers(4), numbers(3, 4)
OTHER, OTHER_B = BT / 7, B / 7
GOOD = torch.tensor([True, False, True, True])
LOGITS = numbers(3, 4, 5)
PROB = numbers(4, 5).softmax(-1)
ACTION = torch.tensor([0, 1, 2, 0])
ATOMS = torch.linspace(-1, 1, 5, dtype=torch.float64)

CALLS: dict[str, Callable[[Any], Any]] = {
    "surrogate": lambda x: policy_losses.clipped_surrogate_loss(x(BT), x(OTHER), x(BT), mask=MASK),
    "surrogate by sequence": lambda x: policy_losses.clipped_surrogate_loss(
        x(BT), x(OTHER), x(BT), mask=MASK, average=per_sequence
    ),
    "surrogate by constant": lambda x: policy_losses.clipped_surrogate_loss(
        x(BT), x(OTHER), x(BT), mask=MASK, average=constant(3)
    ),
    "dual clip": lambda x: policy_losses.clipped_surrogate_loss(
        x(BT), x(OTHER), x(BT), mask=MASK, dual_clip=3.0
    ),
    "clip fraction": lambda x: policy_losses.clip_fraction(x(BT), x(OTHER), x(BT), mask=MASK),
    "episode ratio": lambda x: policy_losses.episode_log_ratio(x(BT), x(OTHER), MASK),
    "clipped weight": lambda x: policy_losses.clipped_weight_loss(
        x(BT), x(OTHER), x(BT), mask=MASK
    ),
    "importance": lambda x: policy_losses.truncated_importance_weight(x(BT), x(OTHER), MASK),
    "policy gradient": lambda x: policy_losses.policy_gradient_loss(x(BT), x(OTHER), mask=MASK),
    "likelihood": lambda x: policy_losses.negative_log_likelihood_loss(x(BT), mask=MASK),
    "squared": lambda x: value_losses.squared_value_loss(x(BT), x(OTHER), mask=MASK),
    "clipped value": lambda x: value_losses.clipped_value_loss(
        x(BT), x(OTHER), x(BT / 3), mask=MASK
    ),
    "huber": lambda x: value_losses.huber_loss(x(BT), x(OTHER), mask=MASK),
    "gae": lambda x: advantages.gae(
        x(B), x(OTHER_B), x(OTHER_B), ENDS, ENDS, gamma=0.9, gae_lambda=0.7
    ),
    "whiten": lambda x: advantages.whiten(x(BT), MASK),
    "group": lambda x: advantages.group_advantage(x(B), 2),
    "reward to go": lambda x: advantages.reward_to_go_advantage(x(BT), MASK),
    "leave one out": lambda x: advantages.leave_one_out_advantage(x(B), 2),
    "returns": lambda x: returns.discounted_returns(x(B), ENDS, ENDS, 0.9),
    "n steps": lambda x: returns.n_step_returns(x(B), ENDS, ENDS, x(OTHER_B), 0.9, 2),
    "forward": lambda x: distillation_losses.forward_kl(x(LOGITS), x(LOGITS * LOGITS)),
    "jsd": lambda x: distillation_losses.generalised_jsd(x(LOGITS), x(LOGITS * LOGITS), 1 / 3),
    "soft labels": lambda x: distillation_losses.soft_label_loss(
        x(LOGITS), x(LOGITS * LOGITS), mask=MASK
    ),
    "dpo": lambda x: preference_losses.dpo_loss(
        x(B), x(OTHER_B), x(OTHER_B), x(B), average=per_sequence
    ),
    "ranking": lambda x: preference_losses.plackett_luce_loss(x(BT), MASK),
    "accuracy": lambda x: preference_losses.preference_accuracy(
        x(BT[:, 0]), x(torch.full((3,), -1.0, dtype=torch.float64))
    ),
    "kto": lambda x: kto_losses.labelled_kto_loss(x(B), x(OTHER_B), GOOD, x(B[0])),
    "k3": lambda x: divergences.k3(x(BT), x(OTHER), MASK),
    "entropy": lambda x: divergences.categorical_entropy(x(LOGITS).log_softmax(-1)),
    "certainty": lambda x: intrinsic_rewards.self_certainty(x(LOGITS)),
    "mean": lambda x: intrinsic_rewards.mean_over_steps(x(BT), MASK),
    "n-step reward": lambda x: rainbow.n_step_reward(x(BT), torch.ones_like(MASK), 0.9)[0],
    "projection": lambda x: rainbow.categorical_projection(x(PROB), x(B), ENDS, 0.9, x(ATOMS)),
    "clipped mass": lambda x: rainbow.clipped_mass(x(PROB), x(B), ENDS, 0.9, x(ATOMS)),
    "atoms": lambda x: rainbow.categorical_divergence(x(PROB).log(), x(PROB.flip(0))),
    "conservative": lambda x: value_losses.conservative_gap(x(PROB), ACTION),
    "discriminator": lambda x: adversarial.discriminator_loss(x(B), x(OTHER_B)),
    "temperature": lambda x: maximum_entropy.temperature_loss(x(B[0]), x(B), -1 / 3),
}


class Watch(TorchDispatchMode):
    """Refuses every operation whose result is a coarser float than float64."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for item in result if isinstance(result, tuple | list) else (result,):
            if isinstance(item, Tensor) and item.dtype.is_floating_point:
                assert item.dtype == torch.float64, f"{function} computed in {item.dtype}"
        return result


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_float64_is_computed_in_float64_and_float32_stays_float32(
    call: Callable[[Any], Any],
) -> None:
    with Watch():
        assert call(lambda tensor: tensor).dtype == torch.float64
    assert call(lambda tensor: tensor.float()).dtype == torch.float32


def test_votes_are_counted_in_float64() -> None:
    """Three answers, each given once: the right one has a third of the vote."""
    with Watch():
        share, _ = success_rates.majority_at_k(
            torch.tensor([[0, 1, 2]]), torch.tensor([[True, False, False]]), 3
        )
    assert share.tolist() == [1 / 3]
