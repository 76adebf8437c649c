"""Episodes labelled good or bad individually, such as from thumbs-up and thumbs-down feedback."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlbook.data.data_set import DataSet, Rows
from rlbook.data.episodes import Episode, collate, digest_of
from rlbook.data.rollout import Batch


class LabelledBatch(NamedTuple):
    """B episodes and their labels."""

    episodes: Batch
    good: Tensor  # [B] bool


class LabelledEpisodes(DataSet[LabelledBatch]):
    """Episodes with one binary label each; no comparisons are needed.

    Args:
        episodes: read when they are asked for, so that they may lie in a file.
        good: the label of each.
        digest: as in `rlbook.data.Episodes`.
    """

    def __init__(
        self, episodes: Sequence[Episode], good: Sequence[bool], *, digest: str | None = None
    ) -> None:
        super().__init__(digest)
        if len(episodes) != len(good) or not len(episodes):
            raise ValueError(
                f"labelled episodes need one label each, and at least one, got {len(good)} for"
                f" {len(episodes)}"
            )
        self.episodes, self.good = episodes, good

    def __len__(self) -> int:
        return len(self.episodes)

    def __getitem__(self, rows: Rows) -> LabelledBatch:
        good = torch.tensor([bool(self.good[int(row)]) for row in rows])
        return LabelledBatch(collate([self.episodes[int(row)] for row in rows]), good)

    def _compute_digest(self) -> str:
        labels = np.array([bool(self.good[row]) for row in range(len(self))])
        return hashlib.sha256(digest_of(self.episodes).encode() + labels.tobytes()).hexdigest()
