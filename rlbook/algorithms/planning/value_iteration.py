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
where states are numbered along the way; the interval does not hold then, only the first stop.

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
from rlbook.algorithms.planning.bounds import EPS, extrapolated, from_largest_change, half_width, middle
from rlbook.algorithms.planning.greedy import TIE
from rlbook.algorithms.planning.sweeps import Sweeps, sweeps_of
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.checks import check_fields, non_negative, one_of, positive_int, unit_interval
from rlbook.envs.mdp import TabularMDP


@dataclass(frozen=True)
class ValueIterationConfig:
    """Hyper-parameters of value iteration."""

    gamma: float = 0.99                      # discount γ per environment step, in [0, 1]
    tolerance: float = 1e-8                  # how far V may be from V* in the end, in reward units, at least 0
    sweep: str = "synchronous"               # "synchronous", or "gauss-seidel": in place, state after state
    max_sweeps: int = 100_000                # stop after this many sweeps, whatever the error, at least 1

    def __post_init__(self) -> None:
        check_fields(
            self, gamma=unit_interval, tolerance=non_negative, sweep=one_of("synchronous", "gauss-seidel"), max_sweeps=positive_int,
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
        self._low = self._high = self._change = self._bound = self._loss = math.inf
        self._travelled = 0.0                  # the changes so far, added up: no value is larger
        self._sweeps: Sweeps | None = None
        self._spare = np.empty(0)

    def _sweep(self, model: TabularMDP) -> None:
        config, sweeps = self.config, self._sweeps_over(model)
        if config.sweep == "synchronous":
            low, high = sweeps.optimal(self._values, self._spare)
            self._values, self._spare = self._spare, self._values
        else:
            low, high = sweeps.in_place(self._values)
        centred = config.sweep == "synchronous" and not sweeps.can_end
        self._judge(low, high, centred=centred)
        enough = self._bound <= config.tolerance or self._only_rounding()
        if enough and centred:
            self._values += middle(low, high, config.gamma)
        self._finished = enough or self._sweeps_done + 1 >= config.max_sweeps

    def _judge(self, low: float, high: float, *, centred: bool) -> None:
        """What the extreme changes of a sweep prove, about the middle of the interval (`centred`) or about V as it is."""
        gamma, last_change, self._change = self.config.gamma, self._change, max(-low, high)
        self._travelled += self._change
        if gamma == 1:
            self._bound, self._loss = extrapolated(self._change, last_change), math.inf
            return
        self._bound = half_width(low, high, gamma) if centred else from_largest_change(self._change, gamma)
        loss = gamma * (high - low) if self.config.sweep == "synchronous" else 2 * self._bound
        self._loss = (loss + self._tie(self._travelled)) / (1 - gamma)

    def _only_rounding(self) -> bool:
        """Whether V no longer changes by more than float64 rounds."""
        if self._change > 4 * EPS * self._travelled:
            return False
        return self._change <= 4 * EPS * float(np.abs(self._values).max())

    def _tie(self, size: float) -> float:
        """What counts as a tie, in reward units: what rounding does to values of this size, or less than V is known by."""
        if self.config.gamma == 1:
            return TIE * max(1.0, size)
        return min(TIE * max(1.0, size), max((1 - self.config.gamma) * self._bound, 16 * EPS * size))

    def _slack(self) -> float:
        return self._tie(float(np.abs(self._values).max()) if self.config.gamma < 1 else float(np.abs(self._current_action_values()).max()))

    def _metrics(self, model: TabularMDP) -> Metrics:
        metrics = {"change": self._change, "value": float(model.initial @ self._values)}
        proved = {"bound": self._bound, "policy_loss_bound": self._loss}
        return metrics | {name: value for name, value in proved.items() if math.isfinite(value)}

    def _sweeps_over(self, model: TabularMDP) -> Sweeps:
        if self._sweeps is None:
            self._sweeps = sweeps_of(model.continues_by_state, model.rewards, self.config.gamma, can_end=model.can_end)
            self._spare = np.empty(self._num_states)
        return self._sweeps

    def _progress(self) -> State:
        return {"change": self._change, "bound": self._bound, "travelled": self._travelled}

    def _set_progress(self, state: State) -> None:
        self._change, self._bound, self._travelled = float(state["change"]), float(state["bound"]), float(state["travelled"])
