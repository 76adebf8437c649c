"""Least-squares TD: solve for TD's fixed point directly instead of iterating towards it.

    A ← 0, b ← 0, π ← the given policy
    for each step
        a ← an action of π(·|s)
        take a, see r and s'
        A ← A + x(s) [ x(s) - γ x(s') ]ᵀ;   b ← b + r x(s)
    when values are needed: w ← the solution of A w = b           v(s) = w·x(s)

x(s') counts as 0 where the episode terminated. There is no step size, and all data are used in
full: with one feature per state, w is the value in the model estimated by counting the steps
(certainty equivalence). A step costs d² operations and a solution d³, where TD needs d. With
`trace_decay` λ, a trace z ← γλ z + x(s) replaces the first x(s); λ = 1 is least squares on the
returns.

Source: Bradtke & Barto 1996, doi:10.1007/BF00114723; with λ: Boyan 2002,
doi:10.1023/A:1017936530646; Sutton & Barto 2018, section 9.8. Differences: A is stored and solved,
where the book's box updates the inverse, which needs an ε on the diagonal; while A is
singular, the solution of least norm is used, which is 0 for features not yet seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlbook.agent import Metrics, State, Step
from rlbook.algorithms.tabular.prediction.given_policy import (
    UNIFORM,
    GivenPolicy,
    check_epsilon,
    plain_policy,
)
from rlbook.algorithms.value.linear import LinearPrediction
from rlbook.checks import at_least, saved_array, unit_interval
from rlbook.errors import RequestError
from rlbook.functional.linear_td import least_squares_solution
from rlbook.interaction.features import FeatureConfig


def lstd_update(
    A: NDArray[np.float64],
    b: NDArray[np.float64],
    trace: NDArray[np.float64],
    x: NDArray[np.float64],
    reward: float,
    next_x: NDArray[np.float64],
    gamma: float,
    trace_decay: float = 0.0,
) -> None:
    """One step, in place on A [d, d], b [d] and z [d].

    Args:
        A, b: the sums, whose solution w is `least_squares_solution`.
        trace: z, which with λ = 0 is x(s).
        x, next_x: [d], features of s and s'; those of s' are 0 where the episode terminated.
        reward: in reward units.
        gamma, trace_decay: γ and λ, in [0, 1].
    """
    trace *= gamma * trace_decay
    trace += x
    difference = x - gamma * next_x
    A += np.outer(trace, difference)
    b += reward * trace


MOST = 2_000
"""The largest number of features: A then takes 32 MB, in memory and in each checkpoint, and a
solution some seconds."""


@dataclass(frozen=True)
class LSTDConfig(FeatureConfig):
    # discount γ per environment step, in [0, 1]
    gamma: Annotated[float, unit_interval] = 0.99
    # λ, in [0, 1]; 0: TD's fixed point, 1: least squares on the returns
    trace_decay: Annotated[float, unit_interval] = 0.0
    # policy to evaluate: uniform; with discrete states also optimal, epsilon-greedy, one action per
    # state, or a .json file
    policy: GivenPolicy = UNIFORM
    # probability ε with which the policy acts uniformly at random instead, in [0, 1]
    epsilon: Annotated[float, unit_interval] = 0.0
    # discrete values per dimension of a continuous action, at least 2
    action_bins: Annotated[int, at_least(2)] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "policy", plain_policy(self.policy))
        check_epsilon(self.policy, self.epsilon)


class LSTD(LinearPrediction):
    """Least-squares TD; see the module docstring. Acts in one environment."""

    Config = LSTDConfig
    METRICS: ClassVar[dict[str, str]] = {}  # w is not known while it learns

    def __init__(self, env: gymnasium.Env, config: LSTDConfig, seed: int = 0) -> None:
        """Raises ValueError where there are too many features, or the policy does not fit."""
        super().__init__(env, config, seed)  # type: ignore[arg-type]  # it has no step size
        d = self.features.num_features
        if d > MOST:
            raise RequestError(
                f"there would be {d:,} features, but lstd solves for at most {MOST:,}"
            )
        self.a, self.b, self.trace = np.zeros((d, d)), np.zeros(d), np.zeros(d)

    def begin(self) -> None:
        self.trace[:] = 0.0

    def learn(self, step: Step) -> Metrics:
        x, next_x = self.features.vector(step.obs), self.features.vector(step.next_obs)
        next_x = np.zeros_like(x) if step.terminated else next_x
        config, sums = self.config, (self.a, self.b, self.trace)
        lstd_update(*sums, x, step.reward, next_x, config.gamma, config.trace_decay)
        self._solution = None
        return {}

    @property
    def weights(self) -> NDArray[np.float64]:  # type: ignore[override]  # here it is computed
        """w of all steps so far, those of an unfinished episode included: [d, 1]."""
        if self._solution is None:
            self._solution = least_squares_solution(self.a, self.b)[:, None]
        return self._solution

    @weights.setter
    def weights(self, weights: NDArray[np.float64]) -> None:
        self._solution: NDArray[np.float64] | None = weights

    def state_dict(self) -> State:
        sums = {"a": self.a.copy(), "b": self.b.copy(), "trace": self.trace.copy()}
        return super().state_dict() | sums

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        for name in ("a", "b", "trace"):
            shape = getattr(self, name).shape
            setattr(self, name, saved_array(name, state[name], np.float64, shape))
