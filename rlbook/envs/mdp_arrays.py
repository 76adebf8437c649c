"""Building a `TabularMDP` from arrays, with every mistake answered in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import sparse

from rlbook.envs.mdp import TOLERANCE, TabularMDP
from rlbook.envs.outcomes import Entries

Entry = tuple[int, int, int, float, float, bool]
"""State, action, next state, probability, reward (in reward units), and whether the episode ends with it."""


def from_arrays(
    transitions: Any, rewards: Any, *, terminal: Any = None, initial: Any = None, continues: Any = None, observable: bool = True,
    entries: Entries | None = None,
) -> TabularMDP:  # fmt: skip
    """See `TabularMDP.from_arrays`. `continues`, shaped like `transitions`, says for each transition how much of it goes on."""
    rewards = np.ascontiguousarray(rewards, dtype=np.float64)
    if rewards.ndim != 2 or 0 in rewards.shape:
        raise ValueError(f"rewards must have shape [S, A] with S and A at least 1, got {list(rewards.shape)}.")
    num_states, num_actions = rewards.shape
    rows = _csr(transitions)
    if rows.shape != (num_states * num_actions, num_states):
        raise ValueError(f"transitions must have shape [S·A, S] = ({num_states * num_actions}, {num_states}), got {rows.shape}.")
    _check_rows(rows, num_actions)
    if not np.isfinite(rewards).all():
        state, action = np.argwhere(~np.isfinite(rewards))[0]
        raise ValueError(f"rewards must be finite, but state {state}, action {action} has {rewards[state, action]}.")
    ends = _terminal(terminal, num_states)
    continues = rows if continues is None else _csr(continues)
    if ends is not None:
        rewards = np.where(ends[:, None], 0.0, rewards)
        continues = _without(ends, continues, num_actions)
        rows = _stay_where(ends, rows, num_actions)
    return TabularMDP(rows, rewards, continues, _initial(initial, ends, num_states), observable, entries)


def from_entries(
    entries: Iterable[Entry] | Entries, num_states: int, num_actions: int, *, initial: Any = None, observable: bool = True
) -> TabularMDP:
    """A model from one entry per possible transition, as tuples or as columns.

    Entries with equal state, action and next state are added up for planning; `TabularMDP.outcomes` keeps them apart, in their order.
    """
    columns = _columns(entries)
    rows = columns.state * num_actions + columns.action
    shape = (num_states * num_actions, num_states)
    transitions = sparse.csr_array((columns.probability, (rows, columns.successor)), shape=shape)
    continues = None
    if columns.ends.any():
        continues = sparse.csr_array((columns.probability * ~columns.ends, (rows, columns.successor)), shape=shape)
        continues.eliminate_zeros()
    rewards = np.bincount(rows, weights=columns.probability * columns.reward, minlength=shape[0]).reshape(num_states, num_actions)
    return from_arrays(transitions, rewards, initial=initial, continues=continues, observable=observable, entries=columns)


def _columns(entries: Iterable[Entry] | Entries) -> Entries:
    """Columns of their own, with their types."""
    if not isinstance(entries, Entries):
        entries = Entries(*zip(*entries, strict=True))
    types = Entries(np.int64, np.int64, np.int64, np.float64, np.float64, bool, np.float64)
    return Entries(*(None if column is None else np.array(column, dtype=kind) for column, kind in zip(entries, types, strict=True)))


def _csr(matrix: Any) -> sparse.csr_array:
    """The matrix itself where it is CSR of float64. It is never changed."""
    return sparse.csr_array(matrix, dtype=np.float64)


def _check_rows(rows: Any, num_actions: int) -> None:
    """Raises ValueError unless every row is a distribution over states."""
    _check_indices(rows)
    if len(rows.data) and not rows.data.min() >= 0.0:  # NaN is not
        raise ValueError(f"transitions must be probabilities of at least 0, got {rows.data[~(rows.data >= 0.0)][0]}.")
    excess = rows @ np.ones(rows.shape[1])
    excess -= 1.0
    if float(excess.min()) >= -TOLERANCE and float(excess.max()) <= TOLERANCE:
        return
    row = int(np.flatnonzero(~(np.abs(excess) <= TOLERANCE))[0])
    state, action = divmod(row, num_actions)
    raise ValueError(f"transitions must add up to 1 in each row, but state {state}, action {action} adds up to {excess[row] + 1.0:.9g}.")


def _check_indices(rows: Any) -> None:
    """A CSR matrix put together by hand may point beyond its ends; scipy does not look, and neither do compiled loops."""
    indptr, indices = rows.indptr, rows.indices
    if indptr[0] != 0 or indptr[-1] > min(len(indices), len(rows.data)) or (indptr[1:] < indptr[:-1]).any():
        raise ValueError("transitions must be a CSR matrix whose indptr begins with 0, does not fall, and ends with the number of entries.")
    if len(indices) and not 0 <= indices.min() <= indices.max() < rows.shape[1]:
        raise ValueError(f"transitions must name successors from 0 to {rows.shape[1] - 1}, got {indices.min()} to {indices.max()}.")


def _terminal(terminal: Any, num_states: int) -> np.ndarray | None:
    """[S] bool; None where no state is terminal."""
    if terminal is None:
        return None
    terminal = np.asarray(terminal)
    if terminal.shape != (num_states,) or terminal.dtype != bool:
        raise ValueError(f"terminal must be {num_states} booleans, got shape {list(terminal.shape)} and type {terminal.dtype}.")
    return terminal if terminal.any() else None


def _without(ends: np.ndarray, rows: Any, num_actions: int) -> sparse.csr_array:
    """The rows without what enters a terminal state, and without what terminal states do."""
    goes_on = ~ends[rows.indices] & np.repeat(np.repeat(~ends, num_actions), np.diff(rows.indptr))
    kept = sparse.csr_array((np.where(goes_on, rows.data, 0.0), rows.indices, rows.indptr), shape=rows.shape, copy=True)
    kept.eliminate_zeros()
    return kept


def _stay_where(ends: np.ndarray, rows: sparse.csr_array, num_actions: int) -> sparse.csr_array:
    """The rows of terminal states replaced by staying there."""
    keep = sparse.diags_array(np.repeat(~ends, num_actions).astype(float))
    states = np.flatnonzero(ends)
    own = (states[:, None] * num_actions + np.arange(num_actions)).ravel()
    stay = sparse.csr_array((np.ones(len(own)), (own, states.repeat(num_actions))), shape=rows.shape)
    result = sparse.csr_array(keep @ rows + stay)
    result.eliminate_zeros()
    return result


def _initial(initial: Any, ends: np.ndarray | None, num_states: int) -> np.ndarray:
    if initial is None and (ends is None or ends.all()):
        return np.full(num_states, 1.0 / num_states)
    if initial is None:
        assert ends is not None
        begins = ~ends
        return begins / np.count_nonzero(begins)
    initial = np.array(initial, dtype=np.float64)
    if initial.shape != (num_states,):
        raise ValueError(f"initial must have one probability for each of {num_states} states, got shape {list(initial.shape)}.")
    if not (np.isfinite(initial).all() and (initial >= 0).all() and abs(initial.sum() - 1.0) <= TOLERANCE):
        raise ValueError(f"initial must be probabilities that add up to 1, got a total of {initial.sum():.9g}.")
    return initial
