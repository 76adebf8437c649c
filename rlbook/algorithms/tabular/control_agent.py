"""What agents with a table Q(s, a) share: acting by it, and exploration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rlbook.agent import Metrics, State
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
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings
from rlbook.algorithms.tabular.tabular_agent import Choose, TableAgent, TableConfig, Update
from rlbook.checks import at_least, finite, non_negative, one_of, positive, unit_interval
from rlbook.errors import TrainingError
from rlbook.functional.schedules import Constant, Inverse, Linear, Schedule
from rlbook.hyperparameters import counts_visits

LOWEST = float(np.finfo(np.float64).min)
"""The lowest finite float, which represents -∞ in a checkpoint."""


@dataclass(frozen=True)
class ControlConfig(TableConfig):
    """Hyper-parameters that all agents with a table Q(s, a) share."""

    # probability ε of a random action, in [0, 1]
    epsilon: Annotated[Schedule, unit_interval, counts_visits] = Linear(1.0, 0.05)
    # how actions are chosen while learning: epsilon-greedy, softmax or ucb
    exploration: Annotated[str, one_of(*KINDS)] = "epsilon-greedy"
    # softmax: τ, the difference in Q that makes an action e times as likely, in reward units, > 0
    temperature: Annotated[Schedule, positive] = Constant(1.0)
    # ucb: weight c of the bonus for rarely tried actions, in reward units, at least 0
    confidence: Annotated[float, non_negative] = 2.0
    # initial Q, in reward units; optimistic if above the largest true value
    initial_value: Annotated[float, finite] = 0.0
    # bins per dimension of a continuous observation, at least 1
    bins: Annotated[int, at_least(1)] = 8
    # discrete values per dimension of a continuous action, at least 2
    action_bins: Annotated[int, at_least(2)] = 5
    # if the environment has a model, step in its tables instead: the same results, faster
    simulate: bool = True


def _constant_value(schedule: Schedule) -> float:
    """The value of a constant schedule; -1 for any other."""
    return float(schedule.value) if isinstance(schedule, Constant) else -1.0


class ControlAgent(TableAgent):
    """An agent with a table Q [S, A] that it acts by. Its config is a `ControlConfig`."""

    memory: ControlMemory
    settings: ControlSettings
    choose = staticmethod(explore)
    value_tables: ClassVar[tuple[str, ...]] = ("q",)
    """The tables [S, A] of action values, in which a forbidden action has value -∞."""
    on_policy: ClassVar[bool] = False
    """Whether Q(s, a) is the value of the acting policy, exploration included."""
    METRICS: ClassVar[dict[str, str]] = {
        "td_error": "mean of |δ|, how far the table was from its targets, in reward units",
        "epsilon": "probability of a random action (ε-greedy; not with a 1/N schedule, which "
        "differs between states)",
        "alpha": "step size (not with a 1/N schedule)",
        "temperature": "softmax temperature τ, in reward units",
    }

    def forbid(self, state: int, allowed: NDArray[np.bool_], memory: Any = None) -> None:
        """Raises TrainingError if this state's mask differs from the one seen before: Q(s, a)
        cannot be finite at one time and -∞ at another.
        """
        mask = allowed.tobytes()
        before = self._shown_masks.setdefault(int(state), mask)
        if before != mask:
            first = np.frombuffer(before, dtype=np.bool_).astype(int).tolist()
            raise TrainingError(
                f"the action mask of state {state} was {first} and is now "
                f"{allowed.astype(int).tolist()}: a table of action values needs masks that "
                "depend only on the state; smaller cells (bins) or an agent with a network, "
                "such as dqn, may help"
            )
        for name in self.value_tables:
            table = getattr(self.memory if memory is None else memory, name)
            forbid(table[state], allowed, float(self.config.initial_value))

    @cached_property
    def _shown_masks(self) -> dict[int, bytes]:
        """State → its mask [A] as bytes, for the states whose masks were seen; after loading, for
        those in which something is forbidden.
        """
        return {}

    @property
    def q(self) -> np.ndarray:
        """Q(s, a): [S, A], in reward units; -∞ for actions that are forbidden in s."""
        return self.memory.q

    @property
    def alpha(self) -> float:
        """The current step size, in (0, 1]; of a 1/N schedule the first one."""
        return self.config.alpha(self.progress)

    @property
    def epsilon(self) -> float:
        """The current probability of a random action, in [0, 1]; of a 1/N schedule that of a new
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
            fixed_alpha=-1.0 if counting else _constant_value(alpha),
            fixed_epsilon=_constant_value(epsilon),
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
        """A best action, always the same one; see `deterministic_argmax`."""
        row = self.memory.q[state].tolist()
        if action_mask is not None:
            forbid(row, action_mask, float(self.config.initial_value))
        return deterministic_argmax(row, int(state))

    def values(self) -> np.ndarray:
        """max_a Q(s, a): [S], in reward units."""
        return self.action_values().max(axis=1)

    def action_values(self) -> np.ndarray:
        """Q(s, a): [S, A], in reward units; -∞ for actions that are forbidden in s."""
        return self.memory.q.copy()

    def state_dict(self) -> State:
        """A checkpoint holds only finite numbers: the lowest float stands for -∞."""
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
        self._shown_masks = {int(state): allowed[state].tobytes() for state in masked}

    def own_policy(self) -> np.ndarray | None:
        """π(a|s), [S, A]: the on-policy agent's current policy, exploration included.

        None of an off-policy agent, and of UCB, which is not a distribution.
        """
        if not self.on_policy or self.settings.exploration == UCB:
            return None
        self.memory.clock[0] = self.progress
        actions, states = range(self.num_actions), range(self.num_states)
        memory, settings = self.memory, self.settings
        return np.array([[probability(memory, settings, s, a) for a in actions] for s in states])
