"""A policy head and a value head that share all layers but the last."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlbook.networks.mlp import MLP, with_second_head


class PolicyValueNetwork(nn.Module):
    """Logits of p(·|s) and a standardised V(s), two heads on the same hidden layers."""

    def __init__(
        self, size: int, num_actions: int, hidden: tuple[int, ...], generator: torch.Generator
    ) -> None:
        super().__init__()
        body = (size, *hidden)
        self.policy = MLP((*body, num_actions), generator, activation="relu", out_gain=0.01)
        self.judge = MLP((body[-1], 1), generator, out_gain=0.01)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """[B, O] → [B, A], [B]."""
        logits, value = with_second_head(self.policy, self.judge, obs)
        return logits, value.squeeze(-1)
