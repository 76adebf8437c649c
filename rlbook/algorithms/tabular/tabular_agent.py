"""What all agents with a table share: their memory, schedules and saving.

An algorithm itself is two functions over a `memory` of tables:

    choose(memory, settings, rng, state) → action
    update(memory, settings, rng, state, action, reward, next_state, terminated, truncated) → |δ|

An update that learned nothing yet, since it waits for later rewards, returns None.

The loop may call them through `act` and `learn`, one step at a time, or hand both to a faster
loop (see `simulation`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from rlbook.agent import Agent, Metrics, State, Step
from rlbook.algorithms.exact_metrics import EXACT_METRICS
from rlbook.algorithms.tabular.exploration import (
    EPSILON_GREEDY,
    FORBIDDEN,
    KINDS,
    UCB,
    WAYS,
    deterministic_argmax,
    explore,
    forbid,
    probability,
)
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings, Memory, Settings
from rlbook.checks import (
    ENDLESS,
    at_least,
    finite,
    non_negative,
    one_of,
    positive,
    positive_fraction,
    saved_array,
    unit_interval,
)
from rlbook.errors import TrainingError
from rlbook.functional.schedules import Constant, Inverse, Linear, Schedule
from rlbook.hyperparameters import Hyperparameters, counts_visits
from rlbook.seeding import rng_for, rng_state, set_rng_state

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP

LOWEST = float(np.finfo(np.float64).min)
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
    """The algorithm's way to act while learning; a plain function."""
    update: ClassVar[Update]
    """The algorithm's way to learn from one step; a plain function."""
    memory: Memory
    settings: Settings

    def __init_subclass__(cls) -> None:
        cls.METRICS = cls.METRICS | EXACT_METRICS

    def __init__(self, env: gymnasium.Env, config: TableConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self.num_states, self.num_actions = table_shape(env)
        self.rng = rng_for(seed, "exploration")
        self.settings, self.memory = self.make_settings(), self.make_memory()
        self._growing = {name for name, table in self._tables().items() if table.size == 0}

    @abstractmethod
    def make_settings(self) -> Settings:
        """The config as numbers."""

    @abstractmethod
    def make_memory(self) -> Memory:
        """The tables before the first step."""

    def sampled_model(self, model: TabularMDP | None) -> TabularMDP | None:
        """The `TabularMDP` to draw training episodes from, given the environment's own.

        None: the environment is stepped instead.
        """
        return model

    def make_room(self, steps: int) -> None:
        """Called before up to `steps` steps are taken at once.

        An agent that keeps whole episodes enlarges its tables here.
        """

    def functions(self) -> tuple[Choose, Update]:
        """`choose` and `update`, as the loops call them."""
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
        """The schedules' values now, where they are one number."""
        return {}

    @abstractmethod
    def forbid(self, state: int, allowed: NDArray[np.bool_], memory: Any = None) -> None:
        """Notes what the environment allows in a state, [A], in the tables; in those of `memory`,
        where given.
        """

    @abstractmethod
    def greedy_action(self, state: int, action_mask: NDArray[np.bool_] | None = None) -> int:
        """The action taken without exploration, of those that a mask [A] allows."""

    def greedy_policy(self) -> np.ndarray:
        """[S] int: the action taken without exploration."""
        return np.array([self.greedy_action(state) for state in range(self.num_states)])

    @abstractmethod
    def values(self) -> np.ndarray:
        """V(s): [S], in reward units."""

    def state_dict(self) -> State:
        tables = {name: np.array(table) for name, table in self._tables().items()}
        return {"memory": tables, "rng": rng_state(self.rng)}

    def _tables(self) -> dict[str, np.ndarray]:
        """What lasts; the clock is set before each step."""
        return {name: table for name, table in self.memory._asdict().items() if name != "clock"}

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`.

        Raises:
            ValueError: a table has another shape or type, or an index that is out of range.
        """
        saved, ranges = state["memory"], self._ranges()
        tables = {}
        for name, table in self._tables().items():
            any_number = (0, ENDLESS) if table.dtype.kind == "i" else (-math.inf, math.inf)
            low, high = ranges.get(name, any_number)
            shape = None if name in self._growing else table.shape
            tables[name] = saved_array(name, saved[name], table.dtype, shape, low=low, high=high)
        self.check_saved(tables)
        self.memory = self.memory._replace(**tables)
        set_rng_state(self.rng, state["rng"])

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """[low, high) of the numbers that are indices of a table, or lengths of lists of them."""
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
        """Raises ValueError where the saved tables contradict each other.

        An update could otherwise read outside them.
        """


@dataclass(frozen=True)
class ControlConfig(TableConfig):
    """Hyper-parameters that all agents with a table Q(s, a) share."""

    # probability ε of a random action, in [0, 1]
    epsilon: Annotated[Schedule, unit_interval, counts_visits] = Linear(1.0, 0.05)
    # how actions are chosen while learning: epsilon-greedy, softmax or ucb
    exploration: Annotated[str, one_of(*KINDS)] = "epsilon-greedy"
    # softmax: Q's difference that makes an action e times as likely, in reward units, > 0
    temperature: Annotated[Schedule, positive] = Constant(1.0)
    # ucb: weight c of the bonus for actions that were seldom tried, in reward units, at least 0
    confidence: Annotated[float, non_negative] = 2.0
    # Q before the first step, in reward units; above the largest value it is optimistic
    initial_value: Annotated[float, finite] = 0.0
    # cells per dimension that continuous observations are cut into, at least 1
    bins: Annotated[int, at_least(1)] = 8
    # values per dimension that continuous actions are chosen from, at least 2
    action_bins: Annotated[int, at_least(2)] = 5
    # learn in the tables of an environment that has a model: the same numbers, sooner
    simulate: bool = True


def is_mask_of_state(mask: NDArray[np.bool_] | None, terminated: bool, truncated: bool) -> bool:
    """Whether a mask after a step says what is allowed in the state that the step led to.

    Where an episode ends nobody acts, and a mask that allows everything may stand for none.
    """
    return mask is not None and not terminated and not (truncated and bool(mask.all()))


def _fixed(schedule: Schedule) -> float:
    """The value of a constant schedule; -1 for any other."""
    return float(schedule.value) if isinstance(schedule, Constant) else -1.0


class ControlAgent(TableAgent):
    """An agent with a table Q [S, A] that it acts by. Its config is a `ControlConfig`."""

    memory: ControlMemory
    settings: ControlSettings
    choose = staticmethod(explore)
    value_tables: ClassVar[tuple[str, ...]] = ("q",)
    """The tables [S, A] of action values, in which a forbidden action has the value -∞."""
    on_policy: ClassVar[bool] = False
    """Whether Q(s, a) are the values of the policy that acts, exploration included."""
    METRICS: ClassVar[dict[str, str]] = {
        "td_error": "mean of |δ|, how far the table was from its targets, in reward units",
        "epsilon": "probability of a random action (ε-greedy; not with a 1/N schedule, which "
        "differs between states)",
        "alpha": "step size (not with a 1/N schedule)",
        "temperature": "softmax temperature τ, in reward units",
    }

    def forbid(self, state: int, allowed: NDArray[np.bool_], memory: Any = None) -> None:
        """Raises TrainingError where this state's mask was another one before: Q(s, a) cannot be
        a number and -∞ by turns.
        """
        mask = allowed.tobytes()
        before = self._shown.setdefault(int(state), mask)
        if before != mask:
            first = np.frombuffer(before, dtype=np.bool_).astype(int).tolist()
            raise TrainingError(
                f"the action mask of state {state} was {first} and is now "
                f"{allowed.astype(int).tolist()}: a table of action values needs masks that follow "
                "from the state alone; smaller cells (bins) or an agent with a network, such as "
                "dqn, may help"
            )
        for name in self.value_tables:
            table = getattr(self.memory if memory is None else memory, name)
            forbid(table[state], allowed, float(self.config.initial_value))

    @cached_property
    def _shown(self) -> dict[int, bytes]:
        """State → its mask [A] as bytes, of the states whose masks were shown; after loading, of
        those in which something is forbidden.
        """
        return {}

    @property
    def q(self) -> np.ndarray:
        """Q(s, a): [S, A], in reward units; -∞ for actions that are forbidden in s."""
        return self.memory.q

    @property
    def alpha(self) -> float:
        """The step size now, in (0, 1]; of a 1/N schedule the first one."""
        return self.config.alpha(self.progress)

    @property
    def epsilon(self) -> float:
        """The probability of a random action now, in [0, 1]; of a 1/N schedule that of a new
        state.
        """
        return min(1.0, self.config.epsilon(self.progress))

    def functions(self) -> tuple[Choose, Update]:
        choose, update = super().functions()
        return (WAYS[self.config.exploration] if choose is explore else choose), update

    def make_settings(self) -> ControlSettings:
        config, kind = self.config, KINDS.index(self.config.exploration)
        alpha, epsilon, temperature = config.alpha, config.epsilon, config.temperature
        counting = kind == UCB or isinstance(alpha, Inverse) or isinstance(epsilon, Inverse)
        still = all(isinstance(item, Constant | Inverse) for item in (alpha, epsilon, temperature))
        return ControlSettings(
            gamma=float(config.gamma),
            alpha=alpha.numbers,
            counting=counting,
            moving=not still,
            epsilon=epsilon.numbers,
            exploration=kind,
            temperature=temperature.numbers,
            confidence=float(config.confidence),
            fixed_alpha=-1.0 if counting else _fixed(alpha),
            fixed_epsilon=_fixed(epsilon),
        )

    def make_memory(self) -> ControlMemory:
        shape = (self.num_states, self.num_actions)
        q = np.full(shape, float(self.config.initial_value))
        return ControlMemory(clock=np.zeros(1), visits=np.zeros(shape, dtype=np.int64), q=q)

    def rates(self) -> Metrics:
        config, kind = self.config, self.settings.exploration
        shown = {} if isinstance(config.alpha, Inverse) else {"alpha": self.alpha}
        if kind == EPSILON_GREEDY and not isinstance(config.epsilon, Inverse):
            shown["epsilon"] = self.epsilon
        if config.exploration == "softmax":
            shown["temperature"] = config.temperature(self.progress)
        return shown

    def greedy_action(self, state: int, action_mask: NDArray[np.bool_] | None = None) -> int:
        """A best action, always the same one; see `settled`."""
        row = self.action_values_of(state)
        if action_mask is not None:
            forbid(row, action_mask, float(self.config.initial_value))
        return deterministic_argmax(row, int(state))

    def action_values_of(self, state: int) -> list[float]:
        """Q(s, ·): [A], in reward units."""
        return self.memory.q[state].tolist()

    def values(self) -> np.ndarray:
        """max_a Q(s, a): [S], in reward units."""
        return self.action_values().max(axis=1)

    def action_values(self) -> np.ndarray:
        """Q(s, a): [S, A], in reward units; -∞ for actions that are forbidden in s."""
        return self.memory.q.copy()

    def state_dict(self) -> State:
        """A checkpoint holds finite numbers alone: the lowest of them stands for -∞."""
        state = super().state_dict()
        for name in self.value_tables:
            table = state["memory"][name]
            table[np.isneginf(table)] = LOWEST
        return state

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        for name in self.value_tables:
            table = getattr(self.memory, name)
            table[table == LOWEST] = FORBIDDEN
        allowed = getattr(self.memory, self.value_tables[0]) > FORBIDDEN
        masked = np.flatnonzero(~allowed.all(axis=1))
        self._shown = {int(state): allowed[state].tobytes() for state in masked}

    def own_policy(self) -> np.ndarray | None:
        """π(a|s), [S, A]: how an on-policy agent acts now, exploration included.

        None of an off-policy agent, and of UCB, which is no distribution.
        """
        if not self.on_policy or self.settings.exploration == UCB:
            return None
        self.memory.clock[0] = self.progress
        actions, states = range(self.num_actions), range(self.num_states)
        memory, settings = self.memory, self.settings
        return np.array([[probability(memory, settings, s, a) for a in actions] for s in states])
