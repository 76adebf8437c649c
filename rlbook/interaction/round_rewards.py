"""Rewards that an environment gives once per round, to all of its episodes together.

A reward of texts may compare the episodes of a group, or ask a large model, which is cheap for many
texts at once. Episodes of a round end at different steps. An environment that can wait therefore
pays 0 until its last episode has ended, and is then asked for all rewards in one call.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import NDArray

Scored = tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]
"""The rewards [N] of each episode's last step, and the metrics: name → [N], NaN if there is
none."""


class RoundScorer(Protocol):
    """A vector environment that can give the rewards of a round together."""

    def defer_rewards(self, deferred: bool) -> bool:
        """Whether `step` returns reward 0 from now on, until `score_round` is called; False if the
        environment has to reward immediately."""
        ...

    def score_round(self) -> Scored:
        """Scores the episodes that have ended since their reset; 0 and NaN for the others."""
        ...


def round_scorer(env: VectorEnv) -> RoundScorer | None:
    """The part of a chain of wrappers that scores a round; None if there is none, or a wrapper
    around it may change rewards."""
    found: Any = env
    while isinstance(found, VectorWrapper) and getattr(found, "keeps_rewards", False):
        found = found.env
    scores = callable(getattr(type(found), "score_round", None))
    return cast(RoundScorer, found) if scores else None
