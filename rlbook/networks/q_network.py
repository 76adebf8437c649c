"""A Q-network with dueling streams, noisy layers and distributional outputs, each optional.

Shapes: [..., O] is a vector or an image; A actions, K atoms (1 where Q itself is learned).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlbook.functional.rainbow import categorical_mean, dueling_action_values
from rlbook.networks.cnn import value_filters
from rlbook.networks.mlp import ACTIVATIONS, MLP
from rlbook.networks.model_spec import Named
from rlbook.networks.noisy_linear import NoisyMLP
from rlbook.networks.policy import to_full_precision
from rlbook.networks.values import ActionValue


@dataclass(frozen=True)
class QSettings:
    """Extensions of a Q-network beyond an MLP with one output per action."""

    dueling: bool = False  # separate streams for V(s) and the advantages
    noise_scale: float | None = None  # σ_0 of noisy layers; None: no noise
    # smallest, largest, number of atoms; None: no atoms
    support: tuple[float, float, int] | None = None
    recurrent: str | None = None  # "gru" or "lstm" for a `RecurrentQ`; None: no memory
    post_hidden_sizes: tuple[int, ...] = ()  # units of its hidden layers after that core


class QNetwork(nn.Module):
    """Q(s, ·), optionally distributional (as the mean over atoms) and optionally noisy.

    Images pass through filters, which have no noise. Of the hidden layers after them a dueling
    network's streams have the last one each for itself and share the others.

    Args:
        space: of the observations.
        num_actions: A.
        hidden_sizes: units in each hidden layer.
        generator: draws the weights.
        settings: which of the parts.
        network: the filters by name, or a network of one's own; see `rlbook.networks.cnn`.
        activation: of the hidden layers, one of `ACTIVATIONS`.
    """

    support: Tensor

    def __init__(
        self,
        space: spaces.Space,
        num_actions: int,
        hidden_sizes: tuple[int, ...],
        generator: torch.Generator,
        settings: QSettings,
        network: Named | None = None,
        *,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.settings, self.num_actions, self.activation = settings, num_actions, activation
        low, high, self.num_atoms = settings.support or (0.0, 0.0, 1)
        atoms = torch.linspace(low, high, self.num_atoms)
        self.register_buffer("support", atoms, persistent=False)
        self.filters, inputs = value_filters(space, generator, network)
        shared = hidden_sizes[:-1] if settings.dueling else ()
        last = (shared[-1] if shared else inputs, *hidden_sizes[len(shared) :])
        self.shared = self._layers((inputs, *shared), generator) if shared else None
        self.value = self._layers((*last, self.num_atoms), generator) if settings.dueling else None
        self.advantage = self._layers((*last, num_actions * self.num_atoms), generator)

    def _layers(self, sizes: tuple[int, ...], generator: torch.Generator) -> MLP | NoisyMLP:
        if self.settings.noise_scale is not None:
            return NoisyMLP(sizes, generator, self.settings.noise_scale, self.activation)
        return MLP(sizes, generator, activation=self.activation, orthogonal=False)

    def forward(self, x: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        """Q(s, ·): [..., O] → [..., A], in reward units; with a generator, under freshly drawn
        noise."""
        if self.settings.support is None:
            return self._outputs(x, rng).squeeze(-1)
        return categorical_mean(self.log_prob(x, rng), self.support)

    def log_prob(self, x: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        """Log-probabilities of each action's atoms: [..., O] → [..., A, K]."""
        return torch.log_softmax(to_full_precision(self._outputs(x, rng)), -1)

    def _outputs(self, x: Tensor, rng: np.random.Generator | None) -> Tensor:
        x = x if self.filters is None else self.filters.features(x)
        if self.shared is not None:
            x = ACTIVATIONS[self.activation](_apply(self.shared, x, rng))
        advantage = _apply(self.advantage, x, rng)
        advantage = advantage.unflatten(-1, (self.num_actions, self.num_atoms))
        if self.value is None:
            return advantage
        return dueling_action_values(_apply(self.value, x, rng).unsqueeze(-2), advantage)

    def heads(self) -> list[nn.Parameter]:
        """The parameters of the output layers."""
        streams = (stream for stream in (self.value, self.advantage) if stream is not None)
        return [parameter for stream in streams for parameter in stream.layers[-1].parameters()]


def _apply(layers: MLP | NoisyMLP, x: Tensor, rng: np.random.Generator | None) -> Tensor:
    return layers(x) if isinstance(layers, MLP) else layers(x, rng)


def predict(network: ActionValue, obs: Tensor, rng: np.random.Generator | None = None) -> Tensor:
    """Q(s, ·) [B, A], or the log-probabilities of the atoms [B, A, K] of a distributional network.

    With a generator, a noisy network is under fresh noise.
    """
    if not isinstance(network, QNetwork):
        return network(obs)
    return (network if network.settings.support is None else network.log_prob)(obs, rng)
