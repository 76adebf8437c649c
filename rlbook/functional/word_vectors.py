"""Negative sampling: the loss from which word vectors are learned, and its gradients by hand."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def negative_sampling_loss(hidden: Tensor, target: Tensor, negatives: Tensor) -> Tensor:
    """Word2vec's loss for distinguishing an observed word from sampled ones; lower is better.

    L = mean over B of ( -log σ(h·u⁺) - Σ_k log σ(-h·u⁻_k) )

    Args:
        hidden: [B, D], h: the vector of the centre word (skip-gram), or the mean of those around it
            (CBOW).
        target: [B, D], u⁺: the output vector of the word that was there.
        negatives: [B, K, D], u⁻: those of K words from the noise distribution.

    Returns:
        A scalar, in nats; (K + 1) ln 2 where all vectors are 0.

    Source: Mikolov et al. 2013, arXiv:1310.4546, equation 4, with its sign changed.
    """
    _check(hidden, target, negatives)
    right, wrong = (hidden * target).sum(-1), (negatives @ hidden[..., None])[..., 0]
    return -(logsigmoid(right) + logsigmoid(-wrong).sum(-1)).mean()


class NegativeSamplingGradients(NamedTuple):
    """The derivatives of `negative_sampling_loss`, times B: those of each row's own loss."""

    hidden: Tensor  # [B, D]
    target: Tensor  # [B, D]
    negatives: Tensor  # [B, K, D]


def negative_sampling_gradients(
    hidden: Tensor, target: Tensor, negatives: Tensor
) -> NegativeSamplingGradients:
    """The gradients by hand, using d/dx -log σ(x) = σ(x) - 1 and d/dx -log σ(-x) = σ(x).

    ∂L/∂h = (σ(h·u⁺) - 1) u⁺ + Σ_k σ(h·u⁻_k) u⁻_k
    ∂L/∂u⁺ = (σ(h·u⁺) - 1) h,   ∂L/∂u⁻_k = σ(h·u⁻_k) h

    Args:
        hidden, target, negatives: as in `negative_sampling_loss`.

    Source: as there.
    """
    _check(hidden, target, negatives)
    right = torch.sigmoid((hidden * target).sum(-1, keepdim=True)) - 1.0
    wrong = torch.sigmoid(negatives @ hidden[..., None])
    return NegativeSamplingGradients(
        right * target + (wrong * negatives).sum(-2), right * hidden, wrong * hidden[:, None]
    )


def _check(hidden: Tensor, target: Tensor, negatives: Tensor) -> None:
    rows, width = hidden.shape
    if target.shape != hidden.shape or negatives.shape != (rows, negatives.shape[1], width):
        raise ValueError(
            "hidden [B, D], target [B, D] and negatives [B, K, D] must have matching sizes, got "
            f"{list(hidden.shape)}, {list(target.shape)} and {list(negatives.shape)}"
        )
