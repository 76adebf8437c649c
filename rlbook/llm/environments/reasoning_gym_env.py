"""reasoning-gym's generators as environments; requires the extra `[reasoning]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from rlbook.llm.environments.token_env import (
    TokenEnv,
    TokenOptions,
    TokenVectorEnv,
    describe_task,
)
from rlbook.llm.tasks.reasoning_gym import ReasoningGymTask


class ReasoningGym(TokenEnv):
    __doc__ = describe_task("""
    The task: problems of a generator of the package reasoning-gym, and its own score (`score_answer`, from 0 to 1) of what was written. The
    built-in model gets a vocabulary of the characters that occur, and no weights ship for it; a language model's folder is what
    most of these problems need. Optimal return: 1.0.

    Three more arguments:
    * `dataset`: the generator's name, such as "chain_sum". Those whose score would run what a model has written are refused.
    * `size`: how many problems are drawn, 512 of which are held out (2048).
    * `settings`: the generator's own, such as {min_terms: 2, max_terms: 3}.
    """)

    def __init__(
        self,
        *,
        dataset: str,
        size: int = 2048,
        settings: Mapping[str, Any] | None = None,
        **kwargs: Unpack[TokenOptions],
    ) -> None:
        super().__init__(ReasoningGymTask(dataset, size, settings), **kwargs)


class ReasoningGymVector(TokenVectorEnv):
    """`ReasoningGym` for N environments."""

    single = ReasoningGym
