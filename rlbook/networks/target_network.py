"""Target networks, which follow a network that learns by Polyak averaging."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def polyak_update(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Moves a target network towards the online network, in place: θ⁻ ← θ⁻ + τ (θ - θ⁻).

    Args:
        target, online: modules of the same parameters.
        tau: τ, in [0, 1]; 1 copies.

    Source: Lillicrap et al. 2016 (DDPG), arXiv:1509.02971, algorithm 1, after Polyak's averages.
    """
    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
        slow.lerp_(fast, tau)
