"""Hyper-parameters of every planner, which estimates a model if the environment has none.

See `rlbook.runs.planning_models`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol

from gymnasium.spaces import Discrete

from rlbook.checks import at_least, positive_int
from rlbook.hyperparameters import Hyperparameters

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP


@dataclass(frozen=True)
class PlannerConfig(Hyperparameters):
    """Hyper-parameters that all planners share."""

    # without a model: environment steps to estimate one from, at least 1
    sampled_steps: Annotated[int, positive_int] = 20_000
    # bins per dimension of a continuous observation, at least 1
    bins: Annotated[int, positive_int] = 8
    # discrete values per dimension of a continuous action, at least 2
    action_bins: Annotated[int, at_least(2)] = 5


class PlannerOptions(Protocol):
    """The hyper-parameters of any planner."""

    @property
    def gamma(self) -> float:
        """Discount γ per environment step, in [0, 1]."""
        ...


class NumberedSpaces(Protocol):
    """The part of an environment's interface that a planner uses."""

    @property
    def observation_space(self) -> Discrete: ...

    @property
    def action_space(self) -> Discrete: ...


class ModelSpaces(NamedTuple):
    """The `NumberedSpaces` of a model without an environment around it."""

    observation_space: Discrete  # S
    action_space: Discrete  # A

    @classmethod
    def from_model(cls, model: TabularMDP) -> ModelSpaces:
        """The spaces of a model with S states and A actions."""
        return cls(Discrete(model.num_states), Discrete(model.num_actions))
