"""The plans of an action space: the distribution a search starts from, and a plan's first action.

Shapes: N environments, H steps of a plan, A action components (or discrete actions, one-hot).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, Space
from numpy.typing import NDArray
from torch import Tensor

from rlbook.algorithms.model_based.cross_entropy import CategoricalPlans, GaussianPlans, Plans
from rlbook.interaction.action_masks import nth_allowed
from rlbook.networks.policy import as_array


class PlanSpace:
    """Plans of H actions.

    Args:
        space: discrete actions, or a bounded box of them.
        horizon: H.
        device: where plans are drawn.

    Raises:
        ValueError: a box without bounds.
    """

    def __init__(self, space: Space, horizon: int, device: str) -> None:
        self.horizon, self.device = horizon, device
        self.discrete = isinstance(space, Discrete)
        if isinstance(space, Discrete):
            self.action_size = int(space.n)
            return
        assert isinstance(space, Box)
        if not space.is_bounded():
            raise ValueError(f"plans are drawn from a bounded box of actions, got {space}")
        self.low, self.high = (
            torch.from_numpy(bound).to(device) for bound in (space.low, space.high)
        )
        self.action_size = math.prod(space.shape)

    def center(self, count: int) -> Tensor:
        """The initial centre of the plans: [N, H, A]."""
        shape = (count, self.horizon, self.action_size)
        if self.discrete:
            return torch.full(shape, 1.0 / self.action_size, device=self.device)
        return ((self.low + self.high) / 2).expand(shape).clone()

    def plans_around(self, center: Tensor, action_mask: NDArray[np.bool_] | None = None) -> Plans:
        """The distribution of plans that a search around `center` [N, H, A] begins with.

        A mask [N, A] marks what is allowed in the first step; later masks are unknown.
        """
        if not self.discrete:
            std = ((self.high - self.low) / 2).expand(center.shape)
            return GaussianPlans(center, std, self.low, self.high)
        allowed = None
        if action_mask is not None:
            allowed = torch.ones(center.shape, dtype=torch.bool, device=self.device)
            allowed[:, 0] = torch.from_numpy(action_mask)
        return CategoricalPlans((center + self.center(len(center))) / 2, allowed=allowed)

    def next_centre(self, plans: Plans) -> Tensor:
        """The centre of the next search: the plans found, shifted by one step: [N, H, A]."""
        found = plans.probability if isinstance(plans, CategoricalPlans) else plans.mode()
        return torch.cat([found[:, 1:], self.center(len(found))[:, :1]], dim=1)

    def first_action(self, plans: Plans) -> NDArray[np.int64] | NDArray[np.float32]:
        """The first action of the most likely plans: [N] or [N, A]."""
        first = plans.mode()[:, 0]
        return as_array(first.argmax(-1) if self.discrete else first)

    def random_action(
        self,
        count: int,
        rng: np.random.Generator,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64] | NDArray[np.float32]:
        """Uniformly random actions; of discrete actions those that a mask [N, A] allows."""
        if self.discrete:
            most = self.action_size if action_mask is None else action_mask.sum(axis=1)
            return nth_allowed(action_mask, rng.integers(most, size=count))
        low, high = as_array(self.low), as_array(self.high)
        return low + (high - low) * rng.random((count, self.action_size), np.float32)
