"""Networks of one's own, as users write them, for the tests."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn


class Features(nn.Module):
    """A layer and tanh of vectors or images."""

    def __init__(self, space: Any, width: int = 6) -> None:
        super().__init__()
        self.features_size = width
        self.layer = nn.Linear(int(torch.tensor(space.shape).prod()), width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.flatten(1)))


class SmallFilters(nn.ModuleList):
    """The built-in small filters, under the built-in names of their weights."""

    def __init__(self, space: Any) -> None:
        channels, height, width = space.shape
        sizes = (channels, 16, 32)
        filters = (nn.Conv2d(*pair, 3, 2, 1) for pair in pairwise(sizes))
        super().__init__(filters)
        self.features_size = 32 * -(-height // 4) * -(-width // 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = torch.relu(layer(x))
        return x.flatten(1)


class Identity(nn.Module):
    """Observations as they are: no weights at all."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        (self.features_size,) = space.shape

    def forward(self, x: Tensor) -> Tensor:
        return x


class Extractor(nn.Module):
    """Has the form of Stable-Baselines3's `BaseFeaturesExtractor`, half of it frozen."""

    def __init__(self, observation_space: Any, features_dim: int = 5) -> None:
        super().__init__()
        assert observation_space.sample().shape == observation_space.shape
        self._observation_space, self._features_dim = observation_space, features_dim
        self.frozen = nn.Linear(observation_space.shape[0], 4).requires_grad_(False)
        self.linear = nn.Linear(4, features_dim)

    @property
    def features_dim(self) -> int:
        return self._features_dim

    def forward(self, observations: Tensor) -> Tensor:
        return torch.relu(self.linear(self.frozen(observations)))


class NoSize(nn.Module):
    def __init__(self, space: Any) -> None:
        super().__init__()


class WrongShape(Features):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, :-1]


class Fails(Features):
    def forward(self, x: Tensor) -> Tensor:
        raise IndexError("no such axis")


class Dropping(Features):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.5)


class BatchNormalised(Features):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.norm = nn.BatchNorm1d(self.features_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(super().forward(x))


class CountsItsCalls(Features):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


class NoModule:
    def __init__(self, space: Any) -> None: ...


def makes_a_number(space: Any) -> int:
    return 3
