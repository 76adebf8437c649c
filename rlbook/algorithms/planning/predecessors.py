"""Which states and actions may lead to each state of a model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from rlbook.envs.tabular.mdp import TabularMDP


class PredecessorLists(NamedTuple):
    """P(s'|s, a), the episode going on, in the order of s', as lists."""

    start: list[int]  # [S + 1]; what leads to s is start[s] : start[s + 1]
    row: list[int]  # s * A + a
    data: list[float]  # the probability


def is_dense(model: TabularMDP) -> bool:
    """Whether at least half of all transitions are possible."""
    rows = model.continues_by_state
    size, columns = rows.shape  # type: ignore[misc]
    return 2 * rows.nnz >= size * columns


def arrays_of(model: TabularMDP) -> np.ndarray:
    """P(s'|s, a), the episode going on: [S', S, A]."""
    chances = model.continues_by_state.toarray().T
    return np.ascontiguousarray(chances).reshape(model.num_states, *model.rewards.shape)


def columns_of(model: TabularMDP) -> PredecessorLists:
    """The transitions of a model as lists, in the order of the successor."""
    columns = sparse.csc_array(model.continues_by_state)
    columns.sum_duplicates()
    arrays = columns.indptr, columns.indices, columns.data
    lists: list[Any] = [item.tolist() for item in arrays]
    return PredecessorLists(*lists)
