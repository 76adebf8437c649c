"""What all agents with a table share: their memory, schedules and saving.

An algorithm itself is two functions over a `memory` of tables:

    choose(memory, settings, rng, state) → action
    update(memory, settings, rng, state, action, reward, next_state, terminated, truncated) → |δ|

An update that learns nothing yet, because it waits for later rewards, returns None.

The loop may call them through `act` and `learn`, one step at a time, or hand both to a faster
loop (see `simulation`).
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from rlbook.agent import Agent, Metrics, State, Step
from rlbook.algorithms.exact_metrics import EXACT_METRICS
from rlbook.algorithms.tabular.records import Memory, Settings, StepTables
from rlbook.checks import ENDLESS, positive_fraction, saved_array, unit_interval
from rlbook.functional.schedules import Constant, Schedule
from rlbook.hyperparameters import Hyperparameters, counts_visits
from rlbook.seeding import rng_for, rng_state, set_rng_state

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP

Choose = Callable[..., int]
"""(memory, settings, rng, state) → action."""
Update = Callable[..., float | None]
"""(memory, settings, rng, state, action, reward, next_state, terminated, truncated) → |δ|."""


def table_shape(env: gymnasium.Env) -> tuple[int, int]:
    """S and A of an adapted environment, whose states and actions are numbered from 0."""
    states, actions = env.observation_space, env.action_space
    assert isinstance(states, Discrete)
    assert isinstance(actions, Discrete)
    return int(states.n), int(actions.n)


@dataclass(frozen=True)
class TableConfig(Hyperparameters):
    """Hyper-parameters that all agents with a table share."""

    # discount γ per environment step, in [0, 1]
    gamma: Annotated[float, unit_interval] = 0.99
    # step size α, in (0, 1]
    alpha: Annotated[Schedule, positive_fraction, counts_visits] = Constant(0.1)


class TableAgent(Agent):
    """An agent whose whole state is a `memory` of numpy arrays and one generator."""

    budget = {"episodes": 500}
    observations = "index"
    actions = "discrete"
    choose: ClassVar[Choose]
    """The algorithm's action selection during learning; a plain function."""
    update: ClassVar[Update]
    """The algorithm's update from one step; a plain function."""
    memory: Memory
    settings: Settings

    def __init_subclass__(cls) -> None:
        cls.METRICS = cls.METRICS | EXACT_METRICS

    def __init__(self, env: gymnasium.Env, config: TableConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self.num_states, self.num_actions = table_shape(env)
        self.rng = rng_for(seed, "exploration")
        self.settings, self.memory = self.make_settings(), self.make_memory()

    @abstractmethod
    def make_settings(self) -> Settings:
        """The config as numbers."""

    @abstractmethod
    def make_memory(self) -> Memory:
        """The initial tables."""

    def sampled_model(self, model: TabularMDP | None) -> TabularMDP | None:
        """The `TabularMDP` to draw training episodes from, given the environment's own; None: the
        environment is stepped instead."""
        return model

    def step_tables(self) -> Sequence[StepTables]:
        """The tables that grow with the steps, empty at first; none for most algorithms."""
        return ()

    def make_room(self, steps: int) -> None:
        """Called before up to `steps` steps are taken at once: a table without room for them is
        enlarged at least twofold.
        """
        for names, used, most in self.step_tables():
            tables = {name: getattr(self.memory, name) for name in names}
            room = len(tables[names[0]])
            needed = min(most, int(getattr(self.memory, used)[0]) + steps)
            if room < needed:
                extra = min(most, max(needed, 2 * room)) - room
                longer = {
                    name: np.concatenate([table, np.zeros(extra, table.dtype)])
                    for name, table in tables.items()
                }
                self.memory = self.memory._replace(**longer)

    def functions(self) -> tuple[Choose, Update]:
        """`choose` and `update`, in the form that the loops call."""
        return type(self).choose, type(self).update

    def act(
        self,
        observation: int,
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> int:
        self.check_one(observation)
        if not explore:
            return self.greedy_action(observation, action_mask)
        if action_mask is not None:
            self.forbid(observation, action_mask)
        self.memory.clock[0] = self.progress
        choose, _ = self.functions()
        return int(choose(self.memory, self.settings, self.rng, observation))

    def _exploring_copy(self) -> Self:
        """With tables of its own, for acting writes masks into them, and at an episode's start."""
        shared = super()._exploring_copy()
        twin = copy.deepcopy(shared, {id(shared.rng): shared.rng})
        twin.begin()
        return twin

    def learn(self, step: Step) -> Metrics:
        if is_mask_of_state(step.next_action_mask, step.terminated, step.truncated):
            self.forbid(step.next_obs, step.next_action_mask)
        self.make_room(1)
        self.memory.clock[0] = self.progress
        _, update = self.functions()
        size = update(
            self.memory,
            self.settings,
            self.rng,
            step.obs,
            step.action,
            step.reward,
            step.next_obs,
            step.terminated,
            step.truncated,
        )
        return self.rates() | ({} if size is None else {"td_error": float(size)})

    def rates(self) -> Metrics:
        """The current values of the schedules that are a single number."""
        return {}

    @abstractmethod
    def forbid(self, state: int, allowed: NDArray[np.bool_], memory: Any = None) -> None:
        """Records the allowed actions of a state, [A], in the tables, or in those of `memory` if
        given.
        """

    @abstractmethod
    def greedy_action(self, state: int, action_mask: NDArray[np.bool_] | None = None) -> int:
        """The action taken without exploration, among those that a mask [A] allows."""

    def greedy_policy(self) -> np.ndarray:
        """[S] int: the action taken without exploration."""
        return np.array([self.greedy_action(state) for state in range(self.num_states)])

    @abstractmethod
    def values(self) -> np.ndarray:
        """V(s): [S], in reward units."""

    def state_dict(self) -> State:
        """Copies of the tables, without unused rows."""
        tables = {name: np.array(table) for name, table in self._tables().items()}
        for names, used, _ in self.step_tables():
            tables |= {name: tables[name][: int(tables[used][0])] for name in names}
        return {"memory": tables, "rng": rng_state(self.rng)}

    def _tables(self) -> dict[str, np.ndarray]:
        """The saved tables: all but the clock, which is set before each step."""
        return {name: table for name, table in self.memory._asdict().items() if name != "clock"}

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`.

        Raises:
            ValueError: a table has another shape or type, or an index that is out of range.
        """
        saved, ranges = state["memory"], self._ranges()
        growing = {name for each in self.step_tables() for name in each.names}
        tables = {}
        for name, table in self._tables().items():
            any_number = (0, ENDLESS) if table.dtype.kind == "i" else (-math.inf, math.inf)
            low, high = ranges.get(name, any_number)
            shape = None if name in growing else table.shape
            tables[name] = saved_array(name, saved[name], table.dtype, shape, low=low, high=high)
        self.check_saved(tables)
        self.memory = self.memory._replace(**tables)
        set_rng_state(self.rng, state["rng"])

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """The range [low, high) of entries that are indices of a table or lengths."""
        states, actions = (0, self.num_states), (0, self.num_actions)
        return {
            "states": states,
            "successors": states,
            "traced_states": states,
            "num_states": (0, self.num_states + 1),
            "successor": (-1, self.num_states),
            "actions": actions,
            "traced_actions": actions,
            "tried": actions,
            "num_tried": (0, self.num_actions + 1),
            "pending": (-1, self.num_actions),
            "traces": (0, math.inf),
        }

    def check_saved(self, tables: dict[str, np.ndarray]) -> None:
        """Raises ValueError where the saved tables contradict each other; an update could otherwise
        read outside them."""
        for names, used, most in self.step_tables():
            wanted = min(int(tables[used][0]), most)
            for name in names:
                if len(tables[name]) != wanted:
                    raise ValueError(
                        f"the saved {name} must have {wanted} entries, one for each step kept, "
                        f"got {len(tables[name])}"
                    )


def is_mask_of_state(mask: NDArray[np.bool_] | None, terminated: bool, truncated: bool) -> bool:
    """Whether the mask after a step is that of the state which the step led to.

    No action is taken where an episode ends, so a mask that allows everything may mean no mask.
    """
    return mask is not None and not terminated and not (truncated and bool(mask.all()))
