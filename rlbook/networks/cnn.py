"""A small convolutional network over images, or a network of the user's own over any observations,
followed by the layers of an MLP.

Shapes: an image is uint8 or bool, [H, W, C] or [C, H, W]; [..., H, W, C] stands for both, and for
a stack [S, H, W, C] or [S, C, H, W], whose S C planes are the channels of one image.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, cast

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlbook.data.rollout import Batch
from rlbook.functional.convolution import output_size
from rlbook.interaction.spaces import channels_first, image_size, is_image
from rlbook.networks.distributions import Distribution
from rlbook.networks.mlp import (
    MLP,
    MLPPolicy,
    action_size,
    apply_two_heads,
    initialise,
)
from rlbook.networks.model_spec import Named, OwnNetwork
from rlbook.networks.normalizer import Normalizer
from rlbook.networks.own_network import build_own_network
from rlbook.networks.policy import Policy
from rlbook.networks.reward_network import StepReward

LARGE_FILTERS = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))
"""Channels, kernel, stride and padding of each layer, for images of at least 36 x 36 pixels.

Source: Mnih et al. 2015, doi:10.1038/nature14236, Methods, "Model architecture".
"""
SMALL_FILTERS = ((16, 3, 2, 1), (32, 3, 2, 1))
"""The same for smaller images: 3 x 3 kernels, which leave a quarter of each side."""
SMALLEST = 36
"""The smallest side, in pixels, for which the large filters have an output."""
FILTERS: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "small": SMALL_FILTERS,
    "nature": LARGE_FILTERS,
}
"""The filters by their name in a `ModelSpec`; the third is "impala"."""
IMPALA_CHANNELS = (16, 32, 32)
"""Channels of the three stages of residual blocks; each halves the sides.

