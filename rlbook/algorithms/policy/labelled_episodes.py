"""KTO on episodes labelled good or bad one by one: `dpo` without pairs.

    z = max(0, mean( log π(τ) - log π_ref(τ) ))    over texts paired with another prompt
    minimise  mean( w σ(-β (x - z)) where τ is good, σ(β (x - z)) where it is bad )
              -  c mean log π(τ) of the good ones,      x = log π(τ) - log π_ref(τ)

Source: Ethayarajh et al. 2024, arXiv:2402.01306, eq. 7 and 8. As in TRL, z is estimated from the
minibatch, by pairing each prompt with the completion of the previous row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from rlbook.algorithms.policy.dpo_config import DPOConfig
from rlbook.algorithms.policy.preference_pairs import (
    episode_log_prob,
    kto_reference_point,
    reference_log_prob,
)
from rlbook.data.labelled import LabelledBatch
from rlbook.data.rollout import Batch
from rlbook.functional.averages import per_token, weighted_sum
from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.functional.post_training.kto_losses import labelled_kto_loss
from rlbook.functional.post_training.preference_losses import implicit_reward
from rlbook.networks.optimizer import LossOutput, Optimizer, gradient_step
from rlbook.networks.policy import Policy


def labelled_update(
    policy: Policy,
    optimizer: Optimizer,
    batch: LabelledBatch,
    config: DPOConfig,
    reference: Policy | None = None,
) -> dict[str, Tensor]:
    """One gradient step on labelled episodes. Returns the diagnostics, and "grad_norm".

    Args:
        policy, optimizer: changed in place.
        batch: episodes with log π_ref, and which of them are good.
        config: hyper-parameters of `dpo`.
        reference: π_ref.
    """
    kl = kto_reference_point([batch.episodes], policy, reference, config)
    metrics = gradient_step(
        optimizer,
        partial(labelled_loss, policy, config=config, mismatched_kl=kl),
        LabelledRows.from_batch(batch),
        micro_batch_size=config.micro_batch_size,
        max_grad_norm=config.max_grad_norm,
    )
    return metrics | {"mismatched_kl": kl}


def labelled_loss(
    policy: Policy, rows: LabelledRows, *, config: DPOConfig, mismatched_kl: Tensor
) -> LossOutput:
    """These episodes' share of the loss and of the diagnostics; lower is better."""
    episodes, kl = rows.episodes, mismatched_kl
    log_prob, _, _ = policy.evaluate(episodes, entropy=False)
    whole = episode_log_prob(log_prob, episodes.mask, config)  # [B]
    reference = reference_log_prob(episodes, config)
    preference = labelled_kto_loss(
        whole,
        reference,
        rows.good,
        kl,
        beta=config.beta,
        good_weight=config.good_weight,
        average=rows.share,
    )
    nll = negative_log_likelihood_loss(log_prob, **episodes.share)
    total = preference + config.nll_coef * nll
    with torch.no_grad():
        reward, ratio = implicit_reward(whole, reference, config.beta), whole - reference
        right = ((ratio > kl) == rows.good).to(reward)
        good, bad = rows.share_of_good, rows.share_of_bad
        return LossOutput(
            total,
            {
                "preference_loss": preference.detach(),
                "nll": nll.detach(),
                "accuracy": weighted_sum(right, average=rows.share),
                "reward_margin": weighted_sum(reward, average=good)
                - weighted_sum(reward, average=bad),
                "chosen_log_ratio": weighted_sum(ratio, average=good),
                "rejected_log_ratio": weighted_sum(ratio, average=bad),
            },
        )


@dataclass
class LabelledRows:
    """B episodes, with each one's weight in the means over all, over good and over bad episodes."""

    adds_up: ClassVar[bool] = True
    """See `rlbook.data.rollout.Batch`."""
    episodes: Batch  # `weight`: each token's weight in the mean over good episodes
    good: Tensor  # [B] bool
    share: Tensor  # [B]
    share_of_good: Tensor
    share_of_bad: Tensor

    @staticmethod
    def from_batch(batch: LabelledBatch) -> LabelledRows:
        episodes, good = batch
        episodes.weight = per_token(episodes.mask & good[:, None])
        return LabelledRows(
            episodes, good, per_token(torch.ones_like(good)), per_token(good), per_token(~good)
        )

    def __len__(self) -> int:
        return len(self.episodes)

    def __getitem__(self, rows: slice) -> LabelledRows:
        shares = (share[rows] for share in (self.share, self.share_of_good, self.share_of_bad))
        return LabelledRows(self.episodes[rows], self.good[rows], *shares)
