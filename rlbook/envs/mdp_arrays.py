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
    rewards = np.array(rewards, dtype=np.float64)
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
    if continues is None:
        continues = rows
    if ends.any():
        rewards[ends] = 0.0
        rows = _stay_where(ends, rows, num_actions)
        continues = sparse.csr_array(_csr(continues) @ sparse.diags_array((~ends).astype(float)))
        continues = sparse.csr_array(sparse.diags_array(np.repeat(~ends, num_actions).astype(float)) @ continues)
    continues = _csr(continues)
    continues.eliminate_zeros()
    return TabularMDP(rows, rewards, continues, _initial(initial, ends), observable, entries)


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
    continues = sparse.csr_array((columns.probability * ~columns.ends, (rows, columns.successor)), shape=shape)
    rewards = np.bincount(rows, weights=columns.probability * columns.reward, minlength=shape[0]).reshape(num_states, num_actions)
    return from_arrays(transitions, rewards, initial=initial, continues=continues, observable=observable, entries=columns)


def _columns(entries: Iterable[Entry] | Entries) -> Entries:
    """Columns of their own, with their types."""
    if not isinstance(entries, Entries):
        entries = Entries(*zip(*entries, strict=True))
    types = Entries(np.int64, np.int64, np.int64, np.float64, np.float64, bool, np.float64)
    return Entries(*(None if column is None else np.array(column, dtype=kind) for column, kind in zip(entries, types, strict=True)))


def _csr(matrix: Any) -> sparse.csr_array:
    """A copy of its own with duplicates added up."""
    matrix = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    return matrix


def _check_rows(rows: sparse.csr_array, num_actions: int) -> None:
    if not np.isfinite(rows.data).all() or (rows.data < 0).any():
        worst = rows.data[~(rows.data >= 0) | ~np.isfinite(rows.data)][0]
        raise ValueError(f"transitions must be probabilities of at least 0, got {worst}.")
    totals = np.asarray(rows.sum(axis=1)).ravel()
    wrong = np.flatnonzero(np.abs(totals - 1.0) > TOLERANCE)
    if len(wrong):
        state, action = divmod(int(wrong[0]), num_actions)
        raise ValueError(f"transitions must add up to 1 in each row, but state {state}, action {action} adds up to {totals[wrong[0]]:.9g}.")


def _terminal(terminal: Any, num_states: int) -> np.ndarray:
    if terminal is None:
        return np.zeros(num_states, dtype=bool)
    terminal = np.asarray(terminal)
    if terminal.shape != (num_states,) or terminal.dtype != bool:
        raise ValueError(f"terminal must be {num_states} booleans, got shape {list(terminal.shape)} and type {terminal.dtype}.")
    return terminal


def _stay_where(ends: np.ndarray, rows: sparse.csr_array, num_actions: int) -> sparse.csr_array:
    """The rows of terminal states replaced by staying there."""
    keep = sparse.diags_array(np.repeat(~ends, num_actions).astype(float))
    states = np.flatnonzero(ends)
    own = (states[:, None] * num_actions + np.arange(num_actions)).ravel()
    stay = sparse.csr_array((np.ones(len(own)), (own, states.repeat(num_actions))), shape=rows.shape)
    result = sparse.csr_array(keep @ rows + stay)
    result.eliminate_zeros()
    return result


def _initial(initial: Any, ends: np.ndarray) -> np.ndarray:
    if initial is None:
        begins = ~ends if not ends.all() else np.ones_like(ends)
        return begins / begins.sum()
    initial = np.array(initial, dtype=np.float64)
    if initial.shape != ends.shape:
        raise ValueError(f"initial must have one probability for each of {len(ends)} states, got shape {list(initial.shape)}.")
    if not (np.isfinite(initial).all() and (initial >= 0).all() and abs(initial.sum() - 1.0) <= TOLERANCE):
        raise ValueError(f"initial must be probabilities that add up to 1, got a total of {initial.sum():.9g}.")
    return initial
