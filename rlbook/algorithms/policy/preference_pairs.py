"""Pairs of episodes, better against worse: how a round makes them, and how probable they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlbook.algorithms.policy.dpo_config import REFERENCE_FREE, DPOConfig
from rlbook.data.rollout import Batch
from rlbook.functional.averages import per_token
from rlbook.functional.kto_losses import mismatched_kl
from rlbook.functional.preference_losses import mean_log_prob, sequence_log_prob
from rlbook.networks.policy import Policy


@dataclass
class PairedRows:
    """P pairs of episodes, row i of `better` against row i of `worse`."""

    better: Batch
    worse: Batch
    count: int = 0  # pairs of the minibatch that these are some of

    def __len__(self) -> int:
        return len(self.better)

    def __getitem__(self, rows: slice | Tensor) -> PairedRows:
        return PairedRows(self.better[rows], self.worse[rows], self.count)

    def as_minibatch(self) -> PairedRows:
        """The same pairs as all that a gradient step is made with."""
        better = dataclasses.replace(self.better, weight=per_token(self.better.mask))
        return PairedRows(better, self.worse, len(self))


def ranked_pairs(returns: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """Within each group the best episode against the worst, the second best against the second
    worst, and so on; ties make no pair.

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
    """KTO's z: a scalar, in nats, of texts after the prompt of the next row of their batch.

    All walks of a maze begin alike, so there each stands for any other.
    """
    sums = []
    for rows in batches:
        if isinstance(rows.obs, dict):
            shifted = {name: part.roll(-1, 0) for name, part in rows.obs.items()}
            rows = dataclasses.replace(rows, obs=shifted)
            if reference is not None:
                rows.reference_log_prob = reference.evaluate(rows, entropy=False)[0]
        log_prob = policy.evaluate(rows, entropy=False)[0]
        log_prob = episode_log_prob(log_prob, rows.mask, config)
        sums.append((log_prob, reference_log_prob(rows, config)))
    return mismatched_kl(*(torch.cat(column) for column in zip(*sums, strict=True)))
