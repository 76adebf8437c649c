"""Action distributions in torch: log-densities, entropies and divergences.

Agents that act step by step sample with numpy, which is quicker, from noise that is given, so that
two ways of computing the same logits draw the same actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from rlbook.functional.divergences import categorical_entropy, gaussian_entropy
from rlbook.functional.maximum_entropy import log_slope_of_tanh

LARGE = 4096
"""The number of actions above which log-probabilities are computed for a few rows at a time, and
again for their gradient."""

CHUNK = 2**24  # logits of such rows
DRAWN_AT_ONCE = 2**18  # logits of rows that a CPU draws from side by side, so that caches hold them
BLOCK = 512  # neighbouring actions whose probabilities are added up first


class Distribution(Protocol):
    """π(·|s) for a batch of states."""

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Samples actions with `generator`, without gradient."""
        ...

    def rsample(self, generator: torch.Generator | None = None) -> Tensor:
        """Samples actions with `generator` by reparameterisation, so that gradients reach the
        parameters.

        Source: Kingma & Welling 2014, arXiv:1312.6114, section 2.4.

        Raises:
            ValueError: the actions are discrete, and no such function is differentiable.
        """
        ...

    def log_prob(self, action: Tensor) -> Tensor:
        """log π(a|s) in nats (the log-density for continuous actions)."""
        ...

    def entropy(self) -> Tensor:
        """Entropy in nats (differential for continuous actions)."""
        ...

    def mode(self) -> Tensor:
        """The most likely actions; the first one among ties."""
        ...

    def kl(self, other: Any) -> Tensor:
        """The exact KL(this ‖ other) in nats; `other` is a distribution of the same class."""
        ...


