"""What a policy needs besides the current observation: a memory of the episode, or the text so far.

And `predict` of an agent whose policy may be a language model: text prompts in, completions out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import NO_STATE, OF_PREDICT, Agent, Sampler
from rlbook.checks import check_arguments
from rlbook.data.rollout import Rollout
from rlbook.llm.generation.generate import write
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.networks.recurrent_memory import RecurrentMemory

if TYPE_CHECKING:
    from rlbook.envs.space_batches import Elements
    from rlbook.llm.tokenizers.tokenizer import Codec
    from rlbook.networks.policy import Policy


class PredictingAgent(Agent):
    """An agent with a policy, and a tokenizer where the environment is one of tokens."""

    policy: Policy
    codec: Codec | None
    exploration: np.random.Generator
    sampler: Sampler | None
    rollout_data: Rollout
    _log_prob: NDArray[np.float32]
    _acting: Any
    remembers: bool
    """Whether the policy is recurrent."""

    def new_memory(self) -> RecurrentMemory | None:
        return self.policy.initial_state() if self.remembers else None

    def _acting_state(self) -> Any:
        """The acting state of the policy in training: its own, or one that asks another program."""
        return self.policy.initial_state() if self.sampler is None else self.sampler.acting_state()

    def _evaluation_state(self) -> Any:
        """The acting state of the policy outside training. The memory of a recurrent policy is held
        by the caller."""
        return None if self.remembers else self.policy.initial_state()

    @check_arguments("agent.predict(observation)", OF_PREDICT)
    def predict(
        self,
        observation: Elements,
        *,
        state: Any = NO_STATE,
        episode_start: ArrayLike = False,
        explore: bool = False,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> Any:
        if self.codec is None or not is_text(observation):
            return super().predict(
                observation,
                state=state,
                episode_start=episode_start,
                explore=explore,
                action_mask=action_mask,
            )
        assert isinstance(self.policy, LanguageModelPolicy)
        seed = int(self._exploring_copy().exploration.integers(2**31)) if explore else None
        texts: Any = [observation] if isinstance(observation, str) else observation
        written = write(self.policy, self.codec, texts, seed=seed)
        answer = written[0] if isinstance(observation, str) else written
        return answer if state is NO_STATE else (answer, None)

    def _exploring_copy(self) -> Self:
        twin = super()._exploring_copy()
        twin.begin()  # a memory of its own for what it writes
        return twin


def is_text(observation: object) -> bool:
    """Whether the value is a prompt or a list of prompts."""
    texts = observation if isinstance(observation, list) else [observation]
    return len(texts) > 0 and all(isinstance(one, str) for one in texts)
