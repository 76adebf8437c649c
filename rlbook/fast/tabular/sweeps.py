"""Repeated application of the Bellman operator to all states: compiled if numba is installed,
otherwise on sparse matrices.

    sweeps = sweeps_of(model.continues_by_state, model.rewards, gamma)
    low, high = sweeps.optimal(values, out)              # out ← max_a [ r + γ P values ], and the extremes of out - values

Both forms add up in the same order and give the same bits. A large model is shared by two threads,
each with its own states.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rlbook.algorithms.planning.bounds import largest_absolute
from rlbook.fast.compiled import available, link_globals
from rlbook.fast.tabular.kernels import (
    compile_kernel,
    evaluate_in_place,
    improve_in_place,
    optimal_sweep,
    optimal_sweeps,
    policy_sweep,
    solved_chain,
    sweep_states_in_place,
)
from rlbook.fast.tabular.sparse_product import add_product
from rlbook.interaction.threads import cores

WORTH_COMPILING = 10_000
"""The number of transitions, or of state-action pairs, from which machine code is worth loading
numba."""
WORTH_SHARING = 500_000
"""The number of transitions from which a second thread pays."""
WORTH_LEAVING, AHEAD, FEW, SAMPLE = 20_000, 4.0, 0.35, 1_000
"""Without numba, actions are left out of models with at least this many state-action pairs: those
whose value is further behind than `AHEAD` times the largest change of the last sweep, once at most
the fraction `FEW` of the actions of `SAMPLE` states is left."""
BLOCK = 32_768
"""The number of states whose action values are computed at once without numba: few enough to stay
in the processor's cache."""

Extremes = tuple[float, float]
Floats = NDArray[np.float64]
Ints = NDArray[np.integer]


class StopRule(NamedTuple):
    """When a batch of sweeps has to return: the error is within the tolerance, a change is
    negligible compared with the sum of the changes, or the interval has shrunk too little since the
    last check."""

    factor: float  # γ / (1 - γ)
    tolerance: float  # in reward units
    travelled: float  # the changes so far, added up
    sweeps: int  # so far
    period: int  # sweeps from one look to the next
    width: float  # of the interval, at the last look
    shrinking: float  # the interval is to have shrunk by this factor; ∞: no matter how


def sweeps_of(
    rows: sparse.csr_array, rewards: Floats, gamma: float, *, can_end: bool = True
) -> Sweeps:
    """Sweeps over a model.

    Args:
        rows: [S·A, S], row `s * A + a`: P(s'|s, a) without what ends the episode.
        rewards: [S, A], in reward units.
        gamma: γ, in [0, 1].
        can_end: whether rows may add up to less than 1.
    """
    kind = (
        CompiledSweeps
        if max(rows.nnz, rewards.size) >= WORTH_COMPILING and available()
        else SparseSweeps
    )
    return kind(rows, rewards, gamma, can_end)


