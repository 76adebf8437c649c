"""KTO on episodes that are good or bad, each for itself: `dpo` without pairs.

    z = max(0, mean( log π(τ) - log π_ref(τ) ))    over texts that stand behind another prompt
    minimise  mean( w σ(-β (x - z)) where τ is good, σ(β (x - z)) where it is bad )
              -  c mean log π(τ) of the good ones,      x = log π(τ) - log π_ref(τ)

Source: Ethayarajh et al. 2024, arXiv:2402.01306, eq. 7 and 8. As in TRL, z is an estimate from the
minibatch, in which each prompt gets the completion of the row before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rlbook.data.labelled import LabelledBatch
from rlbook.data.rollout import Batch
from rlbook.functional.averages import averaged, given, per_token
from rlbook.functional.kto_losses import labelled_kto_loss
from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.functional.preference_losses import implicit_reward
from rlbook.networks.optimizer import LossOutput, Optimizer, gradient_step
from rlbook.networks.policy import Policy


class Learner(Protocol):
    """What the functions below ask of `dpo`."""

    config: Any
    policy: Policy
    optimizer: Optimizer

    def whole(self, log_prob: Tensor, mask: Tensor) -> Tensor: ...

    def reference_of(self, rows: Batch) -> Tensor: ...

    def reference_log_prob(self, batch: Batch) -> Tensor | None: ...

    def mismatched_kl(self, *batches: Batch) -> Tensor: ...


@dataclass
class LabelledRows:
    """B episodes, and the share of each in the mean over all, over the good and over the bad."""

    episodes: Batch  # its `weight` is each token's share in the mean over good episodes'
    good: Tensor  # [B] bool
    share: Tensor  # [B]
    share_of_good: Tensor
    share_of_bad: Tensor

    @staticmethod
    def of(batch: LabelledBatch) -> LabelledRows:
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


def train_on_labelled(agent: Learner, batch: LabelledBatch) -> dict[str, Tensor]:
    """One gradient step on labelled episodes. Returns the diagnostics, and "grad_norm"."""
    batch.episodes.reference_log_prob = agent.reference_log_prob(batch.episodes)
    kl = agent.mismatched_kl(batch.episodes)
    done = gradient_step(
        agent.optimizer,
        lambda rows: labelled_loss(agent, rows, kl),
        LabelledRows.of(batch),
        micro_batch_size=agent.config.micro_batch_size,
        max_grad_norm=agent.config.max_grad_norm,
    )
    return done | {"mismatched_kl": kl}


def labelled_loss(agent: Learner, rows: LabelledRows, kl: Tensor) -> LossOutput:
    """The share that some episodes have in the loss of all, and in the diagnostics."""
    config, episodes = agent.config, rows.episodes
    assert episodes.weight is not None
    log_prob, _, _ = agent.policy.evaluate(episodes, entropy=False)
    whole, reference = agent.whole(log_prob, episodes.mask), agent.reference_of(episodes)
    preference = labelled_kto_loss(
        whole,
        reference,
        rows.good,
        kl,
        beta=config.beta,
        good_weight=config.good_weight,
        average=given(rows.share),
    )
    nll = negative_log_likelihood_loss(log_prob, mask=episodes.mask, average=given(episodes.weight))
    total = preference + config.nll_coef * nll
    with torch.no_grad():
        reward, ratio = implicit_reward(whole, reference, config.beta), whole - reference
        right = ((ratio > kl) == rows.good).to(reward)
        good, bad = given(rows.share_of_good), given(rows.share_of_bad)
        return LossOutput(
            total,
            {
                "preference_loss": preference.detach(),
                "nll": nll.detach(),
                "accuracy": averaged(right, average=given(rows.share)),
                "reward_margin": averaged(reward, average=good) - averaged(reward, average=bad),
                "chosen_log_ratio": averaged(ratio, average=good),
                "rejected_log_ratio": averaged(ratio, average=bad),
            },
        )
