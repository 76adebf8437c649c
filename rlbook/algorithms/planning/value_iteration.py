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

When it stops. For γ < 1 every sweep proves V + γ l / (1 - γ) ≤ V* ≤ V + γ h / (1 - γ), with 0 taken among the changes where
episodes can end. It stops when half the width of this interval is within the tolerance, and moves V to the middle. (The usual
stop, γ / (1 - γ) · max |V' - V| ≤ tolerance, takes as many sweeps or more, and far more where nothing ends.) For γ = 1 no sweep
proves anything of the kind: it stops when the changes, if they go on shrinking as in the last two sweeps, add up to no more
than the tolerance. On a deterministic map that is when nothing changes at all, and then V is exact.

Source: Bellman 1957; Sutton & Barto 2018, section 4.4, the box on page 83. Deliberate differences: synchronous, with two arrays,
where the box overwrites one; and stopped by a bound on the error where the box takes the last change (MacQueen 1966,
doi:10.1016/0022-247X(66)90060-9; Puterman 1994, theorem 6.6.3). How ties are broken: `greedy.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rlbook.agent import Metrics, Planner, State, Step
from rlbook.algorithms.planning.greedy import greedy_policy
from rlbook.checks import check_fields, non_negative, positive_int, unit_interval
from rlbook.envs.mdp import TabularMDP


@dataclass(frozen=True)
class ValueIterationConfig:
    """Hyper-parameters of value iteration."""

    gamma: float = 0.99                      # discount γ per environment step, in [0, 1]
    tolerance: float = 1e-8                  # how far V may be from V* in the end, in reward units, at least 0
    max_sweeps: int = 100_000                # stop after this many sweeps, whatever the error, at least 1

    def __post_init__(self) -> None:
        check_fields(self, gamma=unit_interval, tolerance=non_negative, max_sweeps=positive_int)


class ValueIteration(Planner):
    """Value iteration on a `TabularMDP` with S states and A actions."""

    Config = ValueIterationConfig
    METRICS: ClassVar[dict[str, str]] = {
        "sweep": "sweeps over all states so far",
        "change": "largest change of a state's value in this sweep, in reward units",
        "bound": "half the width of the interval that V* is known to lie in, in reward units (for gamma 1 an estimate, once there is one)",
        "value": "value of the states where episodes begin, in reward units",
    }
    observations = "index"
    actions = "discrete"

    def __init__(self, env: Any, config: ValueIterationConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        num_states, num_actions = int(env.observation_space.n), int(env.action_space.n)
        self._values = np.zeros(num_states)
        self._action_values = np.zeros((num_states, num_actions))
        self._policy: np.ndarray | None = None
        self._sweep = 0
        self._change = math.inf

    def plan(self, model: TabularMDP) -> Iterator[Metrics]:
        """Sweeps until V is known to the tolerance; one item a sweep.

        Raises:
            ValueError: the model's states are not what the agent observes.
        """
        self.check_model(model)
        while self._policy is None:
            yield self._sweep_once(model)

    def _sweep_once(self, model: TabularMDP) -> Metrics:
        gamma, last_change = self.config.gamma, self._change
        self._action_values = model.backup(self._values, gamma)
        values = self._action_values.max(axis=1)
        low, high = _extremes(values - self._values, or_zero=bool(model.ends.any()))
        bound = _remaining_error(low, high, last_change, gamma)
        self._values, self._change, self._sweep = values, max(abs(low), abs(high)), self._sweep + 1
        rounding = 4 * np.finfo(float).eps * float(np.abs(values).max())
        if bound <= self.config.tolerance or self._change <= rounding:
            self._move_to_the_middle(model, low, high)
        if bound <= self.config.tolerance or self._change <= rounding or self._sweep >= self.config.max_sweeps:
            self._policy = greedy_policy(model, self._action_values)
        metrics = {"sweep": self._sweep, "change": self._change, "value": float(model.initial @ self._values)}
        return metrics | ({"bound": bound} if math.isfinite(bound) else {})

    def _move_to_the_middle(self, model: TabularMDP, low: float, high: float) -> None:
        """V in the middle of the interval that V* is known to lie in, and the Q and V that follow from it."""
        gamma = self.config.gamma
        shift = gamma / (1 - gamma) * (low + high) / 2 if gamma < 1 else 0.0
        self._action_values = model.backup(self._values + shift, gamma)
        self._values = self._action_values.max(axis=1)

    def check_model(self, model: TabularMDP) -> None:
        """Raises ValueError where the observation is not the number of the model's state."""
        num_states, num_actions = self._action_values.shape
        if not model.observable:
            raise ValueError("value_iteration acts by the state's number, and here the observation does not tell which state it is.")
        if (model.num_states, model.num_actions) != (num_states, num_actions):
            seen, modelled = f"{num_states} observations and {num_actions} actions", f"{model.num_states} states and {model.num_actions}"
            raise ValueError(f"value_iteration acts by the state's number, but the agent has {seen} and the model {modelled}.")

    def values(self) -> np.ndarray:
        """V(s): [S], in reward units."""
        return self._values.copy()

    def action_values(self) -> np.ndarray:
        """Q(s, a): [S, A], in reward units."""
        return self._action_values.copy()

    def greedy_policy(self) -> np.ndarray:
        """[S] int: the action taken in each state. While planning is not finished, the first of the best so far."""
        return self._action_values.argmax(axis=1) if self._policy is None else self._policy.copy()

    def act(self, observation: Any, *, explore: bool = True) -> int:
        """The greedy action; a planner has nothing to explore."""
        return int(self._action_values[observation].argmax() if self._policy is None else self._policy[observation])

    def learn(self, step: Step) -> Metrics:
        """Nothing: the model was known."""
        return {}

    def state_dict(self) -> State:
        return {
            "values": self._values,
            "action_values": self._action_values,
            "policy": self._policy,
            "sweep": self._sweep,
            "change": self._change,
        }

    def load_state_dict(self, state: State) -> None:
        self._values, self._action_values = np.array(state["values"]), np.array(state["action_values"])
        self._policy = None if state["policy"] is None else np.array(state["policy"])
        self._sweep, self._change = int(state["sweep"]), float(state["change"])


def _extremes(change: np.ndarray, *, or_zero: bool) -> tuple[float, float]:
    """The smallest and the largest change; where episodes can end, what lies behind the end changes by 0."""
    low, high = float(change.min()), float(change.max())
    return (min(low, 0.0), max(high, 0.0)) if or_zero else (low, high)


def _remaining_error(low: float, high: float, last_change: float, gamma: float) -> float:
    """How far the middle of the interval is from V* at most; for γ = 1 what the changes add up to if they go on shrinking like this."""
    if gamma < 1:
        return gamma / (1 - gamma) * (high - low) / 2
    change = max(abs(low), abs(high))
    if change == 0:
        return 0.0
    if not change < last_change < math.inf:
        return math.inf
    rate = change / last_change
    return change * rate / (1 - rate)
