"""Gradient TD: learn the values of one policy from the actions of another, without diverging.

    w, h ← 0, π ← the given policy, b ← the behaviour policy
    for each step
        a ← an action of b(·|s);   ρ ← π(a|s) / b(a|s)
        take a, see r and s'
        δ ← r + γ w·x(s') - w·x(s)
        w ← w + α ρ [ δ x(s) - γ (h·x(s)) x(s') ]                      (TDC)
        h ← h + β ρ [ δ - h·x(s) ] x(s)

Semi-gradient TD ignores how the target depends on w, and may diverge off-policy: function
approximation, bootstrapping and off-policy learning are the deadly triad. TDC follows the gradient
of the projected Bellman error, which needs two samples of s' or, as here, a second learner h that
estimates the TD error from the features. With `update` = gtd2, w moves by α ρ (h·x) (x - γ x').
x(s') counts as 0 where the episode terminated.

Source: Sutton et al. 2009, doi:10.1145/1553374.1553501; Sutton & Barto 2018, section 11.7.
Difference: α and β are divided by the number K of active binary features (see `linear`).
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
    plain_policy,
    restrict_policy,
)
from rlbook.algorithms.value.linear import LinearPrediction, LinearPredictionConfig
from rlbook.checks import one_of, positive, saved_array
from rlbook.functional.linear_td import gtd2_update, td_error, tdc_update
from rlbook.functional.schedules import Constant, Schedule

UPDATES = {"tdc": tdc_update, "gtd2": gtd2_update}


def gradient_td_update(
    weights: NDArray[np.float64],
    helper: NDArray[np.float64],
    x: NDArray[np.float64],
    reward: float,
    next_x: NDArray[np.float64],
    ratio: float,
    *,
    method: str,
    gamma: float,
    alpha: float,
    beta: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """One step: returns the new w and h, [d] each, and δ in reward units.

    Args:
        weights, helper: w and h, [d].
        x, next_x: [d], features of s and s'; those of s' are 0 where the episode terminated.
        reward: in reward units.
        ratio: ρ = π(a|s) / b(a|s).
        method: "tdc" or "gtd2".
        gamma: γ, in [0, 1].
        alpha, beta: step sizes of w and h.
    """
    error = td_error(weights, x, reward, next_x, gamma)
    step = {"gamma": gamma, "ratio": ratio, "alpha": alpha, "beta": beta}
    weights, helper = UPDATES[method](weights, helper, x, reward, next_x, **step)
    return weights, helper, error


@dataclass(frozen=True)
class GradientTDConfig(LinearPredictionConfig):
    # the behaviour policy b, in the same forms as `policy`; epsilon does not apply to it
    behavior: GivenPolicy = UNIFORM
    helper_alpha: Annotated[Schedule, positive] = Constant(0.1)  # step size β of h, > 0
    update: Annotated[str, one_of(*UPDATES)] = "tdc"  # update rule: tdc or gtd2

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "behavior", plain_policy(self.behavior))


class GradientTD(LinearPrediction):
    """TDC or GTD2; see the module docstring. Acts in one environment."""

    Config = GradientTDConfig
    METRICS: ClassVar[dict[str, str]] = LinearPrediction.METRICS | {
        "td_error": "mean of |δ|, how far v was from its targets, in reward units",
        "ratio": "mean importance ratio ρ; 1 in expectation",
    }

    def __init__(self, env: gymnasium.Env, config: GradientTDConfig, seed: int = 0) -> None:
        """Raises ValueError if a policy does not fit, or if b never takes an action that π
        takes."""
        super().__init__(env, config, seed)
        behavior = self.policy_of(config.behavior, env, 0.0)
        missing = np.argwhere((self._target_policy > 0) & (behavior == 0))
        if len(missing):
            raise ValueError(
                "behavior must take every action that the policy takes, but it never takes "
                f"{missing[0][1]} in state {missing[0][0]}"
            )
        self.follow_policy(behavior)
        self._ratios = self._target_policy / np.where(behavior > 0, behavior, 1.0)
        self.helper = np.zeros(self.features.num_features)

    def learn(self, step: Step) -> Metrics:
        x, next_x = self.features.vector(step.obs), self.features.vector(step.next_obs)
        next_x = np.zeros_like(x) if step.terminated else next_x
        row = int(step.obs) if len(self._ratios) > 1 else 0
        ratio = float(self._ratios[row, step.action])
        if step.action_mask is not None:
            policies = self._target_policy[row], self._followed[row]
            wanted, taken = (restrict_policy(each, step.action_mask) for each in policies)
            ratio = float(wanted[step.action] / taken[step.action])
        beta = self.config.helper_alpha(self.progress) / self.features.num_active
        weights, self.helper, error = gradient_td_update(
            self.weights[:, 0],
            self.helper,
            x,
            step.reward,
            next_x,
            ratio,
            method=self.config.update,
            gamma=self.config.gamma,
            alpha=self.step_size,
            beta=beta,
        )
        self.weights = weights[:, None]
        return self.rates() | {"td_error": abs(error), "ratio": ratio}

    def state_dict(self) -> State:
        return super().state_dict() | {"helper": self.helper.copy()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.helper = saved_array("helper", state["helper"], np.float64, self.helper.shape)
