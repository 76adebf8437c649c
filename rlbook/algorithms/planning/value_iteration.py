"""Value iteration: apply Bellman's optimality equation to all states until the values converge.

    V(s) ← max_a [ r(s, a) + γ Σ_s' P(s'|s, a) V(s') ]  where s' ends the episode, V(s') counts as 0

    V ← 0
    repeat
        Q  ← the bracket, for all s and a                        one sweep
        V' ← max_a Q
        l, h ← the smallest and the largest V'(s) - V(s)
        V  ← V'
    until l and h show that V is close enough to V*
    π(s) ← argmax_a Q(s, a)

The right-hand side is a contraction by the factor γ: it has one fixed point, V*, and converges to
it from any V. It needs the model, and no step in the environment.

When it stops. For γ < 1 it stops when γ / (1 - γ) · max |V' - V|, which bounds the error, is within
the tolerance. If episodes never end, the changes prove an interval around V* that narrows much
sooner (`bounds.py`): then it stops when half its width is within the tolerance, and moves V to the
middle. For γ = 1 it stops when the remaining changes, assuming that they keep shrinking as in the
last two sweeps, sum to at most the tolerance. On a deterministic map that is when nothing changes
at all, and then V is exact.

With `sweep = "gauss-seidel"` there is one array, and later states of a sweep see the new values of
earlier ones. This takes fewer sweeps if states are numbered along the way; the interval does not
hold then, only the first criterion. "automatic" is synchronous here. Its fast form
(`fast/tabular/planning.py`) may choose the order of updates, and stops by the same bounds: if the
interval shrinks no faster than by γ, as on a map where values propagate cell by cell, it sweeps in
place, over all actions or over the best ones.

How good the policy is. If V is known to lie within ε of V*, acting greedily by V loses at most 2 ε
/ (1 - γ) against V*; the changes of a sweep prove a tighter bound, γ (h - l) / (1 - γ). This is
`policy_loss_bound`.

Source: Bellman 1957; Sutton & Barto 2018, section 4.4, the box on page 83. Deliberate differences:
synchronous by default, with two arrays, where the box overwrites one; and stopped by a bound on the
error, where the box uses the last change (MacQueen 1966, doi:10.1016/0022-247X(66)90060-9; Puterman
1994, theorem 6.6.3 and proposition 6.1.1). How ties are broken: `greedy.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from rlbook.agent import State
from rlbook.algorithms.planning.bounds import largest_absolute
from rlbook.algorithms.planning.planner_config import NumberedSpaces, PlannerConfig
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.checks import non_negative, one_of, positive_int, unit_interval
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.fast_forms import has_fast_form


def value_iteration_update(model: TabularMDP, V: np.ndarray, gamma: float) -> np.ndarray:
    """V(s) ← max_a Q(s, a) in all states at once: one synchronous sweep.

    Args:
        V: [S], in reward units.
        gamma: γ, in [0, 1].
    """
    Q = model.backup(V, gamma)  # [S, A]
    return Q.max(axis=1)


def sweep_in_place(model: TabularMDP, V: np.ndarray, gamma: float) -> np.ndarray:
    """V(s) ← max_a Q(s, a), state after state, so that later ones see earlier ones' new values.

    Args:
        V: [S], in reward units; overwritten.
        gamma: γ, in [0, 1].

    Returns:
        V.
    """
    for s in range(model.num_states):
        V[s] = max(model.backup_of(s, V, gamma))
    return V


@dataclass(frozen=True)
class ValueIterationConfig(PlannerConfig):
    """Hyper-parameters of value iteration."""

    # discount γ per environment step, in [0, 1]
    gamma: Annotated[float, unit_interval] = 0.99
    # stop once V's error against V* is below this, in reward units (times the largest reward if
    # below 1), at least 0
    tolerance: Annotated[float, non_negative] = 1e-8
    # order of updates: "synchronous", "gauss-seidel" (in place, one state at a time) or "automatic"
    sweep: Annotated[str, one_of("automatic", "synchronous", "gauss-seidel")] = "automatic"
    # stop after this many sweeps, whatever the error, at least 1
    max_sweeps: Annotated[int, positive_int] = 100_000


class ValueIteration(TablePlanner):
    """Value iteration on a `TabularMDP` with S states and A actions."""

    name = "value_iteration"
    Config = ValueIterationConfig
    METRICS: ClassVar[dict[str, str]] = {
        "sweep": "sweeps over all states so far",
        "change": "largest change of a state's value in this sweep, in reward units",
        "bound": "upper bound on the error of V against V* in any state, in reward units, after V "
        "is moved to the middle of its bounds, as at the end (with gamma 1 an estimate)",
        "policy_loss_bound": "upper bound on V* minus the greedy policy's value in any state, in "
        "reward units (gamma below 1)",
        "value": "mean value of the initial states, in reward units",
    }

    def __init__(self, env: NumberedSpaces, config: ValueIterationConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self._bound.in_place = config.sweep == "gauss-seidel"
        self._width = math.inf  # h - l when the fast form last looked at it
        self._backwards = False  # whether its next sweep in place begins at the end
        # [S] int, the order of the states in its sweeps in place, where that is chosen
        self._order: np.ndarray | None = None

    @has_fast_form
    def _sweep(self, model: TabularMDP) -> None:
        V, gamma = self._values, self.config.gamma
        if self._bound.in_place:
            self._values = sweep_in_place(model, V.copy(), gamma)
        else:
            self._values = value_iteration_update(model, V, gamma)
        changes = self._values - V
        self._record_sweep(float(changes.min()), float(changes.max()))

    def _tie_tolerance(self) -> float:
        return self._bound.tie_tolerance(largest_absolute(self._values))

    def _progress(self) -> State:
        way = {
            "in_place": self._bound.in_place,
            "width": self._width,
            "backwards": self._backwards,
            "order": self._order,
        }
        return self._bound.state_dict() | way

    def _set_progress(self, state: State) -> None:
        self._bound.load_state_dict(state)
        self._bound.in_place, self._width = bool(state["in_place"]), float(state["width"])
        self._backwards, self._order = bool(state["backwards"]), None
        if state.get("order") is not None:
            self._order = np.array(state["order"])
            if not np.array_equal(np.sort(self._order), np.arange(self._num_states)):
                raise ValueError(f"order must name each of {self._num_states} states once.")
