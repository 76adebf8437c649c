"""Additional rewards for the retrieval task (`Retrieval-v0`): functions of one finished completion,
0 if it is not a valid choice."""

from __future__ import annotations

import numpy as np

from rlbook.llm.rewards.completion import Completion
from rlbook.llm.tasks.retrieval import candidates, features, is_answered, parse_choice, similarity


def coherence(completion: Completion) -> float:
    """The mean similarity of the chosen candidates to the query, in [0, 1]."""
    shots = _shots(completion)
    return (
        0.0
        if shots is None
        else float(similarity(candidates()[list(shots)], features(completion.prompt)).mean())
    )


def diversity(completion: Completion) -> float:
    """The dissimilarity of the two chosen candidates, in [0, 1]; 0 if they are the same."""
    shots = _shots(completion)
    if shots is None:
        return 0.0
    first, second = (np.asarray(candidates()[shot]) for shot in shots)
    return 1.0 - float(similarity(first, second))


def downstream(completion: Completion) -> float:
    """1 if the task's simulated model answers the query correctly with these shots, else 0; an
    invalid choice counts as no shots."""
    return float(is_answered(completion.prompt, _shots(completion) or ()))


def _shots(completion: Completion) -> tuple[int, int] | None:
    """The chosen candidates of a completion that ends with EOS."""
    return parse_choice(completion.text) if completion.ended else None
