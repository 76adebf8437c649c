"""The language model behind a token environment, as a policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlbook.llm.language_model import LanguageModelPolicy
from rlbook.llm.starting_models import starting_model
from rlbook.policies.build import PolicySettings


def language_model_policy(env: Any, rng: np.random.Generator, settings: PolicySettings) -> LanguageModelPolicy:
    """The causal language model that `env` names in its argument `model`, or the built-in one for its task; `rng` draws new weights."""
    asked = env.unwrapped
    model = starting_model(asked.rules.task, asked.model, rng)
    return LanguageModelPolicy(model, critic=settings.critic, temperature=settings.temperature)
