"""What an optimiser trains, as one vector, whichever form of it runs: the book's has a list of
parameters, the fast one a flat tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def flat_weights(optimizer: Any) -> Tensor:
    """A copy of all parameters, end to end [P]."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in optimizer.parameters])


def flat_gradient(optimizer: Any) -> Tensor:
    """A copy of the gradient of the last step [P], clipped if that step clipped it."""
    return torch.cat([parameter.grad.reshape(-1) for parameter in optimizer.parameters])
