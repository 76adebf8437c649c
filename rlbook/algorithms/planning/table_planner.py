"""What the planners share: a table of values, the policy that follows from it, and when to stop."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from rlbook.agent import Metrics, Planner, State
from rlbook.algorithms.exact_metrics import EXACT_METRICS
from rlbook.algorithms.planning.bounds import ErrorBound, largest_absolute
from rlbook.algorithms.planning.greedy import TIE, greedy_policy
from rlbook.algorithms.planning.planner_config import ModelSpaces, NumberedSpaces, PlannerOptions
from rlbook.algorithms.planning.undiscounted import ending_policy, gaining_states, resting_states
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.errors import TrainingError

CONVERGED = (
    "in the last report: 1 if the stopping rule was met, 0 if planning stopped at max_sweeps, so "
    "that the values are less accurate than requested"
)
SETTLED = 32
"""Sweeps after which it is checked, with γ = 1, whether rewards add up to infinity; then at 64 …"""


class TablePlanner(Planner):
    """A planner with V(s) for each of S states.

    A subclass says what one sweep does (`_sweep`) and what is told of it (`_metrics`). Q and the
    policy are worked out from V when they are asked for.
    """

    name: ClassVar[str]
    """Its name on the command line."""
    observations = "index"
    actions = "discrete"

    def __init_subclass__(cls) -> None:
        cls.METRICS = cls.METRICS | {"converged": CONVERGED} | EXACT_METRICS

    def __init__(self, env: NumberedSpaces, config: PlannerOptions, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self._num_states = int(env.observation_space.n)
        self._num_actions = int(env.action_space.n)
        self._values = np.zeros(self._num_states)
        self._bound = ErrorBound(config.gamma)
        self._sweeps_done = 0
        self._finished = False
        self.converged = False
        """Whether the stopping rule was met; False if `max_sweeps` was reached first."""
        self._reported = True  # whether V is reported between two sweeps
        self._work: Any = None  # what a fast form keeps between two sweeps
        self._model: TabularMDP | None = None
        self._action_values: np.ndarray | None = None  # of the present V, once asked for
        self._policy: np.ndarray | None = None  # the same

    @classmethod
    def solve(cls, model: TabularMDP, **config: object) -> Self:
        """Plans in a model without a run, which is much faster for small models.

        Args:
            model: S states, A actions.
            config: hyper-parameters, as for `rlbook.train`.

        Returns:
            The agent: `values()`, `action_values()`, `greedy_policy()`. Where `max_sweeps` was
            given and reached before the values were close enough, `converged` is False.

        Raises:
            ValueError: a hyper-parameter out of range, a model that this planner cannot plan in,
                or γ = 1 where no policy has finite values.
            TrainingError: rewards that add up to infinity, or the limit on sweeps reached although
                none was given.
        """
        agent = cls(ModelSpaces.from_model(model), cls.Config(**config))
        agent.check_model(model)
        agent._reported = False
        while not agent._finished:
            agent._sweep(model)
            agent._sweeps_done += 1
        if not agent.converged and "max_sweeps" not in config:
            gamma, limit = agent.config.gamma, agent.config.max_sweeps
            why = "; with gamma 1 values may have no limit" if gamma == 1 else ""
            raise TrainingError(
                f"{cls.name}: values were not within tolerance after max_sweeps = {limit} "
                f"sweeps{why}; raise max_sweeps or tolerance, or choose gamma below {gamma:g}"
            )
        return agent

    def plan(self, model: TabularMDP) -> Iterator[Metrics]:
        """One item a sweep, until the stopping rule is met or `max_sweeps` is reached.

        Raises:
            ValueError: a model that this agent cannot plan in.
            TrainingError: γ = 1, and rewards add up to infinity.
        """
        self.check_model(model)
        while not self._finished:
            self._sweep(model)
            self._sweeps_done += 1
            self._action_values = self._policy = None
            last = {"converged": float(self.converged)} if self._finished else {}
            yield {"sweep": self._sweeps_done} | self._metrics(model) | last

    @abstractmethod
    def _sweep(self, model: TabularMDP) -> None:
        """Improves `_values`; calls `_end_sweep`. `_sweeps_done` sweeps are done already."""

    def _metrics(self, model: TabularMDP) -> Metrics:
        """The metrics of the last sweep."""
        return self._bound.metrics() | {"value": float(model.initial @ self._values)}

    def _record_sweep(self, low: float, high: float, *, apart: int = 1) -> None:
        """Records a sweep that changed values by `low` to `high`; stops if the bounds are tight
        enough.

        In the end, and at the limit too, V moves to the middle of what is proved.
        """
        self._bound.record_sweep(low, high, apart=apart)
        self._end_sweep(self._bound.is_reached(self.tolerance, self._values))
        if self._finished:
            self._values += self._bound.shift

    def _end_sweep(self, converged: bool) -> None:
        """Stops if the values are accurate enough, at the limit, or if they grow without bound."""
        done = self._sweeps_done + 1
        self.converged = converged
        self._finished = converged or done >= self.config.max_sweeps
        settled = done >= SETTLED and (done & (done - 1) == 0 or self._finished)
        if self.config.gamma == 1 and not converged and settled:
            self._check_finite()

    def _check_finite(self) -> None:
        """Raises TrainingError if, with γ = 1, the greedy policy collects reward forever."""
        assert self._model is not None
        states, gain = gaining_states(self._model, self._values)
        if states:
            raise TrainingError(
                f"{self.name}: with gamma 1 there are no finite values: in {states} states a "
                f"policy never ends the episode and is paid {gain:.3g} a step; rewards add up to "
                f"infinity"
            )

    @property
    def tolerance(self) -> float:
        """The allowed error of V, in reward units; smaller if all rewards are small."""
        assert self._model is not None
        return self.config.tolerance * min(1.0, self._model.largest_reward)

    def check_model(self, model: TabularMDP) -> None:
        """Raises ValueError if the model does not fit, or γ = 1 and some state has no end."""
        if not model.observable:
            raise ValueError(
                f"{self.name} acts by the state's index, but the observation does not identify "
                "the state here."
            )
        if (model.num_states, model.num_actions) != (self._num_states, self._num_actions):
            seen = f"{self._num_states} observations and {self._num_actions} actions"
            modelled = f"{model.num_states} states and {model.num_actions}"
            raise ValueError(
                f"{self.name} acts by the state's index, but the agent has {seen} and the model "
                f"{modelled}."
            )
        if self._model is not model:
            self._check_values(model)
        self._model, self._bound.can_end = model, model.can_end

    def _check_values(self, model: TabularMDP) -> None:
        """Raises ValueError if γ = 1 and every policy has infinite cost from some state."""
        if self.config.gamma == 1:
            ending_policy(model, resting_states(model))

    def values(self) -> np.ndarray:
        """V(s): [S], in reward units."""
        return self._values.copy()

    def action_values(self) -> np.ndarray:
        """Q(s, a): [S, A], in reward units; zeros before anything was planned."""
        return self._current_action_values().copy()

    def greedy_policy(self) -> np.ndarray:
        """[S] int: greedy with respect to Q; during planning, the first best action."""
        return self._current_policy().copy()

    def act(
        self,
        observation: int,
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> int:
        """The greedy action, or the best one that a mask [A] allows; there is no exploration."""
        self.check_one(observation)
        planned = int(self._current_policy()[observation])
        if action_mask is None or action_mask[planned]:
            return planned
        values = self._current_action_values()[observation]
        return int(np.where(action_mask, values, -np.inf).argmax())

    def state_dict(self) -> State:
        progress = {
            "values": self._values,
            "sweep": self._sweeps_done,
            "finished": self._finished,
            "converged": self.converged,
        }
        return progress | self._progress()

    def load_state_dict(self, state: State) -> None:
        values = np.array(state["values"], dtype=np.float64)
        if values.shape != self._values.shape:
            shape = list(values.shape)
            raise ValueError(f"values must have shape [{self._num_states}], got {shape}.")
        self._values, self._sweeps_done = values, int(state["sweep"])
        self._finished, self.converged = bool(state["finished"]), bool(state["converged"])
        self._action_values = self._policy = self._work = None
        self._set_progress(state)

    def _progress(self) -> State:
        """The state of a subclass besides the values."""
        return self._bound.state_dict()

    def _set_progress(self, state: State) -> None:
        """The inverse of `_progress`."""
        self._bound.load_state_dict(state)

    def _tie_tolerance(self) -> float:
        """The difference, in reward units, up to which action values count as equal."""
        return TIE * largest_absolute(self._values)

    def _current_action_values(self) -> np.ndarray:
        if self._action_values is not None:
            return self._action_values
        if self._model is None:
            return np.zeros((self._num_states, self._num_actions))
        self._action_values = action_values = self._model.backup(self._values, self.config.gamma)
        return action_values

    def _current_policy(self) -> np.ndarray:
        if self._policy is not None:
            return self._policy
        action_values = self._current_action_values()
        policy = action_values.argmax(axis=1)
        if self._finished and self._model is not None:
            policy = greedy_policy(self._model, action_values, self._tie_tolerance())
        self._policy = policy
        return policy
