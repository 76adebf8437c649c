"""Modified policy iteration: improve the policy, then evaluate it by only a few sweeps.

    V ← 0
    repeat
        π(s) ← argmax_a [ r(s, a) + γ Σ_s' P(s'|s, a) V(s') ],  V(s) ← the maximum
        stop if the changes of V show that it is close enough to V*
        repeat m times: V(s) ← r(s, π(s)) + γ Σ_s' P(s'|s, π(s)) V(s')     one action per state

Value iteration spends most of its work on suboptimal actions; policy iteration solves a linear
system for every policy, although most of them are soon replaced. This does neither: a sweep of the
last line evaluates one action instead of A. With m = 0 it is value iteration, with m = ∞ policy
iteration.

It stops as value iteration does (`bounds.py`). With γ = 1 an intermediate policy may never end the
episode, so states in which the agent can stay without reward are kept at 0 or above.

Source: Puterman & Shin 1978, doi:10.1287/mnsc.24.11.1127; Puterman 1994, section 6.5. No deliberate
difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from rlbook.algorithms.planning.bounds import largest_absolute
from rlbook.algorithms.planning.planner_config import NumberedSpaces, PlannerConfig
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.algorithms.planning.undiscounted import resting_states
from rlbook.checks import non_negative, non_negative_int, positive_int, unit_interval
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.fast_forms import has_fast_form


def improve(model: TabularMDP, V: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """V(s) ← max_a Q(s, a), and the action of the maximum, in all states at once: [S] each.

    Args:
        V: [S], in reward units.
        gamma: γ, in [0, 1].
    """
    Q = model.backup(V, gamma)  # [S, A]
    return Q.max(axis=1), Q.argmax(axis=1)


def evaluate(
    model: TabularMDP, policy: np.ndarray, V: np.ndarray, gamma: float, sweeps: int
) -> np.ndarray:
    """Sweeps V towards the values of a policy [S], one action a state: [S], in reward units."""
    P, r = model.chain(policy)  # [S, S], [S]
    for _ in range(sweeps):
        V = r + gamma * (P @ V)
    return V


@dataclass(frozen=True)
class ModifiedPolicyIterationConfig(PlannerConfig):
    """Hyper-parameters of modified policy iteration."""

    # discount γ per environment step, in [0, 1]
    gamma: Annotated[float, unit_interval] = 0.99
    # stop once V's error against V* is below this, in reward units (times the largest reward if
    # below 1), at least 0
    tolerance: Annotated[float, non_negative] = 1e-8
    # m, evaluation sweeps between improvements, at least 0
    evaluation_sweeps: Annotated[int, non_negative_int] = 10
    # stop after this many improvements, whatever the error, at least 1
    max_sweeps: Annotated[int, positive_int] = 100_000


class ModifiedPolicyIteration(TablePlanner):
    """Modified policy iteration on a `TabularMDP` with S states and A actions."""

    name = "modified_policy_iteration"
    Config = ModifiedPolicyIterationConfig
    METRICS: ClassVar[dict[str, str]] = {
        "sweep": "improvements so far, each a sweep over all states and actions",
        "change": "largest change of a state's value in the improving sweep, in reward units",
        "bound": "upper bound on the error of V against V* in any state, in reward units (with "
        "gamma 1 an estimate, once there is one)",
        "policy_loss_bound": "upper bound on V* minus the greedy policy's value in any state, in "
        "reward units (gamma below 1)",
        "value": "mean value of the initial states, in reward units",
    }

    def __init__(
        self, env: NumberedSpaces, config: ModifiedPolicyIterationConfig, seed: int = 0
    ) -> None:
        super().__init__(env, config, seed)
        self._resting: np.ndarray | None = None

    @has_fast_form
    def _sweep(self, model: TabularMDP) -> None:
        V, gamma, m = self._values, self.config.gamma, self.config.evaluation_sweeps
        self._values, policy = improve(model, V, gamma)
        changes = self._values - V
        self._record_sweep(float(changes.min()), float(changes.max()), apart=m + 1)
        if self._finished:
            return
        self._values = evaluate(model, policy, self._values, gamma, m)
        self._raise_to_zero(model)

    def _raise_to_zero(self, model: TabularMDP) -> None:
        """With γ = 1, V* is at least 0 in states where one can stay without a cost, whatever the
        current policy does there."""
        if self.config.gamma < 1:
            return
        if self._resting is None:
            self._resting = resting_states(model)
        self._values = np.where(self._resting, np.maximum(self._values, 0.0), self._values)

    def _tie_tolerance(self) -> float:
        return self._bound.tie_tolerance(largest_absolute(self._values))
