"""A policy head and a value head that share all layers but the last."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlbook.networks.cnn import FeatureNetwork
from rlbook.networks.mlp import MLP, apply_two_heads
from rlbook.networks.model_spec import OwnNetwork


class PolicyValueNetwork(nn.Module):
    """Logits of p(·|s) and a standardised V(s), from two heads on the same hidden layers, which
    follow the user's own network if there is one."""

    def __init__(
        self,
        size: int,
        num_actions: int,
        hidden: tuple[int, ...],
        generator: torch.Generator,
        own: OwnNetwork | None = None,
    ) -> None:
        super().__init__()
        self.filters = None
        if own is not None:
            space = spaces.Box(-np.inf, np.inf, (size,))
            self.filters = FeatureNetwork(space, (), generator, network=own)
            size = self.filters.features_size
        body = (size, *hidden)
        self.policy = MLP((*body, num_actions), generator, activation="relu", out_gain=0.01)
        self.judge = MLP((body[-1], 1), generator, out_gain=0.01)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """[B, O] → [B, A], [B]."""
        obs = obs if self.filters is None else self.filters.features(obs)
        logits, value = apply_two_heads(self.policy, self.judge, obs)
        return logits, value.squeeze(-1)
