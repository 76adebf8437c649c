"""Validates and normalises the arrays of a `TabularMDP`; every error is one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from rlbook.envs.tabular.outcomes import Entries

TOLERANCE = 1e-8
"""The allowed deviation of a row's sum from 1."""

Entry = tuple[int, int, int, float, float, bool]
"""State, action, next state, probability, reward (in reward units), and whether the episode
ends."""

Matrix = sparse.sparray | sparse.spmatrix | ArrayLike
"""Anything that can be read as a matrix: a scipy sparse matrix, an array, or nested lists."""


class ModelArrays(NamedTuple):
    """The arrays that define a model of S states and A actions; see `TabularMDP`."""

    transitions: sparse.csr_array  # [S·A, S], row s * A + a: P(s'|s, a)
    rewards: NDArray[np.float64]  # [S, A], expected reward, in reward units
    continues: sparse.csr_array  # [S·A, S]: the same without what ends the episode
    initial: NDArray[np.float64]  # [S], where episodes begin, as probabilities
    terminal: NDArray[np.bool_]  # [S], states that nothing acts in


def checked_arrays(
    transitions: Matrix,
    rewards: ArrayLike,
    *,
    terminal: ArrayLike | None = None,
    initial: ArrayLike | None = None,
    continues: Matrix | None = None,
) -> ModelArrays:
    """See `TabularMDP.from_arrays`.

    `continues`, shaped like `transitions`, says for each transition how much of it goes on.

    Raises:
        ValueError: one sentence saying what was wanted and what was given.
    """
    rewards = np.ascontiguousarray(rewards, dtype=np.float64)
    if rewards.ndim != 2 or 0 in rewards.shape:
        shape = list(rewards.shape)
        raise ValueError(f"rewards must have shape [S, A] with S and A at least 1, got {shape}.")
    num_states, num_actions = rewards.shape
    rows = _matrix(transitions, num_states, num_actions)
    _check_indices(rows)
    feasible = _feasible_actions(rewards)
    if feasible is not None:
        rows = _add_self_transitions(~feasible.ravel(), rows, num_actions)
        continues = (
            None
            if continues is None
            else _add_self_transitions(~feasible.ravel(), continues, num_actions)
        )
    totals = rows @ np.ones(num_states)
    ends = _terminal(terminal, totals.reshape(rewards.shape))
    continues = rows if continues is None else _csr(continues)
    if ends is not None:
        continues = _drop_terminal(ends, continues, num_actions)
        rows = _absorb_ends(ends, rows, num_actions)
        totals[np.repeat(ends, num_actions)] = 1.0
    _check_probabilities(rows, totals, num_actions)
    _check_rewards(rewards, feasible, ends)
    if ends is not None:
        rewards = np.where(ends[:, None], 0.0, rewards)
    begins = _initial_distribution(initial, ends, num_states)
    if ends is None:
        ends = _absorbing_states(rows, continues, rewards)
        if initial is not None:
            ends &= begins == 0.0
    return ModelArrays(rows, rewards, continues, begins, ends)


def _feasible_actions(rewards: NDArray[np.float64]) -> NDArray[np.bool_] | None:
    """Which actions are available, [S, A] bool: those whose reward is not -∞. None means all."""
    infeasible = np.isneginf(rewards)
    return ~infeasible if infeasible.any() else None


def _check_rewards(
    rewards: NDArray[np.float64], feasible: NDArray[np.bool_] | None, ends: NDArray[np.bool_] | None
) -> None:
    """Raises ValueError if a reward is not a number, or if a state has no available action."""
    wrong = ~np.isfinite(rewards) if feasible is None else ~np.isfinite(rewards) & feasible
    if wrong.any():
        state, action = np.argwhere(wrong)[0]
        raise ValueError(
            "rewards must be finite, or -inf for an action that cannot be taken, but state"
            f" {state}, action {action} has {rewards[state, action]}."
        )
    if feasible is None:
        return
    stuck = ~feasible.any(axis=1) if ends is None else ~feasible.any(axis=1) & ~ends
    if stuck.any():
        raise ValueError(
            f"each state must have a possible action, but all actions of state {stuck.argmax()} "
            "have reward -inf."
        )


