"""Prioritized sweeping: update the state whose value is most out of date, then tell those that lead to it.

    V ← 0;  p(s) ← | max_a r(s, a) |
    repeat
        s ← the state with the largest p(s);  p(s) ← 0
        δ ← max_a [ r(s, a) + γ Σ_s' P(s'|s, a) V(s') ] - V(s);  V(s) ← V(s) + δ              one backup
        for each predecessor u of s:  p(u) ← p(u) + γ max_a P(s|u, a) |δ|
    until the largest p shows that V is close enough to V*

A sweep over all states updates many to which nothing new has come. Here news travels backwards from where it arose, which on a maze with
one goal takes about one backup a state instead of one a state and sweep.

Because p(u) adds up everything that may have changed what u should be, it is never less than u's Bellman error. So for γ < 1 the values
are within max p / (1 - γ) of V*. For γ = 1 the factor is the number of steps that the greedy policy takes to the end, on average from
the worst state, and the bound an estimate.

Source: Moore & Atkeson 1993, doi:10.1007/BF00993104; Sutton & Barto 2018, section 8.4. Deliberate differences: plans in the true model
and not in a learned one; priorities add up where the box takes the last one, which is what makes the bound hold (Andre, Friedman & Parr
1997, Generalized prioritized sweeping).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from rlbook.agent import Metrics, State
from rlbook.algorithms.planning.bounds import EPS
from rlbook.algorithms.planning.greedy import greedy_policy
from rlbook.algorithms.planning.planner_config import PlannerConfig
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.checks import check_fields, non_negative, positive_int, unit_interval
from rlbook.envs.mdp import TabularMDP, check_ends


@dataclass(frozen=True)
class PrioritizedSweepingConfig(PlannerConfig):
    """Hyper-parameters of prioritized sweeping."""

    gamma: float = 0.99                      # discount γ per environment step, in [0, 1]
    tolerance: float = 1e-8                  # how far V may be from V* in the end, in reward units, at least 0
    max_sweeps: int = 10_000                 # stop after this many times S backups, whatever the error, at least 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, gamma=unit_interval, tolerance=non_negative, max_sweeps=positive_int)


class PrioritizedSweeping(TablePlanner):
    """Prioritized sweeping in a `TabularMDP` with S states and A actions."""

    name = "prioritized_sweeping"
    Config = PrioritizedSweepingConfig
    METRICS: ClassVar[dict[str, str]] = {
        "sweep": "reports so far, one after every S backups",
        "backups": "states updated so far",
        "queue": "states whose value may be out of date",
        "priority": "largest priority: no state's Bellman error is larger, in reward units",
        "bound": "how far V may be from V* in any state, in reward units (for gamma 1 an estimate)",
        "value": "value of the states where episodes begin, in reward units",
    }

    def __init__(self, env: Any, config: PrioritizedSweepingConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self._priority: list[float] = []               # [S]
        self._heap: list[tuple[float, int]] = []       # (-priority, state); what no longer agrees with `_priority` is passed over
        self._backups = 0
        self._horizon = 1.0 / (1.0 - config.gamma) if config.gamma < 1 else 1.0
        self._rows: Rows | None = None
        self._arrays: tuple[np.ndarray, np.ndarray] | None = None

    def _sweep(self, model: TabularMDP) -> None:
        if not self._priority:
            self._priority = np.abs(model.rewards.max(axis=1)).tolist()
        if is_dense(model):
            self._back_up_dense(model)
        self._heap = [(-p, s) for s, p in enumerate(self._priority) if p > 0]    # afresh, without what was passed over
        heapq.heapify(self._heap)
        if not is_dense(model):
            self._back_up_listed(model)
        self._finished = self._is_close(model) or self._sweeps_done + 1 >= self.config.max_sweeps

    def _back_up_listed(self, model: TabularMDP) -> None:
        if self._rows is None:
            self._rows = rows_of(model)
        values, end = self._values.tolist(), self._backups + self._num_states
        while self._backups < end and self._largest() * self._horizon > self.config.tolerance:
            self._backup(values, heapq.heappop(self._heap)[1], self._rows)
        self._values = np.array(values)

    def _back_up_dense(self, model: TabularMDP) -> None:
        """The same with whole rows at a time and without a heap, since nearly every state precedes nearly every other."""
        if self._arrays is None:
            self._arrays = arrays_of(model)
        chances, weights = self._arrays
        gamma, values, priority = self.config.gamma, self._values, np.array(self._priority)
        for _ in range(self._num_states):
            state = int(priority.argmax())
            if priority[state] * self._horizon <= self.config.tolerance:
                break
            best = (model.rewards[state] + gamma * (chances[state] @ values)).max()
            change = abs(best - values[state])
            values[state], priority[state] = best, 0.0
            self._backups += 1
            if change > 2 * EPS * abs(best):
                priority += (gamma * change) * weights[state]
        self._priority = priority.tolist()

    def _backup(self, values: list[float], state: int, rows: Rows) -> None:
        """Updates one state, and raises the priority of its predecessors."""
        gamma, priority, first = self.config.gamma, self._priority, state * self._num_actions
        best = max(
            rows.reward[row] + gamma * sum(rows.data[k] * values[rows.successor[k]] for k in range(rows.start[row], rows.start[row + 1]))
            for row in range(first, first + self._num_actions)
        )
        change = abs(best - values[state])
        values[state], priority[state] = best, 0.0
        self._backups += 1
        if change <= 2 * EPS * abs(best):
            return
        for k in range(rows.first[state], rows.first[state + 1]):
            before = rows.predecessor[k]
            priority[before] += gamma * rows.weight[k] * change
            heapq.heappush(self._heap, (-priority[before], before))

    def _largest(self) -> float:
        """The largest priority, in reward units."""
        heap, priority = self._heap, self._priority
        while heap and -heap[0][0] != priority[heap[0][1]]:
            heapq.heappop(heap)
        return -heap[0][0] if heap else 0.0

    def _is_close(self, model: TabularMDP) -> bool:
        largest = self._largest()
        if largest * self._horizon > self.config.tolerance:
            return False
        if self.config.gamma < 1 or largest == 0.0:
            return True
        before, self._horizon = self._horizon, max(self._horizon, self._steps_to_go(model))
        return largest * self._horizon <= self.config.tolerance or self._horizon == before

    def _steps_to_go(self, model: TabularMDP) -> float:
        """How many steps the greedy policy takes until the end, or until nothing is paid any more, on average from the worst state."""
        chain, rewards = model.chain(greedy_policy(model, model.backup(self._values, 1.0)))
        try:
            chain = check_ends(chain, rewards)
        except ValueError:  # not yet a policy that ends
            return 10.0 * self._horizon
        return float(splu(sparse.csc_array(sparse.eye_array(len(rewards)) - chain)).solve(np.ones(len(rewards))).max())

    def _metrics(self, model: TabularMDP) -> Metrics:
        largest, queue = self._largest(), sum(p > 0 for p in self._priority)
        known = {"backups": self._backups, "queue": queue, "priority": largest, "bound": largest * self._horizon}
        return known | {"value": float(model.initial @ self._values)}

    def _progress(self) -> State:
        return {"priority": np.array(self._priority), "backups": self._backups, "horizon": self._horizon}

    def _set_progress(self, state: State) -> None:
        self._priority, self._heap = np.array(state["priority"], dtype=np.float64).tolist(), []
        self._backups, self._horizon = int(state["backups"]), float(state["horizon"])


class Rows(NamedTuple):
    """A model as lists, which single numbers are read from faster than from arrays."""

    start: list[int]                         # [S·A + 1]; row s * A + a owns start[row] : start[row + 1]
    successor: list[int]
    data: list[float]                        # P(successor | s, a), the episode going on
    reward: list[float]                      # [S·A]
    first: list[int]                         # [S + 1]; the predecessors of s are first[s] : first[s + 1]
    predecessor: list[int]
    weight: list[float]                      # max_a P(s | predecessor, a)


def is_dense(model: TabularMDP) -> bool:
    """Whether at least half of all transitions are possible."""
    rows: Any = model.continues_by_state
    return 2 * rows.nnz >= rows.shape[0] * rows.shape[1]


def arrays_of(model: TabularMDP) -> tuple[np.ndarray, np.ndarray]:
    """P(s'|s, a), the episode going on: [S, A, S]; and max_a P(s|u, a) at [s, u]: [S, S]."""
    chances = model.continues_by_state.toarray().reshape(*model.rewards.shape, model.num_states)
    return chances, np.ascontiguousarray(chances.max(axis=1).T)


def rows_of(model: TabularMDP) -> Rows:
    """The lists of a model."""
    matrix: Any = model.continues_by_state
    first, predecessor, weight = _predecessors(matrix, model.num_actions)
    reward = model.rewards.reshape(-1).tolist()
    return Rows(matrix.indptr.tolist(), matrix.indices.tolist(), matrix.data.tolist(), reward, first, predecessor, weight)


def _predecessors(matrix: Any, num_actions: int) -> tuple[list[int], list[int], list[float]]:
    """`first`, `predecessor` and `weight` of `Rows`."""
    merged = matrix.copy()
    merged.sum_duplicates()
    state = np.repeat(np.arange(len(merged.indptr) - 1) // num_actions, np.diff(merged.indptr))
    order = np.lexsort((state, merged.indices))
    state, successor, weight = state[order], merged.indices[order].astype(np.int64), merged.data[order]
    starts = np.flatnonzero(np.diff(successor * len(merged.indptr) + state, prepend=-1))
    first = np.searchsorted(successor[starts], np.arange(merged.shape[1] + 1))
    largest = np.maximum.reduceat(weight, starts) if len(starts) else weight
    return first.tolist(), state[starts].tolist(), largest.tolist()
