"""Policy iteration: work out what a policy is worth, act greedily by that, and repeat.

    π ← greedy by V = 0
    repeat
        V ← the solution of V(s) = r(s, π(s)) + γ Σ_s' P(s'|s, π(s)) V(s')     a linear system
        for each s:  if max_a Q(s, a) > V(s):  π(s) ← argmax_a Q(s, a)                   improvement
    until no π(s) has changed

Each policy is better than the one before, and there are finitely many, so it ends, most often after
a handful of rounds. That holds only because an action gives way to a strictly better one and never
to an equal one: where the box of the textbook takes any maximum, it may go back and forth between
two policies that are equally good, for ever.

With γ = 1 only policies that lead to an end, or to where nothing is paid any more, have finite
values. It starts from such a policy (`undiscounted.py`), and strict improvement never leaves them.

Source: Howard 1960; Sutton & Barto 2018, section 4.3, the box on page 80. Deliberate differences:
the linear system is solved and not iterated, ties keep the action (exercise 4.4), and the first
policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from rlbook.agent import Metrics, State
from rlbook.algorithms.planning.bounds import EPS, largest
from rlbook.algorithms.planning.linear_solve import chain_values
from rlbook.algorithms.planning.planner_config import NumberedSpaces, PlannerConfig
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.algorithms.planning.undiscounted import ending_policy, resting_states
from rlbook.checks import positive_int, unit_interval
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.errors import TrainingError


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
        "changed": "states in which the policy was improved; 0 in the end",
        "change": "largest difference that any action would still make to a state's value, in "
        "reward units",
        "bound": "how far V may be from V* in any state, in reward units (for gamma 1 the same as "
        "change)",
        "value": "value of the states where episodes begin under this policy, in reward units",
    }

    def __init__(self, env: NumberedSpaces, config: PolicyIterationConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self._actions: np.ndarray | None = None  # [S] int, what the policy does
        # where it does nothing instead, for which nothing is paid
        self._resting = np.zeros(self._num_states, dtype=bool)
        self._changed, self._change = self._num_states, np.inf

    def _sweep(self, model: TabularMDP) -> None:
        self._actions = self._actions if self._actions is not None else self._first_policy(model)
        before, first = self._values, self._sweeps_done == 0
        self._values, slack = self._evaluated(model, self._actions)
        improves = first or bool((self._values > before + slack).any())
        action_values = model.backup(self._values, self.config.gamma)
        better: np.ndarray = (action_values.max(axis=1) > self._values + slack) & improves
        self._change = max(0.0, float((action_values.max(axis=1) - self._values).max()))
        self._changed = int(np.count_nonzero(better))
        self._actions[better] = action_values[better].argmax(axis=1)
        self._resting = self._resting & ~better
        self._end_sweep(converged=self._changed == 0)

    def _first_policy(self, model: TabularMDP) -> np.ndarray:
        if self.config.gamma < 1:
            return model.rewards.argmax(axis=1)
        self._resting = resting_states(model)
        return ending_policy(model, self._resting)

    def _evaluated(self, model: TabularMDP, actions: np.ndarray) -> tuple[np.ndarray, float]:
        """V of a policy, [S], and what may be an error of its arithmetic, in reward units."""
        chain, rewards = model.chain(actions)
        try:
            values, residual = chain_values(
                chain,
                np.where(self._resting, 0.0, rewards),
                self.config.gamma,
                self._values,
                ~self._resting,
            )
        except ValueError as error:
            raise TrainingError(
                f"policy_iteration: {str(error).rstrip('.')}; rewards add up to infinity"
            ) from None
        return values, max(64 * EPS * largest(values), 4 * residual)

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
        """Nothing: each policy's values are solved for, and that fails where they are infinite."""

    def _tie(self) -> float:
        return 1e-11 * largest(self._values)

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
