"""Policy iteration: evaluate the policy exactly, act greedily by its values, and repeat.

    π ← greedy by V = 0
    repeat
        V ← the solution of V(s) = r(s, π(s)) + γ Σ_s' P(s'|s, π(s)) V(s')     a linear system
        for each s:  if max_a Q(s, a) > V(s):  π(s) ← argmax_a Q(s, a)                   improvement
    until no π(s) has changed

Each policy is better than the one before, and there are finitely many, so that it terminates,
usually after a few rounds. This holds only because an action is replaced only by a strictly better
one, never by an equal one: the textbook's box takes any maximum, and may alternate forever between
two equally good policies.

With γ = 1 only policies that end the episode, or reach states without further reward, have finite
values. It starts from such a policy (`undiscounted.py`), and strict improvement preserves this.

Source: Howard 1960; Sutton & Barto 2018, section 4.3, the box on page 80. Deliberate differences:
the linear system is solved, not iterated; ties keep the action (exercise 4.4); and the initial
policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from rlbook.agent import Metrics, State
from rlbook.algorithms.planning.bounds import EPS, largest_absolute
from rlbook.algorithms.planning.linear_solve import chain_values
from rlbook.algorithms.planning.planner_config import NumberedSpaces, PlannerConfig
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.algorithms.planning.undiscounted import ending_policy, resting_states
from rlbook.checks import positive_int, unit_interval
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.errors import TrainingError


def policy_iteration_update(
    model: TabularMDP,
    policy: np.ndarray,
    before: np.ndarray,
    gamma: float,
    *,
    first: bool = False,
    resting: np.ndarray | None = None,
) -> Improvement:
    """Evaluates a policy exactly and improves it, in place.

    Args:
        policy: [S] int.
        before: [S], V of the policy before, where the solution begins, in reward units. A policy
            that is no better than it is not improved any more.
        gamma: γ, in [0, 1].
        first: there was no policy before.
        resting: [S] bool, where nothing is done and nothing is paid, for γ = 1; None: nowhere.

    Raises:
        ValueError: the policy's values are infinite.
    """
    going_on = np.ones(len(policy), dtype=bool) if resting is None else ~resting
    chain, rewards = model.chain(policy)
    rewards = np.where(going_on, rewards, 0.0)
    values, residual = chain_values(chain, rewards, gamma, before, going_on)
    slack = max(
        64 * EPS * largest_absolute(values), 4 * residual
    )  # what may be an error of rounding
    improves = first or bool((values > before + slack).any())
    Q = model.backup(values, gamma)  # [S, A]
    better = (Q.max(axis=1) > values + slack) & improves
    policy[better] = Q[better].argmax(axis=1)
    return Improvement(values, better, max(0.0, float((Q.max(axis=1) - values).max())))


class Improvement(NamedTuple):
    """One round of policy iteration, for S states."""

    values: np.ndarray  # [S]: V of the policy before the improvement, in reward units
    better: np.ndarray  # [S] bool: where the policy was improved
    change: float  # the most that any action would still add to a state's value, in reward units


@dataclass(frozen=True)
class PolicyIterationConfig(PlannerConfig):
    """Hyper-parameters of policy iteration."""

    # discount γ per environment step, in [0, 1]
    gamma: Annotated[float, unit_interval] = 0.99
    # stop after this many policies, at least 1
    max_sweeps: Annotated[int, positive_int] = 10_000


class PolicyIteration(TablePlanner):
    """Policy iteration on a `TabularMDP` with S states and A actions."""

    name = "policy_iteration"
    Config = PolicyIterationConfig
    METRICS: ClassVar[dict[str, str]] = {
        "sweep": "policies evaluated so far",
        "changed": "states in which the policy was improved; 0 at the end",
        "change": "largest increase of a state's value by changing one action of the policy, "
        "in reward units",
        "bound": "upper bound on the error of V against V* in any state, in reward units (with "
        "gamma 1 the same as change)",
        "value": "mean value of the initial states under this policy, in reward units",
    }

    def __init__(self, env: NumberedSpaces, config: PolicyIterationConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self._actions: np.ndarray | None = None  # [S] int, what the policy does
        # where it does nothing instead, for which nothing is paid
        self._resting = np.zeros(self._num_states, dtype=bool)
        self._changed, self._change = self._num_states, np.inf

    def _sweep(self, model: TabularMDP) -> None:
        gamma, first = self.config.gamma, self._sweeps_done == 0
        actions = self._actions
        if actions is None and gamma < 1:
            actions = model.rewards.argmax(axis=1)
        elif actions is None:
            self._resting = resting_states(model)
            actions = ending_policy(model, self._resting)
        self._actions = actions
        try:
            self._values, better, self._change = policy_iteration_update(
                model, actions, self._values, gamma, first=first, resting=self._resting
            )
        except ValueError as error:
            raise TrainingError(
                f"policy_iteration: {str(error).rstrip('.')}; rewards add up to infinity"
            ) from None
        self._changed = int(np.count_nonzero(better))
        self._resting = self._resting & ~better
        self._end_sweep(converged=self._changed == 0)

    def _metrics(self, model: TabularMDP) -> Metrics:
        gamma = self.config.gamma
        bound = self._change / (1 - gamma) if gamma < 1 else self._change
        return {
            "changed": self._changed,
            "change": self._change,
            "bound": bound,
            "value": float(model.initial @ self._values),
        }

    def _check_finite(self) -> None:
        """Does nothing: solving for the values of a policy fails where they are infinite."""

    def _tie_tolerance(self) -> float:
        return 1e-11 * largest_absolute(self._values)

    def _progress(self) -> State:
        return {
            "actions": self._actions,
            "resting": self._resting,
            "changed": self._changed,
            "change": self._change,
        }

    def _set_progress(self, state: State) -> None:
        self._actions = None if state["actions"] is None else np.array(state["actions"])
        self._resting, self._changed, self._change = (
            np.array(state["resting"]),
            int(state["changed"]),
            float(state["change"]),
        )
