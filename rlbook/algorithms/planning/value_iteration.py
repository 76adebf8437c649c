"""Value iteration: apply the Bellman optimality equation to every state at once, until nothing changes any more.

    V(s) ← max_a [ r(s, a) + γ Σ_s' P(s'|s, a) V(s') ]          where s' ends the episode, V(s') counts as 0

    V ← 0
    repeat
        Q  ← the bracket, for all s and a                        one sweep
        V' ← max_a Q
        l, h ← the smallest and the largest V'(s) - V(s)
        V  ← V'
    until l and h show that V is close enough to V*
    π(s) ← argmax_a Q(s, a)

The right-hand side pulls any two V closer together by the factor γ: it has one fixed point, V*, and leads there from anywhere.
It needs the model, and not one step in the environment.

When it stops. For γ < 1 it stops when γ / (1 - γ) · max |V' - V|, which the error cannot exceed, is within the tolerance. Where nothing
ever ends, the changes prove an interval around V* that narrows far sooner (`bounds.py`): then it stops when half the width is within
the tolerance, and moves V to the middle. For γ = 1 it stops when the changes, if they go on shrinking as in the last two sweeps, add up
to no more than the tolerance. On a deterministic map that is when nothing changes at all, and then V is exact.

With `sweep = "gauss-seidel"` there is one array, and later states of a sweep see the new values of earlier ones. That takes fewer sweeps
where states are numbered along the way; the interval does not hold then, only the first stop. "automatic" is synchronous, except that
on a large model with numba it looks at the interval every 4 sweeps: where it shrinks no faster than γ alone makes it, as on a map that
knowledge crosses cell by cell, it goes on in place, forwards and backwards in turn, from a V that lies below V*.

How good the policy is. If V is known to lie within ε of V*, acting greedily by V loses at most 2 ε / (1 - γ) against V*; the changes of
a sweep prove less: γ (h - l) / (1 - γ). That is `policy_loss_bound`.

Source: Bellman 1957; Sutton & Barto 2018, section 4.4, the box on page 83. Deliberate differences: synchronous by default, with two
arrays, where the box overwrites one; and stopped by a bound on the error where the box takes the last change (MacQueen 1966,
doi:10.1016/0022-247X(66)90060-9; Puterman 1994, theorem 6.6.3 and proposition 6.1.1). How ties are broken: `greedy.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rlbook.agent import Metrics, State
from rlbook.algorithms.planning.bounds import ErrorBound, Stop
from rlbook.algorithms.planning.planner_config import PlannerConfig
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.checks import check_fields, non_negative, one_of, positive_int, unit_interval
from rlbook.envs.mdp import TabularMDP
from rlbook.fast.sweeps import CompiledSweeps, Extremes, Sweeps, largest

LOOK = 4
"""Sweeps from one look at the interval to the next."""
AHEAD, SMALL = 8, 4_096
"""Sweeps made in one go with numba where a model has no more states than this; each is then reported as if it came alone."""
AT_ONCE = 32
"""The same where nobody looks between them."""
SLOW = 0.995
"""The interval shrinks slowly where each sweep leaves more of it than this times γ."""


@dataclass(frozen=True)
class ValueIterationConfig(PlannerConfig):
    """Hyper-parameters of value iteration."""

    gamma: float = 0.99                      # discount γ per environment step, in [0, 1]
    tolerance: float = 1e-8                  # how far V may be from V* in the end, in reward units, at least 0
    sweep: str = "automatic"                 # "synchronous"; "gauss-seidel": in place, state after state; or "automatic"
    max_sweeps: int = 100_000                # stop after this many sweeps, whatever the error, at least 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(
            self, gamma=unit_interval, tolerance=non_negative, sweep=one_of("automatic", "synchronous", "gauss-seidel"),
            max_sweeps=positive_int,
        )  # fmt: skip


class ValueIteration(TablePlanner):
    """Value iteration on a `TabularMDP` with S states and A actions."""

    name = "value_iteration"
    Config = ValueIterationConfig
    METRICS: ClassVar[dict[str, str]] = {
        "sweep": "sweeps over all states so far",
        "change": "largest change of a state's value in this sweep, in reward units",
        "bound": "how far V may be from V* in any state, in reward units (for gamma 1 an estimate, once there is one)",
        "policy_loss_bound": "V* minus the value of the greedy policy, in any state at most, in reward units (gamma below 1)",
        "value": "value of the states where episodes begin, in reward units",
    }

    def __init__(self, env: Any, config: ValueIterationConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self._bound = ErrorBound(config.gamma, in_place=config.sweep == "gauss-seidel")
        self._alternating = False              # "automatic" has changed to sweeps in place, forwards and backwards in turn
        self._ahead: list[tuple[Extremes, np.ndarray]] = []        # sweeps made but not yet taken in, the next one last
        self._width = math.inf                 # high - low when "automatic" last looked

    def _sweep(self, model: TabularMDP) -> None:
        config, bound, sweeps = self.config, self._bound, self._sweeps_over(model)
        if self._alternating and isinstance(sweeps, CompiledSweeps):
            bound.swept(*sweeps.solved(self._values, backwards=self._sweeps_done % 2 == 1))
        elif bound.in_place:
            bound.swept(*sweeps.in_place(self._values))
        else:
            self._sweep_synchronously(sweeps)
        enough = bound.error <= config.tolerance or (bound.is_rounding(bound.travelled) and bound.is_rounding(largest(self._values)))
        if enough:
            self._values += bound.shift
        self._finished = enough or self._sweeps_done + 1 >= config.max_sweeps

    def _sweep_synchronously(self, sweeps: Sweeps) -> None:
        bound = self._bound
        bound.centred = not sweeps.can_end
        low, high = self._next(sweeps)
        bound.swept(low, high)
        if self.config.sweep == "automatic" and bound.error > self.config.tolerance and isinstance(sweeps, CompiledSweeps):
            self._look(low, high)

    def _next(self, sweeps: Sweeps) -> Extremes:
        """V after one more sweep, which may have been made already."""
        if not self._ahead and isinstance(sweeps, CompiledSweeps) and not sweeps.is_shared and self.config.gamma < 1:
            count = AT_ONCE if self._unobserved else AHEAD if self._num_states <= SMALL else 1
            if count > 1:
                self._make(sweeps, count)
        if self._ahead:
            extremes, self._values = self._ahead.pop()
            return extremes
        extremes = sweeps.optimal(self._values, self._spare)
        self._values, self._spare = self._spare, self._values
        return extremes

    def _make(self, sweeps: CompiledSweeps, count: int) -> None:
        """Makes the next sweeps, up to one that ends the iteration or changes its ways."""
        config, done = self.config, self._sweeps_done
        shrinking = (SLOW * config.gamma) ** LOOK if config.sweep == "automatic" and config.gamma > 0 else math.inf
        factor = config.gamma / (1 - config.gamma)
        stop = Stop(factor, config.tolerance, self._bound.travelled, done, LOOK, self._width, shrinking)
        count = min(count, config.max_sweeps - done)
        self._ahead = sweeps.optimal_many(self._values, count, 1 if self._unobserved else count, stop)[::-1]

    def _look(self, low: float, high: float) -> None:
        """Changes to sweeps in place where the interval shrinks no faster than γ makes it. Then V starts from its lower end."""
        gamma = self.config.gamma
        if (self._sweeps_done + 1) % LOOK or gamma in (0, 1):
            return
        before, self._width = self._width, high - low
        if math.isfinite(before) and self._width > before * (SLOW * gamma) ** LOOK:
            self._alternating = self._bound.in_place = True
            self._bound.centred = False
            self._values += gamma / (1 - gamma) * low

    def _metrics(self, model: TabularMDP) -> Metrics:
        return self._bound.metrics() | {"value": float(model.initial @ self._values)}

    def _tie(self) -> float:
        return self._bound.tie(largest(self._values))

    def _progress(self) -> State:
        return self._bound.state_dict() | {"alternating": self._alternating, "width": self._width}

    def _set_progress(self, state: State) -> None:
        self._ahead = []
        self._bound.load_state_dict(state)
        self._alternating, self._width = bool(state["alternating"]), float(state["width"])
        self._bound.in_place = self._alternating or self.config.sweep == "gauss-seidel"
