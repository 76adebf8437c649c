"""What prediction agents share: they follow a given policy and learn a table V(s) of its values.

The policy is a hyper-parameter (see `given_policy`) and never changes; if the environment shows
action masks, it is restricted to the allowed actions. `memory.policy` holds its cumulative
probabilities, so that one uniform number samples an action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import gymnasium
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.agent import Metrics
from rlbook.algorithms.tabular.prediction.given_policy import (
    GivenPolicy,
    check_cumulative,
    check_epsilon,
    cumulative,
    plain_policy,
    probabilities,
    restrict_policy,
)
from rlbook.algorithms.tabular.records import Memory, Settings
from rlbook.algorithms.tabular.tabular_agent import TableAgent, TableConfig
from rlbook.checks import at_least, finite, unit_interval
from rlbook.envs.tabular.outcomes import draw
from rlbook.functional.schedules import CONSTANT, Constant, Inverse, scheduled_value


class PredictionMemory(Memory):
    """The tables of an agent with a table V(s)."""

    v: NDArray[np.float64]  # [S], in reward units
    policy: NDArray[np.float64]  # [S, A]: Σ_{b ≤ a} π(b|s)


def policy_action(memory: PredictionMemory, settings: Settings, rng: Generator, state: int) -> int:
    """An action of the given policy, drawn with one uniform number."""
    return draw(memory.policy[state], 0, rng)


def state_step_size(memory: PredictionMemory, settings: Settings, state: int) -> float:
    """The current α for this entry of V, in (0, 1]. Call it once an update: it counts them."""
    if settings.counting:
        memory.visits[state] += 1
    if settings.alpha.kind == CONSTANT:
        return settings.alpha.start
    return scheduled_value(settings.alpha, memory.clock[0], memory.visits[state])


@dataclass(frozen=True)
class PredictionConfig(TableConfig):
    """Hyper-parameters that all agents with a table V(s) share."""

    # policy to evaluate: uniform, optimal, epsilon-greedy, one action per state, or a .json file
    policy: GivenPolicy = "uniform"
    # probability ε with which the policy acts uniformly at random instead, in [0, 1]
    epsilon: Annotated[float, unit_interval] = 0.0
    # initial V, in reward units
    initial_value: Annotated[float, finite] = 0.0
    # bins per dimension of a continuous observation, at least 1
    bins: Annotated[int, at_least(1)] = 8
    # discrete values per dimension of a continuous action, at least 2
    action_bins: Annotated[int, at_least(2)] = 5
    # if the environment has a model, step in its tables instead: the same results, faster
    simulate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "policy", plain_policy(self.policy))
        check_epsilon(self.policy, self.epsilon)


class PredictionAgent(TableAgent):
    """An agent with a table V [S] of the policy it follows. Its config is a `PredictionConfig`."""

    memory: PredictionMemory
    budget = {"episodes": 1_000}
    choose = staticmethod(policy_action)
    seeks_return = False
    METRICS: ClassVar[dict[str, str]] = {
        "td_error": "mean of |δ|, how far the table was from its targets, in reward units",
        "alpha": "step size (not with a 1/N schedule)",
    }

    def __init__(self, env: gymnasium.Env, config: PredictionConfig, seed: int = 0) -> None:
        """Raises ValueError if the policy does not fit the environment."""
        self._given = probabilities(config.policy, env, config.gamma, config.epsilon)
        self._target_policy = self._given.copy()
        super().__init__(env, config, seed)

    @property
    def target_policy(self) -> np.ndarray:
        """π(a|s), whose values are learned: [S, A]."""
        return self._target_policy.copy()

    @property
    def v(self) -> np.ndarray:
        """V(s): [S], in reward units."""
        return self.memory.v

    def make_settings(self) -> Settings:
        alpha = self.config.alpha
        counting, moving = isinstance(alpha, Inverse), not isinstance(alpha, Constant | Inverse)
        return Settings(float(self.config.gamma), alpha.numbers, counting, moving)

    def make_memory(self) -> PredictionMemory:
        table = np.full(self.num_states, float(self.config.initial_value))
        visits = np.zeros(self.num_states, dtype=np.int64)
        policy = cumulative(self._target_policy)
        return PredictionMemory(clock=np.zeros(1), visits=visits, v=table, policy=policy)

    def check_saved(self, tables: dict[str, np.ndarray]) -> None:
        super().check_saved(tables)
        check_cumulative("policy", tables["policy"])

    def rates(self) -> Metrics:
        alpha = self.config.alpha
        return {} if isinstance(alpha, Inverse) else {"alpha": alpha(self.progress)}

    def forbid(self, state: int, allowed: NDArray[np.bool_], memory: Any = None) -> None:
        """Restricts the policy that is followed and evaluated to the allowed actions."""
        row = self._target_policy[state] = restrict_policy(self._given[state], allowed)
        policy = (self.memory if memory is None else memory).policy
        policy[state][:] = cumulative(row[None])[0].tolist()

    def greedy_action(self, state: int, action_mask: NDArray[np.bool_] | None = None) -> int:
        """The policy's most probable action; the first one among ties."""
        row = self._target_policy[state]
        return int((row if action_mask is None else restrict_policy(row, action_mask)).argmax())

    def values(self) -> np.ndarray:
        """V(s): [S], in reward units."""
        return self.memory.v.copy()
