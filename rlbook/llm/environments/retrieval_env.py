"""The retrieval task as an environment: choose the worked examples that help a query most; see
`rlbook.llm.tasks.retrieval`."""

from __future__ import annotations

from typing import Any, Unpack

from rlbook.llm.environments.token_env import (
    TokenEnv,
    TokenOptions,
    TokenVectorEnv,
    describe_task,
)
from rlbook.llm.tasks.retrieval import RetrievalTask
from rlbook.llm.tasks.task import build_task


class Retrieval(TokenEnv):
    __doc__ = describe_task("""
    The task: two of 64 candidates as worked examples of a query, "3f|CR=" is answered by "<17><42>" and EOS; 512 training and 512
    held-out queries. V is 110 (each candidate is one token), a prompt has 7 tokens (BOS first), `max_new_tokens` is 4 and L is 11.

    Here `reward` and `evaluation_reward` are "judged" by default: by how much the two raise the probability that a model of the world
    answers the query correctly, 0 for anything that is not two candidates. Three more rewards judge this task alone: "coherence" (how like
    the query the two are), "diversity" (how unlike each other) and "downstream" (1 where the query is answered correctly).

    Optimal return: that of the best of all 4 096 pairs, 0.0526 in the mean over the held-out queries, and over the training queries;
    pairs at random have 0.0000. No weights ship for it.
    """)

    def __init__(self, **kwargs: Unpack[TokenOptions]) -> None:
        given: Any = {"reward": "judged", "evaluation_reward": "judged"} | kwargs
        super().__init__(build_task(RetrievalTask), **given)


class RetrievalVector(TokenVectorEnv):
    """`Retrieval` for N environments."""

    single = Retrieval
