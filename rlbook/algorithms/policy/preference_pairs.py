"""Pairs of episodes, better against worse: how a round forms them, their log-probabilities, and the
losses on them that `dpo` offers by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlbook.algorithms.policy.dpo_config import REFERENCE_FREE, SMOOTHED, DPOConfig
from rlbook.data.rollout import Batch
from rlbook.functional.averages import Average, per_token, weighted_sum
from rlbook.functional.post_training import preference_losses as losses
from rlbook.functional.post_training.kto_losses import kto_loss, mismatched_kl
from rlbook.functional.post_training.preference_losses import (
    implicit_reward,
    mean_log_prob,
    preference_accuracy,
    sequence_log_prob,
)
from rlbook.networks.data_parallel import log_prob_by_rows
from rlbook.networks.policy import Policy


@dataclass
class PairedRows:
    """P pairs of episodes, row i of `better` against row i of `worse`."""

    adds_up: ClassVar[bool] = True
    """See `rlbook.data.rollout.Batch`."""
    better: Batch
    worse: Batch
    count: int = 0  # pairs in the whole minibatch that these are part of

    def __len__(self) -> int:
        return len(self.better)

    def __getitem__(self, rows: slice | Tensor) -> PairedRows:
        return PairedRows(self.better[rows], self.worse[rows], self.count)

    def as_minibatch(self) -> PairedRows:
        """The same pairs as a complete minibatch of their own."""
        better = dataclasses.replace(self.better, weight=per_token(self.better.mask))
        return PairedRows(better, self.worse, len(self))


def ranked_pairs(returns: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """Pairs within each group: the best episode against the worst, the second best against the
    second worst, and so on; ties make no pair.

    Args:
        returns: [N], groups of neighbours.
        group_size: G.

    Returns:
        Rows of the better and of the worse episodes: [P] and [P], P at most N / G · (G // 2).
    """
    half = group_size // 2
    order = returns.view(-1, group_size).argsort(dim=1, descending=True, stable=True)
    starts = torch.arange(0, len(returns), group_size, device=returns.device)
    order = order + starts[:, None]
    better, worse = order[:, :half].reshape(-1), order.flip(1)[:, :half].reshape(-1)
    differs = returns[better] > returns[worse]
    return better[differs], worse[differs]


def episode_log_prob(log_prob: Tensor, mask: Tensor, config: DPOConfig) -> Tensor:
    """log π(τ) of whole episodes, or its mean over their steps: [P, T] → [P], in nats."""
    means = config.per_step or config.preference_loss in REFERENCE_FREE
    return (mean_log_prob if means else sequence_log_prob)(log_prob, mask)


def reference_log_prob(rows: Batch, config: DPOConfig) -> Tensor:
    """log π_ref of whole episodes: [P], in nats; 0 where no reference is kept."""
    if rows.reference_log_prob is None:
        return torch.zeros(len(rows), device=rows.mask.device)
    return episode_log_prob(rows.reference_log_prob, rows.mask, config)


@torch.no_grad()
def kto_reference_point(
    batches: Sequence[Batch], policy: Policy, reference: Policy | None, config: DPOConfig
) -> Tensor:
    """KTO's z: a scalar, in nats, from completions paired with the prompt of the next row.

    All walks of a maze begin alike, so there each stands for any other.
    """
    sums = []
    for rows in batches:
        if isinstance(rows.obs, dict):
            shifted = {name: part.roll(-1, 0) for name, part in rows.obs.items()}
            rows = dataclasses.replace(rows, obs=shifted)
            if reference is not None:
                rows.reference_log_prob = log_prob_by_rows(reference, rows)
        log_prob = log_prob_by_rows(policy, rows)
        log_prob = episode_log_prob(log_prob, rows.mask, config)
        sums.append((log_prob, reference_log_prob(rows, config)))
    return mismatched_kl(*(torch.cat(column) for column in zip(*sums, strict=True)))


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
    """The loss that the config names.

    Args:
        config: which loss, and its settings.
        policy: log π of the better and of the worse episodes, [P] each, in nats; sums, or means
            where `per_step` says so or the loss is made of them.
        reference: the same under the reference.
        kl: KTO's reference point, a scalar.
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
    """Metrics of the policy's preferences and of its distance from the reference.

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
        "reward_margin": weighted_sum(rewards[0] - rewards[1], average=average),
        "chosen_log_ratio": weighted_sum(policy[0] - reference[0], average=average),
        "rejected_log_ratio": weighted_sum(policy[1] - reference[1], average=average),
    }
