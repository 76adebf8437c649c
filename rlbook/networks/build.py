"""Builds the network for the given spaces: an MLP for vectors, a CNN for images, a language model
for texts.

A `ModelSpec` says the rest: the weights it starts from, what is trained, in which numbers, and a
network of the user's own. Actor,
critic, reference, Q-network and reward are all built here; no environment builds a network.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from torch import nn

from rlbook.checks import nearest_name
from rlbook.interaction.spaces import is_image
from rlbook.networks.cnn import (
    FeatureNetwork,
    FeaturePolicy,
    FeatureReward,
    FeedForward,
    has_features,
)
from rlbook.networks.mlp import MLP, MLPPolicy
from rlbook.networks.model_spec import ModelSpec
from rlbook.networks.policy import Policy
from rlbook.networks.q_network import QNetwork, QSettings
from rlbook.networks.recurrent import RecurrentPolicy
from rlbook.networks.recurrent_q import RecurrentQ
from rlbook.networks.reward_network import RewardNetwork, StepReward
from rlbook.seeding import torch_generator

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BUILDERS = {"language_model": "rlbook.llm.models.build:language_model_policy"}
"""An environment's `policy_kind` → its builder, as "module:function"."""
REWARD_BUILDERS = {"language_model": "rlbook.llm.models.build:completion_reward"}
"""The same, for a reward network."""


@dataclass(frozen=True)
class PolicySettings:
    """The agent's requirements on its policy, besides those of the environment's spaces."""

    critic: bool = False  # whether the policy has a critic V
    temperature: float = 1.0  # divisor of a discrete policy's logits
    hidden_sizes: tuple[int, ...] = (64, 64)  # of an MLP
    activation: str = "tanh"  # of its hidden layers
    shared: bool = False  # V as a second head on an MLP's hidden layers
    orthogonal: bool = True  # initial weights of an MLP
    normalize_observation: bool = False  # standardise the observations of an MLP
    recurrent: str | None = None  # "gru" or "lstm": a core after the hidden layers
    post_hidden_sizes: tuple[int, ...] = ()  # units of the hidden layers after that core
    sequence_length: int | None = None  # steps of a sequence that a core is trained on


def build_policy(
    env: VectorEnv,
    rng: np.random.Generator,
    settings: PolicySettings,
    model: object = None,
) -> Policy:
    """The policy for `env`, a VectorEnv adapted to the agent.

    An environment whose observations are neither vectors nor images names the policy that reads
    them, `policy_kind`.

    Args:
        env: its spaces are read, and it is not stepped.
        rng: draws every new weight.
        settings: what the agent asks for.
        model: what `ModelSpec.from_value` reads.

    Raises:
        ValueError: the model asks for what this kind of network does not have.
    """
    spec = ModelSpec.from_value(model) or ModelSpec()
    kind = getattr(env.unwrapped, "policy_kind", None)
    if kind is not None:
        return _import_function(BUILDERS[kind])(env, rng, settings, spec)
    refuse_language(spec)
    generator, layers = torch_generator(rng), dataclasses.asdict(settings)
    recurrent, length = layers.pop("recurrent"), layers.pop("sequence_length")
    later = layers.pop("post_hidden_sizes")
    layers["hidden_sizes"] += later
    observations, actions = env.single_observation_space, env.single_action_space
    check_network(spec, observations)
    policy = make_policy(observations, actions, generator, spec, **layers)
    if recurrent is not None:
        policy = RecurrentPolicy(policy, recurrent, generator, length, after=len(later))
    cast_parameters(policy, spec.dtype)
    choose_trained(policy, spec.trained_parts, policy.heads())
    return policy


def make_policy(
    space: spaces.Space,
    action_space: spaces.Space,
    generator: torch.Generator,
    spec: ModelSpec,
    **layers: Any,
) -> MLPPolicy:
    """A policy of layers, after the filters for images or the user's own network if there are any;
    `layers` are the settings of an `MLPPolicy`."""
    if has_features(space, spec.network):
        return FeaturePolicy(space, action_space, generator, network=spec.network, **layers)
    return MLPPolicy(_size(space), action_space, generator, **layers)


def build_reward_network(
    env: VectorEnv,
    rng: np.random.Generator,
    hidden_sizes: tuple[int, ...],
    model: object = None,
) -> RewardNetwork:
    """Builds the reward network for `env`, as `build_policy` builds policies; `hidden_sizes` apply
    to an MLP."""
    spec = ModelSpec.from_value(model) or ModelSpec()
    kind = getattr(env.unwrapped, "policy_kind", None)
    if kind is not None:
        return _import_function(REWARD_BUILDERS[kind])(env, rng, spec)
    refuse_language(spec)
    generator = torch_generator(rng)
    observations, actions = env.single_observation_space, env.single_action_space
    check_network(spec, observations)
    if has_features(observations, spec.network):
        network = FeatureReward(observations, actions, generator, hidden_sizes, spec.network)
    else:
        network = StepReward(_size(observations), actions, generator, hidden_sizes)
    cast_parameters(network, spec.dtype)
    choose_trained(network, spec.trained_parts, network.network.layers[-1].parameters())
    return network


def plain_spec(model: object, space: spaces.Space) -> ModelSpec:
    """Parses a model argument that may set only `network`, for the networks of `space`.

    Raises:
        ValueError: it says more, or names filters and the observations are not images.
    """
    spec = ModelSpec.from_value(model) or ModelSpec()
    for name in spec.explicit_fields():
        if name not in ("network", "network_kwargs"):
            raise ValueError(f"the model's {name} has no effect on this agent's networks")
    check_network(spec, space)
    return spec


