"""What the planners share: a table of values, the policy that follows from it, and a stop that can be resumed from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from rlbook.agent import Metrics, Planner, State
from rlbook.algorithms.exact_metrics import EXACT_METRICS
from rlbook.algorithms.planning.greedy import TIE, greedy_policy
from rlbook.envs.mdp import TabularMDP
from rlbook.fast.sweeps import Sweeps, largest, sweeps_of


class TablePlanner(Planner):
    """A planner with V(s) for each of S states. A subclass says what one sweep does (`_sweep`) and what is told of it (`_metrics`).

    Q and the policy are worked out from V when they are asked for, since they are the larger part of a large model.
    """

    presets = {
        "CartPole-v1": {"bins": 16, "sampled_steps": 200_000},
        "TabularMDP": {"eval_every": 0},               # playing it would take far longer than planning
    }
    name: ClassVar[str]
    """What the command line calls it."""
    observations = "index"
    actions = "discrete"

    def __init_subclass__(cls) -> None:
        cls.METRICS = cls.METRICS | EXACT_METRICS

    def __init__(self, env: Any, config: Any, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self._num_states, self._num_actions = int(env.observation_space.n), int(env.action_space.n)
        self._values = np.zeros(self._num_states)
        self._sweeps_done = 0
        self._finished = False
        self._unobserved = False                       # nobody looks at V between two sweeps
        self._model: TabularMDP | None = None
        self._sweeps: Sweeps | None = None
        self._spare = np.empty(0)                      # [S] to sweep into
        self._action_values: np.ndarray | None = None  # of the present V, once asked for
        self._policy: np.ndarray | None = None         # the same

    @classmethod
    def solve(cls, model: TabularMDP, **config: Any) -> Self:
        """Plans in a model without a run around it, which for small models is much the faster way.

        Args:
            model: S states, A actions.
            config: hyper-parameters, as for `rlbook.train`.

        Returns:
            The agent: `values()`, `action_values()`, `greedy_policy()`.

        Raises:
            ValueError: a hyper-parameter out of range, or a model that this planner cannot plan in.
        """
        agent = cls(_Spaces(_Size(model.num_states), _Size(model.num_actions)), cls.Config(**config))
        agent.check_model(model)
        agent._unobserved = True
        while not agent._finished:
            agent._sweep(model)
            agent._sweeps_done += 1
        return agent

    def plan(self, model: TabularMDP) -> Iterator[Metrics]:
        """One item a sweep, until the stopping rule is met.

        Raises:
            ValueError: a model that this agent cannot plan in.
        """
        self.check_model(model)
        while not self._finished:
            self._sweep(model)
            self._sweeps_done += 1
            self._action_values = self._policy = None
            yield {"sweep": self._sweeps_done} | self._metrics(model)

    @abstractmethod
    def _sweep(self, model: TabularMDP) -> None:
        """Improves `_values`; sets `_finished` where they are good enough. `_sweeps_done` sweeps came before."""

    @abstractmethod
    def _metrics(self, model: TabularMDP) -> Metrics:
        """What the log tells of the last sweep."""

    def check_model(self, model: TabularMDP) -> None:
        """Raises ValueError where the observation is not the number of the model's state."""
        if not model.observable:
            raise ValueError(f"{self.name} acts by the state's number, and here the observation does not tell which state it is.")
        if (model.num_states, model.num_actions) != (self._num_states, self._num_actions):
            seen = f"{self._num_states} observations and {self._num_actions} actions"
            modelled = f"{model.num_states} states and {model.num_actions}"
            raise ValueError(f"{self.name} acts by the state's number, but the agent has {seen} and the model {modelled}.")
        self._model = model

    def values(self) -> np.ndarray:
        """V(s): [S], in reward units."""
        return self._values.copy()

    def action_values(self) -> np.ndarray:
        """Q(s, a): [S, A], in reward units; zeros before the agent has seen a model."""
        return self._current_action_values().copy()

    def greedy_policy(self) -> np.ndarray:
        """[S] int: the action taken in each state, greedy with respect to Q. While planning is not finished, the first of the best."""
        return self._current_policy().copy()

    def act(self, observation: Any, *, explore: bool = True) -> int:
        """The greedy action; a planner has nothing to explore."""
        return int(self._current_policy()[observation])

    def state_dict(self) -> State:
        return {"values": self._values, "sweep": self._sweeps_done, "finished": self._finished} | self._progress()

    def load_state_dict(self, state: State) -> None:
        values = np.array(state["values"], dtype=np.float64)
        if values.shape != self._values.shape:
            raise ValueError(f"values must have shape [{self._num_states}], got {list(values.shape)}.")
        self._values, self._sweeps_done, self._finished = values, int(state["sweep"]), bool(state["finished"])
        self._action_values = self._policy = None
        self._set_progress(state)

    def _progress(self) -> State:
        """What a subclass needs beside the values to go on."""
        return {}

    def _set_progress(self, state: State) -> None:
        """The inverse of `_progress`."""

    def _tie(self) -> float:
        """Action values that differ by no more, in reward units, count as equal."""
        return TIE * max(1.0, largest(self._values))

    def _sweeps_over(self, model: TabularMDP) -> Sweeps:
        if self._sweeps is None:
            self._sweeps = sweeps_of(model.continues_by_state, model.rewards, self.config.gamma, can_end=model.can_end)
            self._spare = np.empty(self._num_states)
        return self._sweeps

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
            policy = greedy_policy(self._model, action_values, self._tie())
        self._policy = policy
        return policy


class _Size(NamedTuple):
    n: int


class _Spaces(NamedTuple):
    """As much of an environment as a planner looks at."""

    observation_space: _Size
    action_space: _Size
