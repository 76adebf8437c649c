"""A network of the user's own between the observations and the layers of `hidden_sizes`.

    class MyFeatures(nn.Module):
        def __init__(self, space): ...         self.features_size = 64
        def forward(self, x): ...              # [B, *space.shape] → [B, 64]

It is made from the space alone, as Stable-Baselines3's feature extractors are; one of those serves
as it is, with `features_dim` in place of `features_size`. What it sees is what the agent sees,
in the form that they expect: float32 vectors [O], or images [C, H, W] of numbers in [0, 1].

Its weights come from torch's global generator, which for that time is seeded by the run's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlbook.interaction.spaces import image_size, is_image
from rlbook.networks.model_spec import OwnNetwork

SIZES = ("features_size", "features_dim")
"""The possible names of the number of features: ours, and Stable-Baselines3's."""


def build_own_network(
    network: OwnNetwork, space: spaces.Space, generator: torch.Generator
) -> tuple[nn.Module, int]:
    """The module for observations of `space`, and its number of features F.

    Raises:
        ValueError: one sentence: it cannot be made, or is none that could be used.
    """
    name, made = f"network {network.name}", network.make
    if not callable(made) or (isinstance(made, type) and not issubclass(made, nn.Module)):
        raise ValueError(f"{name} must be a class derived from torch.nn.Module, got {made!r:.80}")
    with torch.random.fork_rng(devices=[]):
        seed = int(torch.randint(2**31, (), generator=generator))
        torch.default_generator.manual_seed(seed)
        seen = _seen_space(space, seed)
        try:
            module: Any = made(seen, **network.arguments)
        except Exception as error:
            raise ValueError(f"{name} cannot be made of {seen} ({_reason(error)})") from error
        if not isinstance(module, nn.Module):
            raise ValueError(f"{name} must make a torch.nn.Module, got {type(module).__name__}")
        size = next((getattr(module, each) for each in SIZES if hasattr(module, each)), None)
        if not isinstance(size, int | np.integer) or size < 1:
            wanted = "features_size, the number of its features"
            raise ValueError(f"{name} must have {wanted}, at least 1, got {size!r}")
        _check_features(name, module, seen, int(size))
    return module, int(size)


def _seen_space(space: spaces.Space, seed: int) -> spaces.Box:
    """The space of the module's input: for images channels first, with the channels of a stack
    concatenated."""
    if not is_image(space):
        return spaces.Box(-np.inf, np.inf, space.shape, np.float32, seed)
    height, width, channels = image_size(space)
    dtype: Any = space.dtype
    largest = 1 if dtype == np.bool_ else 255
    return spaces.Box(0, largest, (channels, height, width), dtype, seed)


@torch.no_grad()
def _check_features(name: str, module: nn.Module, space: spaces.Box, size: int) -> None:
    """Raises ValueError unless two observations are mapped to features [2, F], each of which
    depends only on the weights and its own observation."""
    x = torch.rand(2, *space.shape)
    try:
        found = module(x.clone())
    except Exception as error:
        shape = list(x.shape)
        raise ValueError(f"{name} fails on observations {shape} ({_reason(error)})") from error
    got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
    if got != [2, size]:
        raise ValueError(
            f"{name} must map observations {list(x.shape)} to features [2, {size}], got {got}"
        )
    before, drawn = [each.clone() for each in module.buffers()], torch.get_rng_state()
    changed = torch.stack([x[0], 1.0 - x[1]])
    first, second = module(x.clone()), module(changed)
    steady = torch.equal(drawn, torch.get_rng_state()) and torch.equal(first[0], second[0])
    if not steady or not all(map(torch.equal, before, module.buffers())):
        raise ValueError(
            f"{name} must give an observation the same features each time, whatever else is in "
            "the batch; dropout and batch normalisation do not"
        )


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
