"""The language model behind a token environment, as a policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlbook.llm.completion_reward import CompletionReward
from rlbook.llm.language_model import LanguageModelPolicy
from rlbook.llm.starting_models import starting_model
from rlbook.policies.build import PolicySettings


def language_model_policy(env: Any, rng: np.random.Generator, settings: PolicySettings) -> LanguageModelPolicy:
    """The causal language model that `env` names in its argument `model`, or the built-in one for its task; `rng` draws new weights."""
    asked = env.unwrapped
    model = starting_model(asked.rules.task, asked.model, rng)
    return LanguageModelPolicy(model, critic=settings.critic, temperature=settings.temperature)


def completion_reward(env: Any, rng: np.random.Generator) -> CompletionReward:
    """A reward network on the trunk of the same model."""
    asked = env.unwrapped
    return CompletionReward(starting_model(asked.rules.task, asked.model, rng))
