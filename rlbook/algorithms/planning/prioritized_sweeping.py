"""Prioritized sweeping: update the state with the largest error, then its predecessors.

    V ← 0;  Q(s, a) ← r(s, a)
    repeat
        s ← the state with the largest | max_a Q(s, a) - V(s) |, its Bellman error
        δ ← max_a Q(s, a) - V(s);  V(s) ← V(s) + δ                                one backup
        for each state u and action a that may lead to s:
            Q(u, a) ← Q(u, a) + γ P(s|u, a) δ
    until the largest Bellman error shows that V is close enough to V*

A sweep over all states updates many whose successors have not changed. Here a change is propagated
only to the predecessors of the changed state, which on a maze with one goal takes about one backup
per state, instead of one per state and sweep.

For γ < 1 the values are within the largest Bellman error / (1 - γ) of V*. For γ = 1 the factor is
the expected number of steps of the greedy policy to the end, from the worst state, and the bound is
an estimate.

Source: Moore & Atkeson 1993, doi:10.1007/BF00993104; Sutton & Barto 2018, section 8.4. Deliberate
differences: plans in the true model, not a learned one; a state's priority is its Bellman error,
where the box uses the last change of a successor, which neither bounds the error nor accumulates.
Q is recomputed after every S backups, so that rounding errors do not accumulate.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from rlbook.agent import Metrics, State
from rlbook.algorithms.planning.bounds import EPS
from rlbook.algorithms.planning.greedy import greedy_policy
from rlbook.algorithms.planning.planner_config import NumberedSpaces, PlannerConfig
from rlbook.algorithms.planning.predecessors import (
    PredecessorLists,
    arrays_of,
    columns_of,
    is_dense,
)
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.checks import non_negative, positive_int, unit_interval
from rlbook.envs.tabular.mdp import TabularMDP, check_ends


def prioritized_sweeping_update(
    queue: Queue, columns: PredecessorLists, backups: int, *, horizon: float, tolerance: float
) -> int:
    """Updates the state with the largest Bellman error, again and again, in place.

    Args:
        queue: the values, and the states in the order of their Bellman errors.
        columns: says what leads to each state.
        backups: how many there are at most.
        horizon: how far V may be from V*, for each unit of the largest Bellman error.
        tolerance: how far it may be in the end, in reward units.

    Returns:
        How many backups there were.
    """
    for done in range(backups):
        state = queue.most_urgent()
        if queue.error[state] * horizon <= tolerance:
            return done
        queue.back_up(state, columns)
    return backups


class Queue:
    """A priority queue of states by their Bellman errors.

    As lists, which single numbers are read from faster than from arrays.
    """

    def __init__(self, model: TabularMDP, values: np.ndarray, gamma: float) -> None:
        action_values = model.backup(values, gamma)
        best = action_values.max(axis=1)
        self.gamma, self.num_actions = gamma, model.num_actions
        self.values, self.best = values.tolist(), best.tolist()  # V(s), max_a Q(s, a)
        self.action_values = action_values.ravel().tolist()  # Q(s, a)
        self.error = np.abs(best - values).tolist()
        self._heap = [(-error, s) for s, error in enumerate(self.error)]  # (-error, state)
        heapq.heapify(self._heap)

    def most_urgent(self) -> int:
        """The state with the largest Bellman error; outdated entries are skipped."""
        heap, error = self._heap, self.error
        while -heap[0][0] != error[heap[0][1]]:
            heapq.heappop(heap)
        return heap[0][1]

    def back_up(self, state: int, columns: PredecessorLists) -> None:
        """V(s) ← max_a Q(s, a), then updates the priorities of the predecessors of s."""
        best, action_values, size = self.best, self.action_values, self.num_actions
        change = best[state] - self.values[state]
        self.values[state] = best[state]
        self._note(state)
        for k in range(columns.start[state], columns.start[state + 1]):
            row = columns.row[k]
            before, u = action_values[row], row // size
            action_values[row] += self.gamma * columns.data[k] * change
            if action_values[row] > best[u]:
                best[u] = action_values[row]
                self._note(u)
            elif before == best[u]:  # it was the best, and is so no longer
                best[u] = max(action_values[u * size : u * size + size])
                self._note(u)

    def _note(self, state: int) -> None:
        self.error[state] = error = abs(self.best[state] - self.values[state])
        heapq.heappush(self._heap, (-error, state))


@dataclass(frozen=True)
class PrioritizedSweepingConfig(PlannerConfig):
    """Hyper-parameters of prioritized sweeping."""

    # discount γ per environment step, in [0, 1]
    gamma: Annotated[float, unit_interval] = 0.99
    # stop once V's error against V* is below this, in reward units (times the largest reward if
    # below 1), at least 0
    tolerance: Annotated[float, non_negative] = 1e-8
    # stop after this many times S backups (S states), whatever the error, at least 1
    max_sweeps: Annotated[int, positive_int] = 10_000


class PrioritizedSweeping(TablePlanner):
    """Prioritized sweeping in a `TabularMDP` with S states and A actions."""

    name = "prioritized_sweeping"
    Config = PrioritizedSweepingConfig
    METRICS: ClassVar[dict[str, str]] = {
        "sweep": "reports so far, one after every S backups",
        "backups": "states updated so far",
        "queue": "states waiting to be updated",
        "priority": "largest Bellman error of a state, in reward units",
        "bound": "upper bound on the error of V against V* in any state, in reward units (with "
        "gamma 1 an estimate)",
        "value": "mean value of the initial states, in reward units",
    }

    def __init__(
        self, env: NumberedSpaces, config: PrioritizedSweepingConfig, seed: int = 0
    ) -> None:
        super().__init__(env, config, seed)
        self._backups = 0
        self._horizon = 1.0 / (1.0 - config.gamma) if config.gamma < 1 else 1.0
        self._errors = np.zeros(self._num_states)  # Bellman errors [S] at the last report
        self._columns: PredecessorLists | None = None
        self._arrays: np.ndarray | None = None

    def _sweep(self, model: TabularMDP) -> None:
        if is_dense(model):
            self._back_up_dense(model)
        else:
            if self._columns is None:
                self._columns = columns_of(model)
            queue = Queue(model, self._values, self.config.gamma)
            limits = {"horizon": self._horizon, "tolerance": self.tolerance}
            self._backups += prioritized_sweeping_update(
                queue, self._columns, self._num_states, **limits
            )
            self._values = np.array(queue.values)
        action_values = model.backup(self._values, self.config.gamma)
        self._errors = np.abs(action_values.max(axis=1) - self._values)
        self._end_sweep(self._is_close(model))

    def _back_up_dense(self, model: TabularMDP) -> None:
        """The same update on whole arrays, for models in which almost every state can precede
        almost every other."""
        if self._arrays is None:
            self._arrays = arrays_of(model)
        gamma, values = self.config.gamma, self._values
        action_values = np.ascontiguousarray(model.backup(values, gamma))
        for _ in range(self._num_states):
            changes = action_values.max(axis=1) - values
            state = int(np.abs(changes).argmax())
            change = changes[state]
            if abs(change) * self._horizon <= self.tolerance:
                break
            values[state] += change
            self._backups += 1
            action_values += gamma * change * self._arrays[state]

    def _is_close(self, model: TabularMDP) -> bool:
        largest = float(self._errors.max())
        if largest * self._horizon > self.tolerance:
            return largest <= 4 * EPS * float(np.abs(self._values).max())
        if self.config.gamma < 1 or largest == 0.0:
            return True
        before, self._horizon = self._horizon, max(self._horizon, self._steps_to_go(model))
        return largest * self._horizon <= self.tolerance or self._horizon == before

    def _steps_to_go(self, model: TabularMDP) -> float:
        """The mean number of steps that the greedy policy takes to the end, from the worst state.

        Or until nothing is paid any more.
        """
        chain, rewards = model.chain(greedy_policy(model, model.backup(self._values, 1.0)))
        try:
            chain = check_ends(chain, rewards)
        except ValueError:  # not yet a policy that ends
            return 10.0 * self._horizon
        system = sparse.csc_array(sparse.eye_array(len(rewards)) - chain)
        return float(splu(system).solve(np.ones(len(rewards))).max())

    def _metrics(self, model: TabularMDP) -> Metrics:
        largest = float(self._errors.max())
        return {
            "backups": self._backups,
            "queue": int(np.count_nonzero(self._errors)),
            "priority": largest,
            "bound": largest * self._horizon,
            "value": float(model.initial @ self._values),
        }

    def _progress(self) -> State:
        return {"backups": self._backups, "horizon": self._horizon}

    def _set_progress(self, state: State) -> None:
        self._backups, self._horizon = int(state["backups"]), float(state["horizon"])