def build_layers(
    space: spaces.Space,
    layers: tuple[int, ...],
    generator: torch.Generator,
    spec: ModelSpec,
    activation: str = "relu",
) -> FeedForward:
    """A network without orthogonal weights: [B, ...] → [B, out].

    Args:
        space: of the observations.
        layers: units of each layer, the outputs last.
        generator: draws the weights.
        spec: names the filters of images, or a network of the user's own.
        activation: of the hidden layers.
    """
    settings: dict[str, Any] = {"activation": activation, "orthogonal": False}
    if has_features(space, spec.network):
        return FeatureNetwork(space, layers, generator, network=spec.network, **settings)
    return MLP((_size(space), *layers), generator, **settings)


def build_action_value(
    env: VectorEnv,
    rng: np.random.Generator,
    hidden_sizes: tuple[int, ...],
    model: object = None,
    settings: QSettings | None = None,
    activation: str = "relu",
) -> FeedForward | QNetwork | RecurrentQ:
    """Builds Q(s, ·) for `env`, an `ActionValue` with `activation` between the layers; the network
    follows from the spaces as in `build_policy`.

    `settings`: the parts of a `QNetwork`, where there are to be any; or the memory of a
    `RecurrentQ`, which reads sequences.
    """
    spec = ModelSpec.from_value(model) or ModelSpec()
    refuse_language(spec)
    generator, observations = torch_generator(rng), env.single_observation_space
    check_network(spec, observations)
    assert isinstance(env.single_action_space, spaces.Discrete)
    num_actions = int(env.single_action_space.n)
    if settings is None or settings == QSettings():
        layers = (*hidden_sizes, num_actions)
        network = build_layers(observations, layers, generator, spec, activation)
    else:
        network = (QNetwork if settings.recurrent is None else RecurrentQ)(
            observations,
            num_actions,
            hidden_sizes,
            generator,
            settings,
            spec.network,
            activation=activation,
        )
    cast_parameters(network, spec.dtype)
    made_of_parts = isinstance(network, QNetwork | RecurrentQ)
    last = network.heads() if made_of_parts else network.layers[-1].parameters()
    choose_trained(network, spec.trained_parts, last)
    return network


def _size(space: spaces.Space) -> int:
    """The number of elements of an observation."""
    return math.prod(space.shape or ())


def check_network(spec: ModelSpec, space: spaces.Space) -> None:
    """Raises ValueError where filters are named for observations without images, or if a network of
    the user's own is only named."""
    if spec.names_own_network:
        raise ValueError(f"the model's network {spec.network} is not imported; give its class")
    if isinstance(spec.network, str) and not is_image(space):
        raise ValueError(
            f"the model's network {spec.network} reads images, but the observations here are not "
            "images; use hidden_sizes for the layers of an MLP"
        )


def _import_function(name: str) -> Callable[..., Any]:
    module, function = name.split(":")
    return getattr(importlib.import_module(module), function)


def refuse_language(spec: ModelSpec) -> None:
    """Raises ValueError if a spec sets options of a language model but the network is not one."""
    for name in ("folder", "config", "adapter", "compute", "gradient_checkpointing"):
        if getattr(spec, name):
            raise ValueError(
                f"the model's {name} applies to language models, but the observations here are"
                " not text; use hidden_sizes for the layers of an MLP"
            )


def cast_parameters(network: nn.Module, dtype: str) -> None:
    """Casts the parameters to this dtype; buffers, such as a table of rotary angles, are kept."""
    for parameter in network.parameters():
        parameter.data = parameter.data.to(getattr(torch, dtype))


def choose_trained(
    network: nn.Module, trained: str | tuple[str, ...], head: Iterable[nn.Parameter]
) -> None:
    """Sets `requires_grad` for what a `ModelSpec` lists as trainable, and clears it elsewhere.

    Args:
        network: changed in place. Of one with an adapter, "adapter" leaves all as peft set it.
        trained: "all", "adapter", "head", or patterns of parameters' names. "all" leaves out what a
            network of the user's own has frozen itself.
        head: the parameters that "head" means.

    Raises:
        ValueError: a pattern that matches no parameter.
    """
    names = dict(network.named_parameters())
    if trained == "adapter":
        return
    chosen = {name for name, parameter in names.items() if parameter.requires_grad}
    if trained == "head":
        last = set(map(id, head))
        chosen = {name for name, parameter in names.items() if id(parameter) in last}
    elif isinstance(trained, tuple):
        _check_patterns(list(names), trained)
        chosen = {name for name in names if any(fnmatchcase(name, part) for part in trained)}
    for name, parameter in names.items():
        parameter.requires_grad_(name in chosen)


def _check_patterns(names: list[str], patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            match = nearest_name(pattern, names) or names[0]
            raise ValueError(
                f"trainable names {pattern!r}, but no parameter matches (one is {match!r})"
            )


def refuse_idle(policy: Policy | RewardNetwork, config: DataclassInstance) -> None:
    """Raises ValueError if `config` changes a hyper-parameter that has no effect on this network.

    Args:
        policy: names those that it has no use for in `idle`.
        config: a dataclass; a field that is at its default was not asked for.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in policy.idle and value != field.default:
            reason = policy.idle[field.name]
            raise ValueError(
                f"{field.name} has no effect here, because {reason}; got {value!r}; leave it out"
            )
