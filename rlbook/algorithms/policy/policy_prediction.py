"""`predict` of an agent whose policy may be a language model: text prompts in, completions out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from rlbook.agent import Agent
from rlbook.llm.generation.generate import write
from rlbook.llm.models.language_model import LanguageModelPolicy

if TYPE_CHECKING:
    from rlbook.envs.space_batches import Elements
    from rlbook.llm.tokenizers.tokenizer import Codec
    from rlbook.networks.policy import Policy


class PredictingAgent(Agent):
    """An agent with a policy, and a tokenizer where the environment is one of tokens."""

    policy: Policy
    codec: Codec | None
    exploration: np.random.Generator

    def predict(
        self,
        observation: Elements,
        *,
        explore: bool = False,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> Any:
        if self.codec is None or not is_text(observation):
            return super().predict(observation, explore=explore, action_mask=action_mask)
        assert isinstance(self.policy, LanguageModelPolicy)
        seed = int(self._exploring_twin().exploration.integers(2**31)) if explore else None
        texts: Any = [observation] if isinstance(observation, str) else observation
        written = write(self.policy, self.codec, texts, seed=seed)
        return written[0] if isinstance(observation, str) else written

    def _exploring_twin(self) -> Self:
        twin = super()._exploring_twin()
        twin.begin()  # a memory of its own for what it writes
        return twin


def is_text(observation: object) -> bool:
    """Whether it is a prompt, or a list of them."""
    texts = observation if isinstance(observation, list) else [observation]
    return len(texts) > 0 and all(isinstance(one, str) for one in texts)
