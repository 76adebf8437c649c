"""One draw at a time from a model's outcomes, in plain Python: lists are read faster than arrays."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np

from rlbook.envs.outcomes import Outcomes, normal

LONGEST = 2_000_000                          # beyond this many outcomes the arrays serve as they are: lists take four times the memory


class OutcomeLists:
    """The columns of `Outcomes` as lists. Never changed, so copies of an environment share it."""

    def __init__(self, outcomes: Outcomes) -> None:
        self.num_actions = outcomes.num_actions
        self._first, self._cumulative, self._successor, self._reward, self._ends, self._std, self._start_cumulative, self._starts = (
            _quick(column) for column in outcomes[:8]
        )
        self._noisy = bool(outcomes.reward_std.any())

    def start(self, rng: np.random.Generator) -> int:
        """The state that an episode begins in; one uniform number."""
        return int(self._starts[bisect_right(self._start_cumulative, rng.random())])

    def step(self, rng: np.random.Generator, state: int, action: int) -> tuple[int, float, bool]:
        """Next state, reward and whether the episode ends; one uniform number, or three where the reward is noisy."""
        row = state * self.num_actions + action
        k = bisect_right(self._cumulative, rng.random(), self._first[row], self._first[row + 1])
        reward = float(self._reward[k])
        if self._noisy and self._std[k] > 0:
            reward += float(self._std[k]) * normal(rng.random(), rng.random())
        return int(self._successor[k]), reward, bool(self._ends[k])

    def __deepcopy__(self, memo: Any) -> OutcomeLists:
        return self


def _quick(column: np.ndarray) -> Any:
    return column.tolist() if len(column) <= LONGEST else column
