"""The cross-entropy method: sample many plans, keep the best, and refit the distribution to them.

    repeat
        draw C plans from a distribution with independent components
        keep the E plans of the highest score, the elites
        the distribution ← the one under which the elites are most likely

It needs only scores: no gradient, and any model that can be simulated. The maximum-likelihood fit
of a normal distribution is the elites' mean and standard deviation, of a categorical one their
frequencies.

Source: Rubinstein & Kroese 2004, The Cross-Entropy Method, algorithm 2.2 (with E = ρC); as a
planner: Chua et al. 2018, arXiv:1805.12114, section 5.

Shapes: N environments, C plans of each, H steps of a plan, A action components (or actions).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


def cross_entropy_method(
    score: Callable[[Tensor], Tensor],
    plans: Plans,
    rng: np.random.Generator,
    *,
    candidates: int,
    elites: int,
    iterations: int,
) -> Plans:
    """The distribution over plans to which the method converges, near the plans with the highest
    scores.

    Args:
        score: [N, C, H, A] → [N, C], higher is better; a score of NaN counts as worst.
        plans: the distribution to start from.
        rng: draws the plans.
        candidates: C, plans drawn in each iteration.
        elites: E of them are kept, 1 ≤ E ≤ C.
        iterations: how often the distribution is fitted to new elites.
    """
    for _ in range(iterations):
        drawn = plans.sample(candidates, rng)  # [N, C, H, A]
        scores = torch.nan_to_num(score(drawn), nan=-torch.inf)  # [N, C]
        best = scores.topk(elites, dim=1).indices  # [N, E]
        plans = plans.refit(drawn[torch.arange(len(drawn))[:, None], best])
    return plans


class Plans(Protocol):
    """A distribution over plans that can be sampled and refitted."""

    def sample(self, count: int, rng: np.random.Generator) -> Tensor:
        """Samples C plans from each distribution: [N, C, H, A]."""
        ...

    def refit(self, elites: Tensor) -> Plans:
        """A distribution fitted to elites [N, E, H, A]."""
        ...

    def mode(self) -> Tensor:
        """The plan at the distribution's mode: [N, H, A]."""
        ...


@dataclass(frozen=True)
class GaussianPlans:
    """Continuous actions: each component is normal, truncated to the box's bounds."""

    mean: Tensor  # [N, H, A], in the units of the actions
    std: Tensor  # [N, H, A]
    low: Tensor  # [A]
    high: Tensor  # [A]

    def sample(self, count: int, rng: np.random.Generator) -> Tensor:
        shape = (len(self.mean), count, *self.mean.shape[1:])
        noise = torch.from_numpy(rng.standard_normal(shape, np.float32)).to(self.mean.device)
        plans = self.mean[:, None] + self.std[:, None] * noise
        return torch.minimum(torch.maximum(plans, self.low), self.high)

    def refit(self, elites: Tensor) -> GaussianPlans:
        std, mean = torch.std_mean(elites, dim=1, correction=0)
        return GaussianPlans(mean, std, self.low, self.high)

    def mode(self) -> Tensor:
        return self.mean


@dataclass(frozen=True)
class CategoricalPlans:
    """Discrete actions, as one-hot vectors."""

    probability: Tensor  # [N, H, A], sums to 1 over A
    floor: float = 0.02  # fraction of the uniform distribution mixed in when refitting
    allowed: Tensor | None = None  # [N, H, A] bool; other actions have probability 0; None: all

    def __post_init__(self) -> None:
        if self.allowed is not None:
            share = self.probability * self.allowed
            object.__setattr__(self, "probability", share / share.sum(-1, keepdim=True))

    def sample(self, count: int, rng: np.random.Generator) -> Tensor:
        steps, actions = self.probability.shape[1:]
        shape = (len(self.probability), count, steps, 1)
        uniform = torch.from_numpy(rng.random(shape, np.float32)).to(self.probability.device)
        below = self.probability.cumsum(-1)[:, None, :, :-1]
        return F.one_hot((uniform >= below).sum(-1), actions).to(self.probability.dtype)

    def refit(self, elites: Tensor) -> CategoricalPlans:
        frequency, actions = elites.mean(1), elites.shape[-1]
        mixed = (1 - self.floor) * frequency + self.floor / actions
        return CategoricalPlans(mixed, self.floor, self.allowed)

    def mode(self) -> Tensor:
        chosen = self.probability.argmax(-1)
        return F.one_hot(chosen, self.probability.shape[-1]).to(self.probability.dtype)