@dataclass(eq=False)
class Categorical:
    """A categorical distribution over A actions."""

    logits: Tensor  # [..., A]
    _log_probs: Tensor | None = field(default=None, init=False, repr=False)

    @property
    def log_probs(self) -> Tensor:
        """log π of every action: [..., A].

        Computed once; again where the first time was without the gradient that is wanted now.
        """
        wanted = torch.is_grad_enabled() and self.logits.requires_grad
        if self._log_probs is None or (wanted and not self._log_probs.requires_grad):
            self._log_probs = self.logits.log_softmax(-1)
        return self._log_probs

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions [...] int64, by inverting the cumulative distribution."""
        cumulative = self.log_probs.detach().double().exp().cumsum(-1)
        total = cumulative[..., -1]
        uniform = torch.rand(
            total.shape, generator=generator, device=total.device, dtype=torch.float64
        )
        uniform *= total
        return (cumulative <= uniform[..., None]).sum(-1).clamp(max=cumulative.shape[-1] - 1)

    def rsample(self, generator: torch.Generator | None = None) -> Tensor:
        raise ValueError("discrete actions have no reparameterised sample; use sample")

    def log_prob(self, action: Tensor) -> Tensor:
        """action [...] int64 → [...]."""
        if self.logits.shape[-1] <= LARGE:
            return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        chosen = [
            checkpoint(_chosen_log_prob, *part, use_reentrant=False)
            for part in zip(self._chunks(), action.flatten().split(self._rows()), strict=True)
        ]
        return torch.cat(chosen).view(action.shape)

    def entropy(self) -> Tensor:
        """The entropy [...]; an action of probability 0 contributes 0."""
        if self.logits.shape[-1] <= LARGE:
            return categorical_entropy(self.log_probs)
        parts = [checkpoint(_entropy_of, part, use_reentrant=False) for part in self._chunks()]
        return torch.cat(parts).view(self.logits.shape[:-1])

    def _rows(self) -> int:
        """The number of rows processed at a time if there are many actions."""
        return max(1, CHUNK // self.logits.shape[-1])

    def _chunks(self) -> tuple[Tensor, ...]:
        return self.logits.flatten(0, -2).split(self._rows())

    def mode(self) -> Tensor:
        """[...] int64."""
        return self.logits.argmax(-1)

    def kl(self, other: Categorical) -> Tensor:
        """Σ_a π(a) (log π(a) - log π'(a)), [...]; an action with π(a) = 0 contributes 0."""
        log_probs = self.log_probs
        difference = (log_probs - other.log_probs).masked_fill(log_probs == -torch.inf, 0.0)
        return (log_probs.exp() * difference).sum(-1)


def _chosen_log_prob(logits: Tensor, action: Tensor) -> Tensor:
    """The log-probabilities [R] of actions [R] from logits [R, A].

    Under `checkpoint` no log-softmax is kept for the gradient.
    """
    return logits.log_softmax(-1).gather(-1, action[:, None])[:, 0]


def _entropy_of(logits: Tensor) -> Tensor:
    """Entropies [R] from logits [R, A]; under `checkpoint` no intermediate of the logits' size is
    kept for the backward pass."""
    return categorical_entropy(logits.log_softmax(-1))


@dataclass(eq=False)
class Gaussian:
    """Independent normal components."""

    mean: Tensor  # [..., A]
    log_std: Tensor  # [A] or [..., A]

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., A]."""
        return self.rsample(generator).detach()

    def rsample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., A]: μ + σ ε with ε standard normal."""
        mean = self.mean
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return mean + self.log_std.exp() * noise

    def log_prob(self, action: Tensor) -> Tensor:
        """action [..., A] → [...]: the sum over components."""
        z = (action - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """[...]: Σ ½ log(2πe σ²)."""
        return gaussian_entropy(self.log_std.expand_as(self.mean))

    def mode(self) -> Tensor:
        """[..., A]: the mean."""
        return self.mean

    def kl(self, other: Gaussian) -> Tensor:
        """[...]: Σ log(σ'/σ) + (σ² + (μ - μ')²) / 2σ'² - ½."""
        ratio = torch.exp(2.0 * (self.log_std - other.log_std))
        distance = (self.mean - other.mean).square() * torch.exp(-2.0 * other.log_std)
        return (other.log_std - self.log_std + 0.5 * (ratio + distance - 1.0)).sum(-1)


class SquashedGaussian(Gaussian):
    """tanh of a normal vector u, so that actions lie in (-1, 1); mean and log_std [..., A] are u's.
    So is the KL divergence, because tanh is a bijection.

    log π(a) = log N(u; μ, σ²) - Σ log(1 - tanh² u),   a = tanh u

    Source: Haarnoja et al. 2018, arXiv:1812.05905, appendix C, eq. 26.
    """

    def rsample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., A]: tanh(μ + σ ε) with ε standard normal."""
        return super().rsample(generator).tanh()

    def transform(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The action [..., A] for standard normal noise [..., A], and its log-probability.

        Both carry gradient.
        """
        u = self.mean + self.log_std.exp() * noise
        return u.tanh(), self.log_prob_before(u)

    def log_prob_before(self, u: Tensor) -> Tensor:
        """log π(tanh u) from u: [..., A] → [...]; accurate even where tanh u rounds to ±1."""
        return super().log_prob(u) - log_slope_of_tanh(u).sum(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """action [..., A] → [...]; -inf at ±1, where u cannot be recovered. `transform` gives the
        log-probability without this loss."""
        u = action.atanh()
        inside = u.isfinite()
        log_prob = self.log_prob_before(u.where(inside, 0.0))
        return log_prob.masked_fill(~inside.all(-1), -torch.inf)

    def entropy(self) -> Tensor:
        """The entropy [...]: that of u plus E[Σ log(1 - tanh² u)], by Gauss-Hermite quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(128)
        mean, std = self.mean[..., None], self.log_std.exp()[..., None]
        slopes = log_slope_of_tanh(mean + std * torch.from_numpy(nodes).to(mean))
        expected = slopes @ torch.from_numpy(weights / weights.sum()).to(mean)
        return super().entropy() + expected.sum(-1)

    def mode(self) -> Tensor:
        """[..., A]: tanh μ, which SAC uses for evaluation. It is the median, not the mode: a wide
        density peaks near ±1."""
        return self.mean.tanh()


def sample_categorical(logits: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inverse-CDF sampling: the action whose interval of the cumulative distribution contains the
    noise.

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
    """The most likely action and its log-probability: logits [N, A] → [N], [N].

    Of actions that are equally likely it is the one with the lowest index.
    """
    action = logits.argmax(axis=-1)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    total = np.exp(shifted, dtype=np.float64).sum(axis=-1)
    log_prob = shifted[np.arange(len(action)), action] - np.log(total)
    return action, log_prob.astype(np.float32)


def sample_logits(logits: Tensor, uniform: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Draws an action for each row of logits [N, A], on any device: by `sample_categorical`, or by
    `mode_categorical` where `uniform` is None.

    On a CPU these two draw up to 4096 actions. Other logits stay where they are, and only what is
    drawn comes back. The same sums are then taken block by block, which rounds a cumulative
    probability differently by about 1e-16: noise as close as that to the border between two actions
    draws the other one.

    Args:
        logits: half precision becomes float32.
        uniform: [N] in [0, 1).

    Returns:
        action [N] int64, log_prob [N] in nats (float32).
    """
    logits = logits.detach()
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    if logits.is_cpu and logits.shape[-1] <= LARGE:
        scores = logits.numpy()
        return mode_categorical(scores) if uniform is None else sample_categorical(scores, uniform)
    noise = None if uniform is None else torch.from_numpy(uniform).to(logits.device)
    rows = (DRAWN_AT_ONCE if logits.is_cpu else CHUNK) // logits.shape[-1] or 1
    parts = [
        _draw(logits[start : start + rows], None if noise is None else noise[start : start + rows])
        for start in range(0, len(logits), rows)
    ]
    action, log_prob = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    return action, log_prob


def _draw(logits: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
    """Inverse-CDF sampling on the logits' device; the mode where `uniform` is None."""
    each = torch.arange(len(logits), device=logits.device)
    shifted = logits - logits.amax(-1, keepdim=True)
    padding = -logits.shape[-1] % BLOCK
    weight = F.pad(shifted.double().exp_(), (0, padding)).unflatten(-1, (-1, BLOCK))  # [N, b, 512]
    in_block = weight.sum(-1)  # [N, b]
    cumulative = _cumulative_sums(in_block)
    total = cumulative[:, -1]
    if uniform is None:
        action = logits.argmax(-1)
    else:
        threshold = (uniform * total)[:, None]
        block = (cumulative <= threshold).sum(-1).clamp(max=in_block.shape[-1] - 1)
        inside = weight[each, block]  # [N, 512]
        before = (cumulative[each, block] - in_block[each, block])[:, None]
        beyond = (before + _cumulative_sums(inside) > threshold) & (inside > 0)
        # rounded away: the last one that is possible
        last = (inside > 0).long().cumsum(-1).argmax(-1)
        action = block * BLOCK + torch.where(beyond.any(-1), beyond.long().argmax(-1), last)
    return action, (shifted[each, action] - total.log()).float()


def _cumulative_sums(x: Tensor) -> Tensor:
    """Cumulative sums of rows [N, M], as a product, which GPUs compute in the same order each
    time."""
    return x @ torch.ones(x.shape[-1], x.shape[-1], dtype=x.dtype, device=x.device).triu()