Source: Espeholt et al. 2018, arXiv:1802.01561, figure 3, right, without the LSTM.
"""


class FeatureNetwork(nn.Module):
    """[..., H, W, C] → [..., out]: convolutions with ReLU, followed by an MLP.

    Args:
        space: of the observations: images, or for a network of the user's own also vectors.
        sizes: units of each layer after the filters, the outputs last.
        generator: draws the weights.
        activation, orthogonal, out_gain: as of an `MLP`.
        network: "small", "nature" or "impala"; None: nature's filters where they fit, else the
            small ones. Nature's whole network is its filters and `sizes` (512, outputs) with ReLU,
            IMPALA's (256, outputs). An `OwnNetwork` takes the place of the filters.

    Raises:
        ValueError: the image is too small for such filters.
    """

    def __init__(
        self,
        space: spaces.Space,
        sizes: tuple[int, ...],
        generator: torch.Generator,
        *,
        activation: str = "tanh",
        orthogonal: bool = True,
        out_gain: float = 1.0,
        network: Named | None = None,
    ) -> None:
        super().__init__()
        self.rank, self.is_image = len(space.shape or ()), is_image(space)
        if self.is_image:
            self.channels_first = channels_first(space)
            self.largest = 1.0 if space.dtype == bool else 255.0
        if isinstance(network, OwnNetwork):
            self.network = "own"
            self.filters, self.features_size = build_own_network(network, space, generator)
        else:
            self._add_filters(space, network, generator, orthogonal)
        self.head = MLP(
            (self.features_size, *sizes),
            generator,
            activation=activation,
            orthogonal=orthogonal,
            out_gain=out_gain,
        )

    def _add_filters(
        self, space: spaces.Space, network: str | None, generator: torch.Generator, orthogonal: bool
    ) -> None:
        height, width, channels = image_size(space)
        self.network = network or ("nature" if min(height, width) >= SMALLEST else "small")
        if self.network == "nature" and min(height, width) < SMALLEST:
            raise ValueError(
                f"network nature needs images of at least {SMALLEST} x {SMALLEST} pixels, got"
                f" {height} x {width}"
            )
        if self.network == "impala":
            fans = (channels, *IMPALA_CHANNELS)
            stages = [ResidualStage(*fan, generator, orthogonal) for fan in pairwise(fans)]
            self.filters = nn.ModuleList(stages)
            shrinks = [POOLING] * len(stages)
        else:
            kinds = FILTERS[self.network]
            fans = (channels, *(kind[0] for kind in kinds))
            self.filters = nn.ModuleList(
                _filter(fan, *kind, generator, orthogonal)
                for (fan, _), kind in zip(pairwise(fans), kinds, strict=True)
            )
            shrinks = [kind[1:] for kind in kinds]
        for kernel, stride, padding in shrinks:
            height, width = (output_size(n, kernel, stride, padding) for n in (height, width))
        self.features_size = fans[-1] * height * width

    @property
    def layers(self) -> nn.ModuleList:
        """The layers after the convolutions."""
        return self.head.layers

    def forward(self, images: Tensor, end: int | None = None) -> Tensor:
        """The outputs, or what the layer numbered `end` after the convolutions reads."""
        return self.head(self.features(images), end)

    @property
    def activation(self) -> str:
        """The activation function of those layers."""
        return self.head.activation

    def features(self, images: Tensor) -> Tensor:
        """The flattened output of the convolutions: [..., H, W, C] → [..., F]."""
        x = images.reshape(-1, *images.shape[-self.rank :])  # [N, H, W, C]
        x = self._planes(x) if self.is_image else self._copy(x)
        if self.network == "impala":
            for stage in cast(nn.ModuleList, self.filters):
                x = stage(x)
            x = torch.relu(x)
        elif self.network == "own":
            x = self.filters(x)
        else:
            for layer in cast(nn.ModuleList, self.filters):
                x = torch.relu(layer(x))
        return x.reshape(*images.shape[: -self.rank], self.features_size)

    def _planes(self, x: Tensor) -> Tensor:
        """Images as numbers in [0, 1]: [N, H, W, C] → [N, C, H, W]."""
        x = x if self.channels_first else x.movedim(-1, -3)  # [N, C, H, W]
        x = x.flatten(1, -3)  # [N, S C, H, W] of a stack
        if torch.is_grad_enabled():
            # with the channels beside each other in memory, the first layer's gradient takes a
            # third of the time
            x = x.contiguous(memory_format=torch.channels_last)
        return self._copy(x).div_(self.largest)

    def _copy(self, x: Tensor) -> Tensor:
        """A copy of the weights' type and on their device; where there are none, float32."""
        weight = next(self.parameters(), None)
        return x.to(torch.float32, copy=True) if weight is None else x.to(weight, copy=True)


POOLING = (3, 2, 1)
"""Kernel, stride and padding with which a residual stage halves the sides."""


class ResidualStage(nn.Module):
    """[N, C, H, W] → [N, outputs, ⌈H/2⌉, ⌈W/2⌉]: a convolution, the maximum of each 3 x 3 pixels,
    and two residual blocks x + conv(relu(conv(relu(x))))."""

    def __init__(
        self, inputs: int, outputs: int, generator: torch.Generator, orthogonal: bool
    ) -> None:
        super().__init__()
        shape = (3, 1, 1)  # kernel, stride and padding
        self.first = _filter(inputs, outputs, *shape, generator, orthogonal)
        self.blocks = nn.ModuleList(
            _filter(outputs, outputs, *shape, generator, orthogonal) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.first(x), *POOLING)
        for one, other in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            x = x + other(torch.relu(one(torch.relu(x))))
        return x


def _filter(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int,
    padding: int,
    generator: torch.Generator,
    orthogonal: bool,
) -> nn.Conv2d:
    layer = cast(
        nn.Conv2d,
        nn.utils.skip_init(
            nn.Conv2d,
            inputs,
            outputs,
            kernel,
            stride=stride,
            padding=padding,
        ),
    )
    initialise(layer, generator, gain=2**0.5 if orthogonal else None)
    return layer


def has_features(space: spaces.Space, network: Named | None) -> bool:
    """Whether observations pass through a network before the layers of an MLP."""
    return is_image(space) or isinstance(network, OwnNetwork)


