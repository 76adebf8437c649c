"""Semi-gradient TD: learn the values of a given policy as a linear function of features.

    w ← 0, π ← the given policy
    for each step
        a ← an action of π(·|s)
        take a, see r and s'
        w ← w + α [ r + γ v(s') - v(s) ] x(s)          v(s) = w·x(s)

v(s') counts as 0 where the episode terminated. An update in one state changes the values of all
states that share features with it. The weights cannot represent every value function, and TD's
fixed point is not the best approximation: its error is at most 1/(1-γ) times as large. With `n` the
target is the n-step return; an n beyond the episode's length gives Monte Carlo, whose fixed point
is the best approximation. With `trace_decay` λ it is TD(λ), with eligibility traces.

Source: Sutton 1988; Sutton & Barto 2018, the boxes on pages 202 (Monte Carlo), 203, 209 (n-step)
and 293 (λ); the bound: Tsitsiklis & Van Roy 1997, doi:10.1109/9.580874. Deliberate differences:
α is divided by the number K of active features (see `linear`), a time limit is not a termination,
and the step size is inside the trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlbook.agent import Metrics, Step
from rlbook.algorithms.value.linear import LinearPrediction, LinearPredictionConfig
from rlbook.algorithms.value.semi_gradient import SemiGradientAgent, SemiGradientConfig
from rlbook.interaction.features import linear


def semi_gradient_td_update(learner: SemiGradientAgent, step: Step) -> float | None:
    """One step of the given policy, in place on w: towards r + γ v(s'), or a longer target of
    `learner` (see `semi_gradient`).

    Returns |δ| in reward units, or None where an n-step target is not known yet.
    """
    v_next = 0.0
    if not step.terminated:
        v_next = float(linear(learner.weights[:, 0], learner.features(step.next_obs)))
    x, over = learner.features(step.obs), step.terminated or step.truncated
    return learner.update(x, 0, step.reward, v_next, over)


@dataclass(frozen=True)
class SemiGradientTDConfig(LinearPredictionConfig, SemiGradientConfig):
    """Hyper-parameters of semi-gradient TD."""


class SemiGradientTD(LinearPrediction, SemiGradientAgent):
    """Semi-gradient TD(0), n-step TD or TD(λ). Acts in one environment."""

    Config = SemiGradientTDConfig
    METRICS: ClassVar[dict[str, str]] = LinearPrediction.METRICS | {
        "td_error": "mean of |δ|, how far v was from its targets, in reward units",
    }

    def learn(self, step: Step) -> Metrics:
        error = semi_gradient_td_update(self, step)
        return self.rates() | ({} if error is None else {"td_error": error})