def _absorbing_states(
    rows: sparse.csr_array, continues: sparse.csr_array, rewards: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """The absorbing states, [S] bool: all of their actions are self-transitions that terminate with
    reward 0.

    That all actions end the episode and pay 0 is not enough: those of a live state may, too.
    """
    num_actions = rewards.shape[1]
    terminal = np.zeros(len(rewards), dtype=bool)
    if continues is rows:  # nothing terminates
        return terminal
    terminal[:] = (rewards == 0.0).all(axis=1)
    terminal[continues.indices[continues.data > 0.0]] = False
    states = np.flatnonzero(terminal)
    own = (states[:, None] * num_actions + np.arange(num_actions)).ravel()
    ending = (rows[own] - continues[own]).tocoo()
    stays = ending.data * (ending.col == states[ending.row // num_actions])
    chances = np.bincount(ending.row, stays, len(own)).reshape(-1, num_actions)
    terminal[states] = (chances > 1.0 - TOLERANCE).all(axis=1)
    return terminal


def _matrix(transitions: Matrix, num_states: int, num_actions: int) -> sparse.csr_array:
    """The matrix [S·A, S] from an array of that shape, or from a dense one [S, A, S]."""
    given: Any = transitions if sparse.issparse(transitions) else _dense(transitions)
    rows = (num_states * num_actions, num_states)
    if given.shape == (num_states, num_actions, num_states):
        given = given.reshape(rows)
    if given.shape != rows:
        dense = [num_states, num_actions, num_states]
        raise ValueError(
            f"transitions must have shape [S, A, S] = {dense} or [S·A, S] = {list(rows)} with "
            f"rewards of shape [S, A] = {[num_states, num_actions]}, got {list(given.shape)}."
        )
    return _csr(given)


def _dense(transitions: Matrix) -> NDArray[np.float64]:
    try:
        return np.asarray(transitions, dtype=np.float64)
    except (TypeError, ValueError):
        kind = type(transitions).__name__
        raise ValueError(
            f"transitions must be numbers of shape [S, A, S] or [S·A, S], but this {kind} cannot "
            "be converted."
        ) from None


def arrays_of_entries(
    entries: Iterable[Entry] | Entries, num_states: int, num_actions: int, initial: ArrayLike | None
) -> tuple[ModelArrays, Entries]:
    """A model's arrays from one entry per possible transition, and the entries as columns.

    Entries with equal state, action and next state are added up.
    """
    columns = _columns(entries)
    rows = columns.state * num_actions + columns.action
    shape = (num_states * num_actions, num_states)
    chances = columns.probability
    transitions = sparse.csr_array((chances, (rows, columns.successor)), shape=shape)
    continues = None
    if columns.ends.any():
        going_on = chances * ~columns.ends
        continues = sparse.csr_array((going_on, (rows, columns.successor)), shape=shape)
        continues.eliminate_zeros()
    rewards = np.bincount(rows, weights=chances * columns.reward, minlength=shape[0])
    rewards = rewards.reshape(num_states, num_actions)
    none = np.zeros(num_states, dtype=bool)  # a state without entries is a mistake here, no end
    arrays = checked_arrays(
        transitions, rewards, terminal=none, initial=initial, continues=continues
    )
    return arrays, columns


def _columns(entries: Iterable[Entry] | Entries) -> Entries:
    """The entries as separate columns with their dtypes."""
    if not isinstance(entries, Entries):
        entries = Entries(*zip(*entries, strict=True))
    types = Entries(np.int64, np.int64, np.int64, np.float64, np.float64, bool, np.float64)
    return Entries(
        *(
            None if column is None else np.array(column, dtype=kind)
            for column, kind in zip(entries, types, strict=True)
        )
    )


def _csr(matrix: Matrix) -> sparse.csr_array:
    """The matrix itself if it is CSR of float64, else converted. It is never modified."""
    return sparse.csr_array(matrix, dtype=np.float64)


def _check_probabilities(rows: sparse.csr_array, totals: NDArray, num_actions: int) -> None:
    """Raises ValueError unless every row is a distribution; `totals` [S·A] are the row sums."""
    if len(rows.data) and not rows.data.min() >= 0.0:  # NaN is not
        wrong = rows.data[~(rows.data >= 0.0)][0]
        raise ValueError(f"transitions must be probabilities of at least 0, got {wrong}.")
    if float(totals.min()) - 1.0 >= -TOLERANCE and float(totals.max()) - 1.0 <= TOLERANCE:
        return
    row = int(np.flatnonzero(~(np.abs(totals - 1.0) <= TOLERANCE))[0])
    state, action = divmod(row, num_actions)
    raise ValueError(
        f"transitions must add up to 1 in each row, but state {state}, action {action} "
        f"adds up to {totals[row]:.9g}; a state is terminal where all of its rows are 0, "
        "or where terminal says so."
    )


def _check_indices(rows: sparse.csr_array) -> None:
    """Raises ValueError if the indices of a hand-built CSR matrix are out of range.

    scipy does not look, and neither do compiled loops.
    """
    indptr, indices = rows.indptr, rows.indices
    size = min(len(indices), len(rows.data))
    if indptr[0] != 0 or indptr[-1] > size or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(
            "transitions must be a CSR matrix whose indptr begins with 0, does not fall, and "
            "ends with the number of entries."
        )
    _, successors = rows.shape  # type: ignore[misc]
    if len(indices) and not 0 <= indices.min() <= indices.max() < successors:
        raise ValueError(
            f"transitions must name successors from 0 to {successors - 1}, "
            f"got {indices.min()} to {indices.max()}."
        )


def _terminal(terminal: ArrayLike | None, totals: NDArray[np.float64]) -> NDArray[np.bool_] | None:
    """The terminal states, [S] bool: as given, or else those whose rows all sum to 0 in `totals`
    [S, A].

    None where no state is terminal.
    """
    if terminal is None:
        ends: NDArray[np.bool_] | None = None
        if totals.min() == 0.0:
            ends = (totals == 0.0).all(axis=1)
        return ends if ends is not None and ends.any() else None
    given = np.asarray(terminal)
    if given.shape != totals.shape[:1] or given.dtype != bool:
        raise ValueError(
            f"terminal must be {len(totals)} booleans, "
            f"got shape {list(given.shape)} and type {given.dtype}."
        )
    return given if given.any() else None


def _drop_terminal(
    ends: NDArray[np.bool_], rows: sparse.csr_array, num_actions: int
) -> sparse.csr_array:
    """The rows without transitions into terminal states and without those of terminal states."""
    alive = np.repeat(np.repeat(~ends, num_actions), np.diff(rows.indptr))
    size = int(rows.indptr[-1])
    going_on = np.where(~ends[rows.indices[:size]] & alive, rows.data[:size], 0.0)
    shared = (going_on, rows.indices[:size], rows.indptr)
    kept = sparse.csr_array(shared, shape=rows.shape, copy=True)
    kept.eliminate_zeros()
    return kept


def _absorb_ends(
    ends: NDArray[np.bool_], rows: sparse.csr_array, num_actions: int
) -> sparse.csr_array:
    """The rows with those of terminal states replaced by self-transitions."""
    return _add_self_transitions(np.repeat(ends, num_actions), rows, num_actions)


def _add_self_transitions(
    chosen: NDArray[np.bool_], rows: Matrix, num_actions: int
) -> sparse.csr_array:
    """The rows [S·A, S] with the `chosen` ones [S·A] replaced by self-transitions."""
    rows = _csr(rows)
    keep = sparse.diags_array((~chosen).astype(float))
    own = np.flatnonzero(chosen)
    stay = sparse.csr_array((np.ones(len(own)), (own, own // num_actions)), shape=rows.shape)
    result = sparse.csr_array(keep @ rows + stay)
    result.eliminate_zeros()
    return result


def _initial_distribution(
    initial: ArrayLike | None, ends: NDArray[np.bool_] | None, num_states: int
) -> NDArray[np.float64]:
    if initial is None:
        begins = np.ones(num_states) if ends is None or ends.all() else (~ends).astype(np.float64)
        return begins / np.count_nonzero(begins)
    given = np.array(initial, dtype=np.float64)
    if given.shape != (num_states,):
        shape = list(given.shape)
        raise ValueError(
            f"initial must have one probability for each of {num_states} states, got shape {shape}."
        )
    total = given.sum()
    if not (np.isfinite(given).all() and (given >= 0).all() and abs(total - 1.0) <= TOLERANCE):
        raise ValueError(
            f"initial must be probabilities that add up to 1, got a total of {total:.9g}."
        )
    return given
