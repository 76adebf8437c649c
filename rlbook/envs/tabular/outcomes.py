"""The outcomes of each action, laid out for sampling: one uniform number selects an outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbook.seeding import UniformSource

if TYPE_CHECKING:
    from scipy import sparse


class Outcomes(NamedTuple):
    """A model's transitions in the layout that a sampler needs: K outcomes, grouped into rows by
    state and action.

    The rule, wherever a model is sampled: draw one uniform u in [0, 1) and take the row's first
    outcome with `cumulative` > u. gymnasium's toy text does the same, so the same generator gives
    the same episodes. Where `reward_std` is above 0, two more uniforms make the noise (`normal`).
    """

    # [S·A + 1] int64; row s * A + a owns the outcomes first[row] : first[row + 1], at least one
    first: np.ndarray
    # [K] float64; probability of this outcome or one before it in its row; the last is 1.0
    cumulative: np.ndarray
    successor: np.ndarray  # [K] int64; the next state
    reward: np.ndarray  # [K] float64, in reward units
    ends: np.ndarray  # [K] bool; whether the episode ends with it
    # [K] float64; standard deviation of Gaussian noise on the reward, mostly 0
    reward_std: np.ndarray
    start_cumulative: np.ndarray  # [M] float64; the same rule for where episodes begin
    start_state: np.ndarray  # [M] int64
    num_actions: int  # A

    def pick(self, rows: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """The outcomes [N] that `uniforms` [N] select in `rows` [N], by bisection in all rows at
        once."""
        low, high = self.first[rows], self.first[rows + 1] - 1
        for _ in range(int((high - low).max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            beyond = self.cumulative[middle] <= uniforms
            low, high = np.where(beyond, middle + 1, low), np.where(beyond, high, middle)
        return low

    def pick_starts(self, uniforms: np.ndarray) -> np.ndarray:
        """Samples the initial states [N] of episodes."""
        return self.start_state[np.searchsorted(self.start_cumulative, uniforms, side="right")]


class Entries(NamedTuple):
    """Transitions as columns of equal length E, in the order in which sampling considers them; rows
    may come in any order."""

    state: Any  # [E] int
    action: Any  # [E] int
    successor: Any  # [E] int
    probability: Any  # [E] float; those of a state and action add up to 1
    reward: Any  # [E] float, in reward units
    ends: Any  # [E] bool
    reward_std: Any = None  # [E] float, in reward units; None: no noise


def draw(cumulative: Sequence[float] | NDArray[np.float64], first: int, rng: UniformSource) -> int:
    """The first index from `first` on whose cumulative probability exceeds a uniform number; the
    last one of a row is 1."""
    uniform = rng.random()
    while cumulative[first] <= uniform:
        first += 1
    return first


def standard_normal(u1: float, u2: float) -> float:
    """A standard normal number from two uniform numbers in [0, 1). Source: Box & Muller 1958."""
    return math.sqrt(-2.0 * math.log(1.0 - u1)) * math.cos(2.0 * math.pi * u2)


def outcomes_of_entries(
    entries: Entries, num_states: int, num_actions: int, initial: np.ndarray
) -> Outcomes:
    """Outcomes from entries, kept separate and in order, duplicates included; those of probability
    0 are dropped.

    Args:
        entries: every state and action has at least one of probability above 0.
        initial: [S], where episodes begin, as probabilities.
    """
    rows = np.asarray(entries.state, dtype=np.int64) * num_actions + np.asarray(
        entries.action, dtype=np.int64
    )
    probability = np.asarray(entries.probability, dtype=np.float64)
    order: Any = slice(None)  # nothing to sort and nothing to drop: no copies
    if (rows[1:] < rows[:-1]).any() or not probability.min() > 0:
        order = np.argsort(rows, kind="stable")
        order = order[probability[order] > 0]
    first = np.zeros(num_states * num_actions + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows[order], minlength=num_states * num_actions), out=first[1:])
    std = (
        np.zeros(len(rows))
        if entries.reward_std is None
        else np.asarray(entries.reward_std, dtype=np.float64)
    )
    return Outcomes(
        first,
        cumulative_in_rows(first, probability[order]),
        np.asarray(entries.successor, dtype=np.int64)[order],
        np.asarray(entries.reward, dtype=np.float64)[order],
        np.asarray(entries.ends, dtype=bool)[order],
        std[order],
        *starts(initial),
        num_actions,
    )


def outcomes_of_arrays(
    transitions: sparse.csr_array,
    continues: sparse.csr_array,
    rewards: np.ndarray,
    initial: np.ndarray,
) -> Outcomes:
    """Outcomes from matrices: the successors of each row in order, terminal ones last, each with
    the row's expected reward.

    Args:
        transitions: CSR [S·A, S], row `s * A + a`.
        continues: the same without what ends the episode; `transitions` itself if nothing does.
        rewards: [S, A].
        initial: [S].
    """
    num_states, num_actions = rewards.shape
    rows, successor, probability = _columns_of(continues)
    count = len(rows)
    if continues is not transitions:
        ending = _columns_of(ending_part(transitions, continues))
        rows, successor, probability = (
            np.concatenate(pair)
            for pair in zip((rows, successor, probability), ending, strict=True)
        )
    state, action = np.divmod(rows, num_actions)
    entries = Entries(
        state, action, successor, probability, rewards.ravel()[rows], np.arange(len(rows)) >= count
    )
    return outcomes_of_entries(entries, num_states, num_actions, initial)


def ending_part(transitions: sparse.csr_array, continues: sparse.csr_array) -> sparse.csr_array:
    """The terminal part of each transition, CSR like both arguments."""
    ending = (transitions - continues).tocsr()
    ending.data[ending.data <= 1e-12] = 0.0  # what subtracting left over
    ending.eliminate_zeros()
    return ending


def _columns_of(matrix: sparse.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The row, column and value of each entry of a CSR matrix, in order."""
    size = int(matrix.indptr[-1])
    return (
        np.arange(len(matrix.indptr) - 1).repeat(np.diff(matrix.indptr)),
        matrix.indices[:size],
        matrix.data[:size],
    )


def cumulative_in_rows(first: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """Cumulative sums within each row, added from left to right, [K]; the last of each row is
    exactly 1.0."""
    total = probability.copy()
    here, last = first[:-1] + 1, first[1:] - 1
    while (longer := here <= last).any():
        here, last = here[longer], last[longer]
        total[here] += total[here - 1]
        here = here + 1
    total[first[1:] - 1] = 1.0
    return total


def starts(initial: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`start_cumulative` and `start_state` [M], for the states with positive initial
    probability."""
    state = np.flatnonzero(initial > 0)
    cumulative = np.cumsum(initial)[state]
    cumulative[-1] = 1.0
    return cumulative, state
