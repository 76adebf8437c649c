"""Ensembles of action-value critics."""

from __future__ import annotations

from typing import cast

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlbook.networks.cnn import FeatureNetwork, value_filters
from rlbook.networks.mlp import MLP, action_size, apply_networks
from rlbook.networks.model_spec import Named


class Critics(nn.Module):
    """K estimates of Q(s, a) in reward units, which differ only in their initial weights.

    Args:
        observation_space: a Box of vectors [O], or of images, which pass through filters first.
        action_space: Discrete, or a Box [A], whose actions the networks see beside the state.
        generator: draws the weights.
        count: K.
        hidden_sizes: units in each hidden layer of a network.
        activation: of these layers, one of `ACTIVATIONS`.
        network: the filters by name, or a network of one's own; see `rlbook.networks.cnn`.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        generator: torch.Generator,
        *,
        count: int,
        hidden_sizes: tuple[int, ...],
        activation: str = "relu",
        network: Named | None = None,
    ) -> None:
        super().__init__()
        found = [value_filters(observation_space, generator, network) for _ in range(count)]
        filters, size = [each for each, _ in found if each is not None], found[0][1]
        self.filters = nn.ModuleList(filters) if filters else None
        actions = action_size(action_space)
        self.discrete = isinstance(action_space, spaces.Discrete)
        inputs, outputs = (size, actions) if self.discrete else (size + actions, 1)
        sizes = (inputs, *hidden_sizes, outputs)
        self.networks = nn.ModuleList(
            MLP(sizes, generator, activation=activation, orthogonal=False) for _ in range(count)
        )

    def forward(self, obs: Tensor, action: Tensor | None = None) -> Tensor:
        """Q(s, a) of given actions, int64 [B] or box [B, A]: [B, O] → [K, B]; without them Q(s, ·)
        of all discrete ones: [K, B, A]."""
        networks = [cast(MLP, network) for network in self.networks]
        box = [] if self.discrete or action is None else [action]
        if self.filters is None:
            q = torch.stack(apply_networks(networks, torch.cat([obs, *box], -1) if box else obs))
        else:
            seen = [cast(FeatureNetwork, filters).features(obs) for filters in self.filters]
            inputs = [torch.cat([features, *box], -1) for features in seen] if box else seen
            q = torch.stack([each(x) for each, x in zip(networks, inputs, strict=True)])
        if self.discrete and action is not None:
            q = q.gather(-1, action.to(q.device).expand(len(q), -1)[..., None])
        return q if action is None else q.squeeze(-1)
