"""How a loss averages over its elements, which is part of the definition of an algorithm.

An average turns a mask into weights, so that loss = (values * weights).sum(). The losses of
micro-batches then add up to that of the whole batch: compute the weights once for the whole batch
and give each micro-batch its rows of them in place of the average.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlbook.functional._shapes import check_same_shape, zero_outside_mask

Weighting = Callable[[Tensor], Tensor]
"""mask (bool, [B] or [B, T]) → weights (float, same shape, 0 outside the mask).

A quotient of a bool mask and a count is float32. For values of float64 `weighted_sum` gives the
mask as 0 and 1 in float64, so that the weights are float64, too.
"""

Average = Weighting | Tensor
"""The weighting, or the weights [B] or [B, T] themselves: those of the whole batch for the rows of
a micro-batch, or importance weights. Outside the mask they have no effect.
"""


def per_token(mask: Tensor) -> Tensor:
    """Equal weight for every unmasked element: 1 / (number of them). All zero if nothing is
    unmasked.

    Args:
        mask: [B] or [B, T], bool, or 0 and 1 in the dtype that the weights are to have.

    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, eq. 12; TRL's `bnpo`, verl's `token-mean`.
    """
    return mask / mask.sum().clamp(min=1)


def per_sequence(mask: Tensor) -> Tensor:
    """The mean within each row, then the mean over rows.

    A row without an unmasked element is padding and does not count.

    Args:
        mask: [B, T], as in `per_token`; [B] is B sequences of one element, which makes it the
            plain mean.

    Source: Shao et al. 2024 (GRPO), arXiv:2402.03300, eq. 3; TRL's `grpo`, verl's
    `seq-mean-token-mean`.
    """
    if mask.dim() == 1:
        return per_token(mask)
    length = mask.sum(-1, keepdim=True)
    return mask / (length.clamp(min=1) * (length > 0).sum().clamp(min=1))


def constant(divisor: float) -> Weighting:
    """The sum over all elements, divided by B * divisor.

    A token of a long answer then weighs as much as a token of a short one.

    Args:
        divisor: elements per row to divide by, > 0; usually the longest completion allowed, in
            tokens.

    Source: Liu et al. 2025 (Dr. GRPO), arXiv:2503.20783, section 3.2 and listing 1; TRL's
    `dr_grpo`.
    """
    if not divisor > 0:
        raise ValueError(f"divisor must be a number above 0, got {divisor!r}")

    def average(mask: Tensor) -> Tensor:
        return mask / (max(len(mask), 1) * float(divisor))

    return average


def weighted_sum(
    values: Tensor, mask: Tensor | None = None, average: Average = per_token
) -> Tensor:
    """Σ values * weights: a scalar, 0 if nothing is unmasked.

    Args:
        values: [B] or [B, T]; finite outside the mask too (mask what goes in, not what comes out).
        mask: same shape, bool; True marks the elements that count. None means all.
        average: mask → weights, or the weights.
    """
    if isinstance(average, Tensor):
        check_same_shape(values=values, weights=average, mask=mask)
        return (values * zero_outside_mask(average, mask)).sum()
    check_same_shape(values=values, mask=mask)
    if mask is None:
        if values.numel() and (average is per_token or average is per_sequence):
            return values.mean()
        mask = torch.ones_like(values, dtype=torch.bool)
    weights = average(mask.double() if values.dtype == torch.float64 else mask)
    check_same_shape(values=values, weights=weights)
    return (values * weights).sum()