class Sweeps(ABC):
    """See the module docstring. `values` and `out` are [S] float64, contiguous, and not the same
    array."""

    def __init__(
        self, rows: sparse.csr_array, rewards: Floats, gamma: float, can_end: bool
    ) -> None:
        self.rows, self.rewards, self.gamma, self.can_end = rows, rewards, gamma, can_end
        # of actions that can be taken
        self.largest_reward = largest_absolute(np.where(np.isneginf(rewards), 0.0, rewards))
        shared = rows.nnz >= WORTH_SHARING and cores() > 1
        num_states = len(rewards)
        self._shares = (
            [(0, num_states // 2), (num_states // 2, num_states)] if shared else [(0, num_states)]
        )

    def optimal(self, values: np.ndarray, out: np.ndarray) -> Extremes:
        """out ← max_a [ r + γ P values ]. Returns the smallest and the largest of out - values;
        where episodes can end, 0 is among them."""
        return self._extremes(self._optimal(values, out))

    @abstractmethod
    def improve(self, values: np.ndarray, out: np.ndarray) -> tuple[Extremes, np.ndarray]:
        """As `optimal`, and [S] int: for each state an action that is best by `values`; it is
        overwritten by the next call."""

    @abstractmethod
    def sweep_policy(
        self, policy: np.ndarray, values: np.ndarray, out: np.ndarray, times: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`times` sweeps of V ← r_π + γ P_π V for a deterministic policy [S]. Returns (V, the other
        array)."""

    @abstractmethod
    def sweep_in_place(self, values: np.ndarray) -> Extremes:
        """V(s) ← max_a [ r + γ P V ](s) for s = 0, 1, …: later states see the new values of earlier
        ones (Gauss-Seidel)."""

    @abstractmethod
    def _optimal(self, values: np.ndarray, out: np.ndarray) -> Extremes: ...

    def _extremes(self, extremes: Extremes) -> Extremes:
        low, high = extremes
        return (min(low, 0.0), max(high, 0.0)) if self.can_end else (low, high)

    def _share(self, run: Callable[[int, int], Extremes]) -> Extremes:
        """Runs `run` over the states from first to last, in two threads if that pays."""
        if len(self._shares) == 1:
            return run(*self._shares[0])
        results: list[Extremes] = []
        second = threading.Thread(target=lambda: results.append(run(*self._shares[1])))
        second.start()
        results.append(run(*self._shares[0]))
        second.join()
        return min(low for low, _ in results), max(high for _, high in results)


class CompiledSweeps(Sweeps):
    """Machine code on the model's own arrays. Unsigned numbers, because signed ones might count
    from the end."""

    def __init__(
        self, rows: sparse.csr_array, rewards: Floats, gamma: float, can_end: bool
    ) -> None:
        super().__init__(rows, rewards, gamma, can_end)
        indptr, indices = _as_unsigned(rows.indptr), _as_unsigned(rows.indices)
        self._model = (
            indptr[:-1],
            indptr[1:],
            indices,
            rows.data,
            rewards.reshape(-1),
            np.uint64(rewards.shape[1]),
            float(gamma),
        )
        self._policy = np.zeros(len(rewards), dtype=np.uint32)
        self._lead = np.full(len(rewards), -1.0)
        self._drift, self._size = 0.0, -1.0
        self._history: list[np.ndarray] | None = None
        # the actions of a policy alone, one row a state
        self._chain: tuple[np.ndarray, ...] | None = None
        self._at = 0
        # what follows from the sweeps so far; the leads hold for it alone
        self._last: np.ndarray | None = None

    def sweep_in_place(self, values: np.ndarray) -> Extremes:
        self._last = None
        return self._extremes(
            compile_kernel(sweep_states_in_place)(*self._model, values, *_numbers(0, len(values)))
        )

    def improve_in_place(self, values: np.ndarray, *, backwards: bool) -> tuple[Extremes, float]:
        """In place, forwards or backwards, each state's equation solved for its own value. γ < 1.

        Returns the extreme changes, and how far the best actions lead to later states rather than
        to earlier ones, added up.
        """
        self._last = None
        margin = 1e-9 * (largest_absolute(values) + self.largest_reward)
        low, high, onwards = compile_kernel(improve_in_place)(
            *self._model,
            values,
            *_numbers(0, len(values)),
            np.uint64(len(values) - 1),
            self._policy,
            backwards,
            margin,
        )
        return self._extremes((low, high)), onwards

    def evaluate_in_place(
        self, values: np.ndarray, times: int, enough: float, *, backwards: bool
    ) -> None:
        """Up to `times` sweeps in place over the actions that the last improvement chose, until no
        value changes by more than `enough`."""
        if self._chain is None:
            widest = np.diff(self.rows.indptr).reshape(self.rewards.shape).max(axis=1).sum()
            self._chain = (
                np.empty(len(values) + 1, np.uint32 if widest < 2**32 else np.uint64),
                np.empty(widest, np.uint32),
                np.empty(widest),
                np.empty(len(values)),
            )
        first, last = _numbers(0, len(values))
        compile_kernel(solved_chain)(*self._model, first, last, self._policy, *self._chain)
        compile_kernel(evaluate_in_place)(
            *self._chain, values, first, last, np.uint64(len(values) - 1), backwards, times, enough
        )

    def improve(self, values: np.ndarray, out: np.ndarray) -> tuple[Extremes, np.ndarray]:
        return self.optimal(values, out), self._policy

    @property
    def is_shared(self) -> bool:
        """Whether two threads run over the states."""
        return len(self._shares) > 1

    def optimal_many(
        self, values: np.ndarray, count: int, num_stored: int, stop: StopRule
    ) -> list[tuple[Extremes, np.ndarray]]:
        """Up to `count` sweeps in one call, one thread: for each the result of `optimal`, and V
        [S], of which the last `num_stored` are stored."""
        blank = self._drift == 0.0 and not values.any()
        if values is not self._last or self._history is None:
            self._follow_from(values)
            self._history, self._at = [*np.empty((num_stored + 1, len(values)))], 0
            self._history[0][:] = values
        history, at, extremes = self._history, self._at, np.empty((count, 2))
        kernel = link_globals(optimal_sweeps, "compiled")
        done, self._drift, self._size = kernel(
            *self._model,
            history[0].base,
            at,
            *_numbers(0, len(values)),
            self._policy,
            self._lead,
            self._drift,
            self._size,
            self.can_end,
            blank,
            extremes,
            tuple(stop),
        )
        self._at = (at + done) % len(history)
        self._last = history[self._at]
        return [
            ((low, high), history[(at + i + 1) % len(history)])
            for i, (low, high) in enumerate(extremes[:done].tolist())
        ]

    def _follow_from(self, values: np.ndarray) -> None:
        """Resets the leads, unless `values` follow from the sweeps so far."""
        if values is not self._last:
            self._lead.fill(-1.0)
            self._drift, self._size = 0.0, largest_absolute(values) + self.largest_reward

    def _optimal(self, values: np.ndarray, out: np.ndarray) -> Extremes:
        self._follow_from(values)
        kernel, margin, model = compile_kernel(optimal_sweep), 1e-9 * self._size, self._model
        if self._drift == 0.0 and not values.any():
            model = (model[0], model[0], *model[2:])  # no transition is worth reading
        extremes = self._share(
            lambda first, last: kernel(
                *model,
                values,
                out,
                *_numbers(first, last),
                self._policy,
                self._lead,
                self._drift,
                margin,
            )
        )
        self._record_sweep(extremes, out)
        return extremes

    def sweep_policy(
        self, policy: np.ndarray, values: np.ndarray, out: np.ndarray, times: int
    ) -> tuple[np.ndarray, np.ndarray]:
        kernel = compile_kernel(policy_sweep)

        def run(first: int, last: int) -> Extremes:
            return kernel(*self._model, values, out, *_numbers(first, last), policy)

        for _ in range(times):
            self._record_sweep(self._share(run), out)
            values, out = out, values
        return values, out

    def _record_sweep(self, extremes: Extremes, out: np.ndarray) -> None:
        low, high = self._extremes(extremes)
        self._drift += self.gamma * (high - low)
        self._size += max(-low, high)
        self._last = out


class SparseSweeps(Sweeps):
    """Sweeps on sparse matrices: the model's own arrays, block by block, without copies."""

    def __init__(
        self, rows: sparse.csr_array, rewards: Floats, gamma: float, can_end: bool
    ) -> None:
        super().__init__(rows, rewards, gamma, can_end)
        # for Q
        self._buffers = {
            first: np.empty(min(BLOCK, len(rewards)) * rewards.shape[1])
            for first, _ in self._shares
        }
        self._lists: list[list[Any]] | None = None
        self._policy: np.ndarray | None = None
        self._holds_all = (
            rewards.size >= WORTH_LEAVING and len(rewards) <= BLOCK and len(self._shares) == 1
        )
        self._blank = False  # whether all values are 0, so that no transition need be read
        self._rivals: CandidateActions | None = None
        self._widest = 0.0  # changes from which it is not worth looking for rivals
        # what follows from the sweeps so far; the rivals hold for it alone
        self._last: np.ndarray | None = None

    def sweep_in_place(self, values: np.ndarray) -> Extremes:
        if self._lists is None:
            columns = (
                self.rows.indptr[:-1],
                self.rows.indptr[1:],
                self.rows.indices,
                self.rows.data,
                self.rewards.reshape(-1),
            )
            self._lists = [column.tolist() for column in columns]
        kernel: Any = sweep_states_in_place
        new = values.tolist()
        extremes = kernel(*self._lists, self.rewards.shape[1], self.gamma, new, 0, len(new))
        values[:] = new
        return self._extremes(extremes)

    def improve(self, values: np.ndarray, out: np.ndarray) -> tuple[Extremes, np.ndarray]:
        if self._policy is None:
            self._policy = np.empty(len(values), dtype=np.int64)
        policy, self._blank = self._policy, False
        extremes = self._share(lambda first, last: self._best(values, out, first, last, policy))
        return self._extremes(extremes), policy

    def _optimal(self, values: np.ndarray, out: np.ndarray) -> Extremes:
        self._blank = values is not self._last and not values.any()
        if values is not self._last:
            self._rivals, self._widest = None, math.inf
        self._last = out
        if self._rivals is not None and self._rivals.until > 0.0:
            self._rivals.best(values, out)
            change = out - values
            low, high = float(change.min()), float(change.max())
        else:
            self._rivals = None
            low, high = self._share(lambda first, last: self._best(values, out, first, last))
        self._find_rivals(out, self._extremes((low, high)))
        return low, high

    def _find_rivals(self, best: np.ndarray, extremes: Extremes) -> None:
        """After a sweep: leaves out actions that cannot become the best, once few are left. The
        buffer must hold all states."""
        width = self.gamma * (extremes[1] - extremes[0])
        if self._rivals is not None:
            self._rivals.until -= width
        elif self._holds_all and 2 * width <= self._widest:
            self._widest, reach = width, AHEAD * width
            least = best - (reach + 1e-9 * (largest_absolute(best) + self.largest_reward))
            action_values = self._buffers[0].reshape(self.rewards.shape)
            near = action_values[:SAMPLE] >= least[:SAMPLE, None]
            if np.count_nonzero(near) <= FEW * near.size:
                self._rivals = CandidateActions(
                    self, np.flatnonzero(action_values >= least[:, None]), reach - width
                )

    def _best(
        self,
        values: np.ndarray,
        out: np.ndarray,
        first: int,
        last: int,
        policy: np.ndarray | None = None,
    ) -> Extremes:
        low, high, buffer = np.inf, -np.inf, self._buffers[first]
        for start in range(first, last, BLOCK):
            stop = min(start + BLOCK, last)
            action_values = self._action_values(values, start, stop, buffer)
            best = largest_of_each(action_values, out[start:stop])
            if policy is not None:
                first_best_of_each(action_values, best, policy[start:stop])
            change = best - values[start:stop]
            low, high = min(low, float(change.min())), max(high, float(change.max()))
        return low, high

    def _action_values(
        self, values: np.ndarray, first: int, last: int, buffer: np.ndarray
    ) -> np.ndarray:
        """Q of the states `first` … `last - 1`, [B, A], in the buffer."""
        rows, num_actions = self.rows, self.rewards.shape[1]
        action_values = buffer[: (last - first) * num_actions]
        if self._blank:
            action_values = action_values.reshape(-1, num_actions)
            return np.add(self.rewards[first:last], 0.0, out=action_values)
        action_values.fill(0.0)
        starts = rows.indptr[first * num_actions : last * num_actions + 1]
        add_product(starts, rows.indices, rows.data, values, action_values)
        action_values *= self.gamma
        action_values = action_values.reshape(-1, num_actions)
        action_values += self.rewards[first:last]
        return action_values

    def sweep_policy(
        self, policy: np.ndarray, values: np.ndarray, out: np.ndarray, times: int
    ) -> tuple[np.ndarray, np.ndarray]:
        size = len(values)
        chosen = np.arange(size) * self.rewards.shape[1] + policy
        chain = self.rows[chosen]
        rewards = self.rewards.reshape(-1)[chosen]
        for _ in range(times):
            out.fill(0.0)
            add_product(chain.indptr, chain.indices, chain.data, values, out)
            out *= self.gamma
            out += rewards
            values, out = out, values
        return values, out


class CandidateActions:
    """The actions that may still be the best; most states have only one.

    A sweep moves action values by γ (h - l) at most against each other, where l and h are the
    extremes of the values' changes. So an action stays behind the best one for as long as these,
    added up, are less than what it was behind by.

    Args:
        sweeps: over all actions.
        rows: [R] int, rising, those of the actions that are at most `until` behind; each state has
            one.
        until: the sum of γ (h - l) that has to be seen before the others may come back, in reward
            units.

    Source: as for `rlbook.fast.tabular.kernels.optimal_sweep`.
    """

    def __init__(self, sweeps: Sweeps, rows: Ints, until: float) -> None:
        state = rows // sweeps.rewards.shape[1]
        first = np.diff(state, prepend=-1) > 0
        rows = np.concatenate([rows[first], rows[~first]])
        self._chain, self._rewards, self._gamma = (
            sweeps.rows[rows],
            sweeps.rewards.reshape(-1)[rows],
            sweeps.gamma,
        )
        self._others, self._action_values = state[~first], np.empty(len(rows))
        self.until = until

    def best(self, values: np.ndarray, out: np.ndarray) -> None:
        """out ← max_a [ r + γ P values ] over these actions."""
        chain, action_values = self._chain, self._action_values
        action_values.fill(0.0)
        add_product(chain.indptr, chain.indices, chain.data, values, action_values)
        action_values *= self._gamma
        action_values += self._rewards
        out[:] = action_values[: len(out)]
        np.maximum.at(out, self._others, action_values[len(out) :])


def largest_of_each(table: np.ndarray, out: np.ndarray) -> np.ndarray:
    """out ← the largest entry of each row of `table` [B, A]. A few columns are compared one by one,
    which is much faster in numpy."""
    if table.shape[1] > 16:
        return np.maximum.reduce(table, axis=1, out=out)
    out[:] = table[:, 0]
    for column in table.T[1:]:
        np.maximum(out, column, out=out)
    return out


def first_best_of_each(table: np.ndarray, best: np.ndarray, out: np.ndarray) -> None:
    """out ← the first column of each row of `table` [B, A] that holds the row's maximum, `best`
    [B]."""
    if table.shape[1] > 16:
        np.argmax(table, axis=1, out=out)
        return
    later = table[:, 0] != best
    out[:] = later
    for column in table.T[1:-1]:
        later &= column != best
        out += later


def _numbers(first: int, last: int) -> tuple[Any, Any]:
    return np.uint64(first), np.uint64(last)


def _as_unsigned(numbers: np.ndarray) -> np.ndarray:
    """The same bits; none of them is negative."""
    return numbers.view(np.uint32 if numbers.itemsize == 4 else np.uint64)
