"""Linear layers with noisy weights, whose noise scale is learned."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.checks import check_memory
from rlbook.fast_forms import has_fast_form
from rlbook.networks.mlp import ACTIVATIONS, initialise


class NoisyLinear(nn.Linear):
    """[..., in] → [..., out] with factorised Gaussian noise on weights and biases.

    y = (W + W_σ ⊙ f(ε_out) f(ε_in)ᵀ) x + b + b_σ ⊙ f(ε_out),   f(ε) = sign(ε) √|ε|

    W_σ is learned with W: where noise does not pay, it fades. `forward` is without noise.

    Source: Fortunato et al. 2018, arXiv:1706.10295, eq. 9 to 11, and section 3.2 for the
    initial values.

    Args:
        inputs, outputs: numbers.
        generator: draws W and b, uniformly in ±1/√in.
        scale: σ_0; each of W_σ and b_σ begins at σ_0/√in.
    """

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator, scale: float) -> None:
        super().__init__(inputs, outputs)
        initialise(self, generator, gain=None)
        self.weight_noise = nn.Parameter(torch.full((outputs, inputs), scale * inputs**-0.5))
        self.bias_noise = nn.Parameter(torch.full((outputs,), scale * inputs**-0.5))

    def reset_parameters(self) -> None:
        """Does nothing: torch would draw the weights from its global generator."""

    def noisy_weights(self, at_input: Tensor, at_output: Tensor) -> tuple[Tensor, Tensor]:
        """Weight [out, in] and bias [out] under the noise f(ε_in) [in] and f(ε_out) [out]."""
        outer = at_output[:, None] * at_input
        weight = torch.addcmul(self.weight, self.weight_noise, outer)
        return weight, torch.addcmul(self.bias, self.bias_noise, at_output)


class NoisyMLP(nn.Module):
    """[..., in] → [..., out] through noisy hidden layers with one of the `ACTIVATIONS`."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        generator: torch.Generator,
        scale: float,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.activation = activation
        weights = 2 * sum((i + 1) * o for i, o in pairwise(sizes))
        check_memory("hidden_sizes: the number of weights", weights, 16)
        layers = [NoisyLinear(i, o, generator, scale) for i, o in pairwise(sizes)]
        self.layers: Sequence[NoisyLinear] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.splits = [size for pair in pairwise(sizes) for size in pair]

    def forward(self, x: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        """Applies one draw of the noise to all of x; no noise without a generator."""
        x = x.to(self.layers[0].weight)
        weights: list[Tensor] = []
        if rng is None:
            for layer in self.layers:
                weights += [layer.weight, layer.bias]
            return apply_layers(weights, x, self.activation)
        drawn = rng.standard_normal(sum(self.splits), dtype=np.float32)
        factors = torch.from_numpy(np.sign(drawn) * np.sqrt(np.abs(drawn))).to(x).split(self.splits)
        for number, layer in enumerate(self.layers):
            weights += layer.noisy_weights(factors[2 * number], factors[2 * number + 1])
        return apply_layers(weights, x, self.activation)


@has_fast_form
def apply_layers(weights: Sequence[Tensor], x: Tensor, activation: str = "relu") -> Tensor:
    """[..., in] → [..., out] through linear layers with an activation between them.

    Args:
        weights: weight [out, in] and bias [out] of each layer in turn.
        x: what the first layer sees.
        activation: one of `ACTIVATIONS`.
    """
    phi = ACTIVATIONS[activation]
    for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        x = phi(F.linear(x, weight, bias))
    return F.linear(x, weights[-2], weights[-1])
