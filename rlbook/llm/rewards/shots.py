"""Rewards of the retrieval world (`Retrieval-v0`) beside its score: pure functions of one finished
completion, 0 where it is no choice."""

from __future__ import annotations

import numpy as np

from rlbook.llm.rewards.completion import Completion
from rlbook.llm.tasks.retrieval import candidates, features, is_answered, parse_choice, similarity


def coherence(completion: Completion) -> float:
    """How like the query the chosen candidates are, in [0, 1]: the mean of their similarities."""
    shots = _shots(completion)
    return (
        0.0
        if shots is None
        else float(similarity(candidates()[list(shots)], features(completion.prompt)).mean())
    )


def diversity(completion: Completion) -> float:
    """How unlike each other the two chosen candidates are, in [0, 1]; 0 for the same one twice."""
    shots = _shots(completion)
    if shots is None:
        return 0.0
    first, second = (np.asarray(candidates()[shot]) for shot in shots)
    return 1.0 - float(similarity(first, second))


def downstream(completion: Completion) -> float:
    """1 where the model of the world answers the query rightly with these shots, else 0; without a
    choice, as without shots."""
    return float(is_answered(completion.prompt, _shots(completion) or ()))


def _shots(completion: Completion) -> tuple[int, int] | None:
    """What was chosen, EOS behind it."""
    return parse_choice(completion.text) if completion.ended else None
