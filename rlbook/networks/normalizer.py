"""Normalised observations: their running mean and variance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlbook.functional.moments import merged_moments


class Normalizer(nn.Module):
    """Running mean and variance of observations; they change only in `update`.

    Detail 8 of the 9 for continuous control in "The 37 Implementation Details of PPO".
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Normalised observations, [..., size] → [..., size], clipped to ±10."""
        scale = (self.variance + 1e-8).rsqrt()
        return ((x.to(scale.device) - self.mean.float()) * scale.float()).clamp(-10.0, 10.0)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Updates the mean and the variance with a batch [B, size]."""
        held = (self.count, self.mean, self.variance)
        for buffer, value in zip(held, merged_moments(*held, x.double()), strict=True):
            buffer.copy_(value)
