"""The shape checks that every function of this package runs first: no argument is ever
broadcast."""

from __future__ import annotations

import torch
from torch import Tensor

FLAGS = frozenset({"mask", "action_mask", "valid", "terminated", "truncated"})


def check_same_shape(**tensors: Tensor | None) -> None:
    """Raises unless all tensors have the same shape and all masks and flags are bool; None is
    skipped.

    `[3, 1] * [3]` is silently `[3, 3]`, and `~mask` on an integer mask flips bits: PyTorch would
    compute a wrong number from either without an error.
    """
    first_name, first = "", None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if name in FLAGS and tensor.dtype != torch.bool:
            raise ValueError(f"{name} must be a bool tensor, got {tensor.dtype}")
        if first is None:
            first_name, first = name, tensor
        elif tensor.shape != first.shape:
            raise ValueError(
                f"{name} must have the shape of {first_name}, {list(first.shape)}, "
                f"got {list(tensor.shape)}"
            )


def zero_outside_mask(tensor: Tensor, mask: Tensor | None) -> Tensor:
    """The tensor, replaced by 0 outside the mask, so that a NaN there affects neither value nor
    gradient."""
    return tensor if mask is None else tensor.masked_fill(~mask, 0.0)
