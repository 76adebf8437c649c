"""The masks of episodes as rows [B, T]: which elements a loss counts, and which tokens are there.

A loss counts the tokens that `Batch.mask` marks. `Batch.token_mask` marks all that are no padding,
where those are more: in a chat only the assistant's turns are learned, and the others are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def non_padding_mask(lengths: Tensor) -> Tensor:
    """Lengths [B] → bool [B, T], T the longest; False marks padding."""
    return torch.arange(int(lengths.max())) < lengths[:, None]


def counting_mask(counts: Sequence[NDArray[np.bool_] | None], non_padding: Tensor) -> Tensor:
    """bool [B, T]; False marks padding, and what does not count.

    Args:
        counts: of each row, [length] bool; None: all of it counts.
        non_padding: [B, T], as `non_padding_mask` has it.
    """
    mask = non_padding.clone()
    for row, marks in zip(mask, counts, strict=True):
        if marks is not None:
            row[: len(marks)] = torch.from_numpy(marks)
    return mask