def value_filters(
    space: spaces.Space, generator: torch.Generator, network: Named | None
) -> tuple[FeatureNetwork | None, int]:
    """The filters through which a value network reads observations, and the number of their
    features; None if it reads observations directly."""
    if not has_features(space, network):
        return None, math.prod(space.shape or ())
    filters = FeatureNetwork(
        space, (), generator, activation="relu", orthogonal=False, network=network
    )
    return filters, filters.features_size


FeedForward = MLP | FeatureNetwork
"""A network of layers for vectors, possibly after filters or the user's own network."""


class FeaturePolicy(MLPPolicy):
    """π and V for images, or with a network of the user's own; otherwise as `MLPPolicy`.
    `hidden_sizes` are the layers after the convolutions, or after that network.

    With filters that are named the layers after them have ReLU, as in the papers; see
    `FeatureNetwork`. A V that is `shared` sees the policy's last hidden layer, filters and
    all.
    """

    def __init__(
        self,
        space: spaces.Space,
        action_space: spaces.Space,
        generator: torch.Generator,
        *,
        critic: bool,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: str = "tanh",
        shared: bool = False,
        orthogonal: bool = True,
        temperature: float = 1.0,
        normalize_observation: bool = False,
        network: Named | None = None,
    ) -> None:
        Policy.__init__(self)
        if is_image(space):
            scaled = "pixel values are scaled to [0, 1] anyway"
            self.idle = {**self.idle, "normalize_observation": scaled}
        elif normalize_observation:
            self.normalizer = Normalizer(math.prod(space.shape or ()))
        if isinstance(network, str):
            activation = "relu"
            papers = f"the layers after the filters of {network} have ReLU"
            self.idle = {**self.idle, "activation": papers}
        self.discrete = isinstance(action_space, spaces.Discrete)
        actions = action_size(action_space)
        layers: dict[str, Any] = {"network": network, "orthogonal": orthogonal}
        layers["activation"] = activation
        self.actor = FeatureNetwork(
            space, (*hidden_sizes, actions), generator, out_gain=0.01, **layers
        )
        self.log_std = None if self.discrete else nn.Parameter(torch.zeros(actions))
        self.critic = self.value_head = None
        if critic and shared:
            body = (self.actor.features_size, *hidden_sizes)
            self.value_head = MLP((body[-1], 1), generator, orthogonal=orthogonal)
        elif critic:
            sizes = (*hidden_sizes, 1)
            self.critic = FeatureNetwork(space, sizes, generator, **layers)
        self.temperature = temperature

    def _forward(self, batch: Batch) -> tuple[Distribution, Tensor | None]:
        if self.value_head is None:
            value = (
                None if self.critic is None else self.critic(self.normalizer(batch.obs)).squeeze(-1)
            )
            return self.distributions(batch), value
        seen = self.actor.features(self.normalizer(batch.obs))  # the filters, once for both heads
        output, value = apply_two_heads(self.actor.head, self.value_head, seen)
        return self._distribution(output, batch.action_mask), value.squeeze(-1)


class FeatureReward(StepReward):
    """r(s, a): convolutions over the image, or a network of the user's own, then an MLP over the
    features and the action."""

    def __init__(
        self,
        space: spaces.Space,
        action_space: spaces.Space,
        generator: torch.Generator,
        hidden_sizes: tuple[int, ...],
        network: Named | None = None,
    ) -> None:
        filters = FeatureNetwork(space, (), generator, network=network)
        super().__init__(filters.features_size, action_space, generator, hidden_sizes)
        self.filters, self.observation_size = filters, math.prod(space.shape or ())

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """[..., H, W, C] and [...] or [..., A] → [...]."""
        return super().forward(self.filters.features(obs), action)

    def score(self, x: Tensor) -> Tensor:
        """As a `StepReward`'s, of vectors."""
        obs, action = x[..., : self.observation_size], x[..., self.observation_size :]
        return super().score(torch.cat([self.filters.features(obs), action], -1))
