"""Action distributions: sampling without torch, densities and entropies with it.

Sampling takes its noise from outside, so that two ways of computing the same logits draw the same actions.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Distribution(Protocol):
    """π(·|s) for a batch of states."""

    def log_prob(self, action: Tensor) -> Tensor:
        """log π(a|s) in nats (a density's logarithm for continuous actions)."""
        ...

    def entropy(self) -> Tensor:
        """Entropy in nats (differential for continuous actions)."""
        ...


class Categorical:
    """One of A actions; logits [..., A]."""

    def __init__(self, logits: Tensor) -> None:
        self.log_probs = logits.log_softmax(-1)                                     # [..., A]

    def log_prob(self, action: Tensor) -> Tensor:
        """action [...] int64 → [...]."""
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """[...]; an action of probability 0 adds 0."""
        finite = self.log_probs.clamp(min=torch.finfo(self.log_probs.dtype).min)
        return -(self.log_probs.exp() * finite).sum(-1)


class Gaussian:
    """Independent normal components; mean [..., A], log_std [A]."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean, log_std.expand_as(mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """action [..., A] → [...]: the sum over components."""
        z = (action - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """[...]: Σ ½ log(2πe σ²)."""
        return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


def sample_categorical(logits: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inverse-CDF sampling: the action whose slice of the cumulative distribution holds the noise.

    Args:
        logits: [N, A].
        uniform: [N] in [0, 1).

    Returns:
        action [N] int64, log_prob [N] in nats (float32).
    """
    shifted = logits - logits.max(axis=-1, keepdims=True)
    cumulative = np.exp(shifted, dtype=np.float64).cumsum(axis=-1)
    total = cumulative[:, -1]
    action = (cumulative <= (uniform * total)[:, None]).sum(axis=-1)
    action = np.minimum(action, logits.shape[1] - 1)
    log_prob = shifted[np.arange(len(action)), action] - np.log(total)
    return action, log_prob.astype(np.float32)


def mode_categorical(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest action (the lowest index among equals) and its log-probability: logits [N, A] → [N], [N]."""
    action = logits.argmax(axis=-1)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_prob = shifted[np.arange(len(action)), action] - np.log(np.exp(shifted, dtype=np.float64).sum(axis=-1))
    return action, log_prob.astype(np.float32)
