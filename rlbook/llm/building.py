"""The language model behind a token environment, as a policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlbook.llm.language_model import LanguageModelPolicy
from rlbook.llm.models import folder_model
from rlbook.llm.warmup import warm_model
from rlbook.policies.build import PolicySettings


def language_model_policy(env: Any, rng: np.random.Generator, settings: PolicySettings) -> LanguageModelPolicy:
    """The causal language model that `env` names: the folder of its argument `model`, or the warmed-up built-in one for its task."""
    asked = env.unwrapped
    model = warm_model(asked.rules.task, asked.model_seed) if asked.model is None else folder_model(asked.model)
    return LanguageModelPolicy(model, critic=settings.critic, temperature=settings.temperature)
