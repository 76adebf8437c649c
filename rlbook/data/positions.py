"""AlphaZero's training data: states with their search policies and outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Positions(NamedTuple):
    """B states with the search policy π and the outcome z of each."""

    obs: Tensor  # [B, O] float32
    target: Tensor  # [B, A] float32, π
    z: Tensor  # [B] float32, discounted, in reward units

    def __len__(self) -> int:
        return len(self.z)

    @classmethod
    def empty(cls, size: int, num_actions: int) -> Positions:
        """An empty data set, B = 0."""
        return cls(torch.zeros(0, size), torch.zeros(0, num_actions), torch.zeros(0))

    def minibatch(
        self, size: int, rng: np.random.Generator, symmetries: Tensor | None
    ) -> Positions:
        """A random minibatch; given symmetries [K, A], each row is transformed by a random one."""
        rows = torch.from_numpy(rng.integers(len(self), size=size))
        drawn = Positions(*(field[rows] for field in self))
        if symmetries is None:
            return drawn
        return drawn.transform(
            symmetries, torch.from_numpy(rng.integers(len(symmetries), size=size))
        )

    def append_episode(
        self,
        obs: Sequence[NDArray[np.float32]],
        target: Sequence[NDArray[np.float64]],
        z: Sequence[float],
        most: int,
    ) -> Positions:
        """Appends an episode's states; beyond `most` rows the oldest are dropped."""
        new = (np.stack(obs), np.stack(target), np.array(z))
        joined = [
            torch.cat([kept, torch.from_numpy(rows).float()])[-most:]
            for kept, rows in zip(self, new, strict=True)
        ]
        return Positions(*joined)

    def transform(self, symmetries: Tensor, way: Tensor) -> Positions:
        """The states and their π, transformed by symmetries of the environment.

        Args:
            symmetries: int64 [K, A]; by each of them, which cell comes to stand where. An
                observation has O / A numbers a cell.
            way: int64 [B]; which symmetry each state is seen under.
        """
        cells = symmetries[way]  # [B, A]
        shown = self.obs.unflatten(1, (symmetries.shape[1], -1))  # [B, A, O / A]
        obs = torch.take_along_dim(shown, cells[:, :, None], dim=1).flatten(1)
        return Positions(obs, torch.take_along_dim(self.target, cells, dim=1), self.z)
