"""Which network the spaces call for: an MLP for vectors, a causal language model for texts."""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlbook.policies.mlp import MLPPolicy
from rlbook.policies.policy import Policy
from rlbook.policies.reward_network import RewardNetwork, StepReward
from rlbook.seeding import torch_generator

BUILDERS = {"language_model": "rlbook.llm.building:language_model_policy"}
"""What an environment may call its `policy_kind` → who builds it, as "module:function"."""
REWARD_BUILDERS = {"language_model": "rlbook.llm.building:completion_reward"}
"""The same, for a network that learns a reward."""


@dataclass(frozen=True)
class PolicySettings:
    """What an agent asks of its policy, beside what the environment's spaces say."""

    critic: bool = False                     # whether there is a V
    temperature: float = 1.0                 # divides the logits of a discrete policy
    hidden_sizes: tuple[int, ...] = (64, 64) # of an MLP
    shared: bool = False                     # V as a second head on an MLP's hidden layers
    orthogonal: bool = True                  # initial weights of an MLP
    normalize_observation: bool = False      # standardise the observations of an MLP


def build_policy(env: Any, rng: np.random.Generator, settings: PolicySettings) -> Policy:
    """The policy for `env`, a VectorEnv adapted to the agent; `rng` draws every new weight.

    An environment whose observations are not vectors names the policy that reads them,
    `policy_kind`.
    """
    kind = getattr(env.unwrapped, "policy_kind", None)
    if kind is not None:
        return _imported(BUILDERS[kind])(env, rng, settings)
    return MLPPolicy(
        env.single_observation_space.shape[0], env.single_action_space, torch_generator(rng),
        critic=settings.critic,
        hidden_sizes=settings.hidden_sizes, shared=settings.shared, orthogonal=settings.orthogonal,
        temperature=settings.temperature, normalize_observation=settings.normalize_observation,
    )  # fmt: skip


def build_reward_network(
    env: Any, rng: np.random.Generator, hidden_sizes: tuple[int, ...]
) -> RewardNetwork:
    """What learns a reward in `env`, as in `build_policy`; `hidden_sizes` are those of an MLP."""
    kind = getattr(env.unwrapped, "policy_kind", None)
    if kind is not None:
        return _imported(REWARD_BUILDERS[kind])(env, rng)
    size, actions = env.single_observation_space.shape[0], env.single_action_space
    return StepReward(size, actions, torch_generator(rng), hidden_sizes)


def _imported(name: str) -> Any:
    module, function = name.split(":")
    return getattr(importlib.import_module(module), function)


def refuse_idle(policy: Policy | RewardNetwork, config: Any) -> None:
    """Raises ValueError where `config` changes a hyper-parameter without effect on this network.

    Args:
        policy: names those that it has no use for in `idle`.
        config: a dataclass; a field that is at its default was not asked for.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in policy.idle and value != field.default:
            reason = policy.idle[field.name]
            raise ValueError(
                f"{field.name} has no effect here, because {reason}; got {value!r}, leave it out"
            )
