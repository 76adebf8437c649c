"""Which policy an environment calls for: the one it brings along, or an MLP."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlbook.policies.mlp import MLPPolicy
from rlbook.policies.policy import Policy
from rlbook.seeding import torch_generator


def build_policy(
    env: Any, rng: np.random.Generator, *, critic: bool, hidden_sizes: tuple[int, ...], temperature: float = 1.0,
    shared: bool = False, orthogonal: bool = True, normalize_observation: bool = False,
) -> Policy:  # fmt: skip
    """The policy for `env` (a VectorEnv fitted by `rlbook.interaction.spaces`).

    An environment may bring its own through a method `build_policy`; a token environment brings its language model.
    """
    own = getattr(env.unwrapped, "build_policy", None)
    if own is not None:
        return own(critic=critic, shared=shared, temperature=temperature, rng=rng)
    return MLPPolicy(
        env.single_observation_space.shape[0], env.single_action_space, torch_generator(rng), critic=critic, hidden_sizes=hidden_sizes,
        shared=shared, orthogonal=orthogonal, temperature=temperature, normalize_observation=normalize_observation,
    )  # fmt: skip
