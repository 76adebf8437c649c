"""Normalisation of a token's vector, which keeps the activations of a transformer on the same scale
in all layers.

Source: Ba et al. 2016, arXiv:1607.06450 (LayerNorm); Zhang & Sennrich 2019, arXiv:1910.07467
(RMSNorm).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """(x - mean) / √(variance + ε) · w + b: scales each token's vector to mean 0 and variance 1.

    Args:
        width: d, numbers a token.
        eps: ε.

    Source: Ba et al. 2016, arXiv:1607.06450, eq. 4.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)  # [..., d]
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight + self.bias


class RMSNorm(nn.Module):
    """x / √(mean of x² + ε) · w: scales each token's vector to a root mean square of 1.

    LayerNorm without the mean and without b.

    Args:
        width: d, numbers a token.
        eps: ε.

    Source: Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4.
    """

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps  # [d]

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight
