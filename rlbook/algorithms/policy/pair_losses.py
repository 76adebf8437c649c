"""The losses on pairs that `dpo` knows by name, and what it logs of the pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.algorithms.policy.dpo_config import REFERENCE_FREE, SMOOTHED, DPOConfig
from rlbook.functional import preference_losses as losses
from rlbook.functional.averages import Average, averaged
from rlbook.functional.kto_losses import kto_loss
from rlbook.functional.preference_losses import implicit_reward, preference_accuracy

LOSSES = {
    "sigmoid": losses.dpo_loss,
    "ipo": losses.ipo_loss,
    "hinge": losses.hinge_preference_loss,
    "robust": losses.robust_dpo_loss,
    "exo": losses.exo_loss,
    "apo_zero": losses.apo_zero_loss,
    "apo_down": losses.apo_down_loss,
    "kto": kto_loss,
    "simpo": losses.simpo_loss,
    "orpo": losses.orpo_loss,
}


def pair_loss(
    config: DPOConfig,
    policy: tuple[Tensor, Tensor],
    reference: tuple[Tensor, Tensor],
    kl: Tensor | None,
    average: Average,
) -> Tensor:
    """The loss that a config names.

    Args:
        config: which loss, and its settings.
        policy: log π of the better and of the worse episodes, [P] each, in nats; sums, or means
            where `per_step` says so or the loss is made of them.
        reference: the same under the reference.
        kl: KTO's point of reference, a scalar.
        average: how the pairs become one number.
    """
    name = config.preference_loss
    given: dict[str, object] = {"beta": config.beta, "average": average}
    if name in SMOOTHED:
        given["label_smoothing"] = config.label_smoothing
    if name == "simpo":
        given["margin"] = config.simpo_margin
    if name == "kto":
        given["good_weight"] = config.good_weight
    compared = () if name in REFERENCE_FREE else reference
    extra = (kl,) if name == "kto" else ()
    return LOSSES[name](*policy, *compared, *extra, **given)  # type: ignore[operator]


@torch.no_grad()
def pair_metrics(
    config: DPOConfig,
    policy: tuple[Tensor, Tensor],
    reference: tuple[Tensor, Tensor],
    average: Average,
    share: float,
) -> dict[str, Tensor]:
    """What the policy prefers, and how far it is from the reference.

    Args:
        config, policy, reference, average: as of `pair_loss`.
        share: of these pairs in the minibatch, in (0, 1].
    """
    rewards = [
        implicit_reward(sums, compared, config.beta)
        for sums, compared in zip(policy, reference, strict=True)
    ]
    return {
        "accuracy": preference_accuracy(*rewards) * share,
        "reward_margin": averaged(rewards[0] - rewards[1], average=average),
        "chosen_log_ratio": averaged(policy[0] - reference[0], average=average),
        "rejected_log_ratio": averaged(policy[1] - reference[1], average=average),
    }
