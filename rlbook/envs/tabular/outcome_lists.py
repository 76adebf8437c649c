"""Samples single transitions from a model in plain Python: from lists, which are faster to index
than arrays, or from the arrays of a very large model."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.outcomes import Outcomes, ending_part, standard_normal, starts

if TYPE_CHECKING:
    from scipy import sparse

LONGEST = 2_000_000  # beyond this many outcomes no lists: they take four times the memory of arrays


def drawn_from(model: TabularMDP) -> OutcomeLists | OutcomeRows:
    """A sampler for the model, built from its `outcomes`; a very large model made from arrays is
    sampled directly, because its outcomes would fill the memory."""
    if model.from_entries or "outcomes" in vars(model) or model.transitions.nnz <= LONGEST:
        return OutcomeLists(model.outcomes)
    return OutcomeRows(model)


class OutcomeLists:
    """The columns of `Outcomes` as lists. They are never modified, so copies of an environment
    share them."""

    def __init__(self, outcomes: Outcomes) -> None:
        self.num_actions = outcomes.num_actions
        (
            self._first,
            self._cumulative,
            self._successor,
            self._reward,
            self._ends,
            self._std,
            self._start_cumulative,
            self._starts,
        ) = (_to_list(column) for column in outcomes[:8])
        self._noisy = bool(outcomes.reward_std.any())

    def start(self, rng: np.random.Generator) -> int:
        """Samples the initial state of an episode, with one uniform number."""
        return int(self._starts[bisect_right(self._start_cumulative, rng.random())])

    def step(self, rng: np.random.Generator, state: int, action: int) -> tuple[int, float, bool]:
        """Samples the next state, the reward and whether the episode ends, with one uniform number,
        or three if the reward is noisy."""
        row = state * self.num_actions + action
        k = bisect_right(self._cumulative, rng.random(), self._first[row], self._first[row + 1])
        reward = float(self._reward[k])
        if self._noisy and self._std[k] > 0:
            reward += float(self._std[k]) * standard_normal(rng.random(), rng.random())
        return int(self._successor[k]), reward, bool(self._ends[k])

    def __deepcopy__(self, memo: dict[int, object]) -> OutcomeLists:
        return self


class OutcomeRows:
    """The same samples, each computed from its row of the model's matrices: slower, but without
    additional memory."""

    def __init__(self, model: TabularMDP) -> None:
        self._model = model
        self._start_cumulative, self._starts = starts(model.initial)

    @cached_property
    def _ending_part(self) -> sparse.csr_array | None:
        return (
            ending_part(self._model.transitions, self._model.continues_by_state)
            if self._model.can_end
            else None
        )

    def start(self, rng: np.random.Generator) -> int:
        """See `OutcomeLists.start`."""
        return int(
            self._starts[np.searchsorted(self._start_cumulative, rng.random(), side="right")]
        )

    def step(self, rng: np.random.Generator, state: int, action: int) -> tuple[int, float, bool]:
        """See `OutcomeLists.step`; the reward is the expected one."""
        row = state * self._model.num_actions + action
        successor, probability = _row(self._model.continues_by_state, row)
        going = len(successor)
        if self._ending_part is not None:
            beyond, rest = _row(self._ending_part, row)
            successor, probability = (
                np.concatenate([successor, beyond]),
                np.concatenate([probability, rest]),
            )
        k = int(np.searchsorted(np.cumsum(probability), rng.random(), side="right"))
        k = min(k, int(np.flatnonzero(probability)[-1]))
        return int(successor[k]), float(self._model.rewards[state, action]), k >= going

    def __deepcopy__(self, memo: dict[int, object]) -> OutcomeRows:
        return self


def _row(matrix: sparse.csr_array, row: int) -> tuple[np.ndarray, np.ndarray]:
    """The column indices and values of one row of a CSR matrix."""
    here = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return matrix.indices[here], matrix.data[here]


def _to_list(column: np.ndarray) -> Any:
    """The array as a list; very large arrays are kept."""
    return column.tolist() if len(column) <= LONGEST else column
