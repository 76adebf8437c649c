"""Builds the language model of a token environment, as a policy or as a reward network."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from torch import nn

from rlbook.llm.environments.token_rows import BUILT_IN, NEW, TokenRules, check_room
from rlbook.llm.models.adapters import add_adapter
from rlbook.llm.models.compute import set_compute
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.model_folder import has_weights
from rlbook.llm.models.quantization import four_bit_model
from rlbook.llm.models.reward_head import CompletionReward
from rlbook.llm.models.starting import starting_model
from rlbook.networks.build import PolicySettings, cast_parameters, choose_trained
from rlbook.networks.model_spec import FOUR_BIT, ModelSpec

POSITIONS = ("wpe", "embed_positions", "position_embeddings")
"""What transformers' models call their table of positions."""
SETTING = "--model.config."
"""The prefix of the option for a setting of a model's config."""


def language_model_policy(
    env: VectorEnv, rng: np.random.Generator, settings: PolicySettings, spec: ModelSpec
) -> LanguageModelPolicy:
    """A policy on the model of `language_model`. Its critic is a copy of the trunk with a linear
    head, trainable where the model is."""
    policy = LanguageModelPolicy(
        language_model(env, rng, spec), critic=settings.critic, temperature=settings.temperature
    )
    asked: Any = env.unwrapped
    policy.rebuilt = spec.trained_parts != "all"
    policy.named = asked.model not in (None, NEW) and has_weights(asked.model)
    return policy


def table_of_positions(model: Any) -> tuple[int, str] | None:
    """The size of a model's table of positions, and the config setting that determines it; None if
    it has no table, such as a model with rotary positions.

    Args:
        model: a `transformers` model, or peft's wrapper of one.
    """
    rows = [
        module.num_embeddings
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and name.rpartition(".")[2] in POSITIONS
    ]
    if not rows:
        return None
    size = "max_position_embeddings"
    return min(rows), getattr(model.config, "attribute_map", {}).get(size, size)


def check_positions(model: Any, rules: TokenRules, *, is_new: bool = False) -> None:
    """Checks that a model with a table of positions, such as GPT-2, has one for every token that an
    environment's texts may have.

    Args:
        model: as in `table_of_positions`.
        rules: the environment's.
        is_new: whether the user has chosen its size, and may choose another.

    Raises:
        ValueError: it has fewer; the sentence names the options.
    """
    if (table := table_of_positions(model)) is not None:
        limit, option = table
        needed, new_tokens = rules.context_length, rules.max_new_tokens
        ways = f"; or make the model with {SETTING}{option} {needed}" if is_new else ""
        prompt, at = needed - new_tokens, rules.longest_at
        check_room(BUILT_IN, limit, prompt, new_tokens, at=at, ways=ways)


def completion_reward(
    env: VectorEnv, rng: np.random.Generator, spec: ModelSpec
) -> CompletionReward:
    """A reward network on the trunk of the same model."""
    network = CompletionReward(language_model(env, rng, spec))
    network.rebuilt = spec.trained_parts != "all"
    return network


def language_model(env: VectorEnv, rng: np.random.Generator, spec: ModelSpec) -> Any:
    """The causal language model that a spec describes, for a token environment: a `transformers`
    model, or peft's wrapper of one.

    The environment's argument `model` is no more than a name: its tokenizer makes the ids that the
    environment shows, and the weights of the same folder are loaded here. Without a name, the
    built-in model for its task.

    Raises:
        ValueError: the folder, the sizes or the adapter cannot be used, or another model's ids are
            shown.
    """
    asked: Any = env.unwrapped
    if "network" in spec.explicit_fields():
        raise ValueError(
            "the model's network applies to vectors and images, but the observations here are text"
        )
    if spec.folder is not None and spec.folder != str(asked.model):
        raise ValueError(
            f"the environment uses the token ids of {asked.model or 'the built-in model'}, but "
            f"the model is {spec.folder!r}; give the environment the same folder"
        )
    if spec.config is not None and asked.model is not None:
        raise ValueError(
            f"a model needs a folder or a config, but both were given: {asked.model!r} and"
            f" {dict(spec.config)}"
        )
    if spec.dtype == FOUR_BIT:
        if asked.model in (None, NEW):
            raise ValueError("dtype 4bit needs the model of a folder, but none was named")
        model = four_bit_model(asked.model)
    else:
        rules: TokenRules = asked.rules
        model = starting_model(
            rules.task,
            asked.model,
            rng,
            spec.config,
            codec=rules.codec,
            context=rules.context_length,
        )
        cast_parameters(model, spec.dtype)
        if spec.config is not None:
            check_positions(model, asked.rules, is_new=True)
            if (table := table_of_positions(model)) is not None:
                asked.limit_context(table[0], SETTING + table[1])
    if spec.adapter is not None:
        model = add_adapter(model, spec.adapter, rng)
    choose_trained(model, spec.trained_parts, model.get_output_embeddings().parameters())
    if spec.compute == "bfloat16" or spec.gradient_checkpointing:
        rounded = "bfloat16" if spec.compute == "bfloat16" else None
        set_compute(model, rounded, spec.gradient_checkpointing)
    return model
