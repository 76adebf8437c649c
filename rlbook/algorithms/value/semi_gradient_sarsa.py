"""Semi-gradient SARSA: control with values that are linear in features.

    w ← 0
    a ← an action for the first state, ε-greedy in q(s, ·)
    for each step
        take a, see r and s'
        a' ← an action for s', ε-greedy in q(s', ·)
        w_a ← w_a + α [ r + γ q(s', a') - q(s, a) ] x(s)       q(s, a) = w_a·x(s)
        s, a ← s', a'

q(s', a') counts as 0 where the episode terminated. With tabular features this is `sarsa`; with
tiles it learns to drive up a mountain in a few dozen episodes, because what it learns at one
position and velocity generalises to nearby ones. If rewards are negative, initial weights of 0 are
optimistic, and the agent explores without ε. With `n` the target is the n-step return; with
`trace_decay` λ it is SARSA(λ).

Source: Rummery & Niranjan 1994; Sutton & Barto 2018, the boxes on pages 244, 247 (n-step) and 305
(λ, binary features); tiles on the mountain: Sutton 1996. Deliberate differences: α is divided by
the number K of active features (see `linear`), a time limit is not a termination, and the step size
is inside the trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import Metrics, State, Step
from rlbook.algorithms.tabular.exploration import (
    FORBIDDEN,
    deterministic_argmax,
    forbid,
    greedy,
    random_action,
)
from rlbook.algorithms.value.linear import LinearAgent, Observation
from rlbook.algorithms.value.semi_gradient import SemiGradientAgent, SemiGradientConfig
from rlbook.checks import unit_interval
from rlbook.functional.schedules import Linear, Schedule
from rlbook.interaction.features import linear


def semi_gradient_sarsa_update(learner: SemiGradientSarsa, step: Step) -> float | None:
    """One step, in place on w: chooses a', and moves q(s, a) towards r + γ q(s', a'), or a longer
    target of `learner` (see `semi_gradient`).

    Returns |δ| in reward units, or None where an n-step target is not known yet.
    """
    q_next, learner.pending = 0.0, NONE
    if not step.terminated:
        row = learner.row(learner.features(step.next_obs), step.next_action_mask)
        next_action = learner.choose_action(row)
        q_next = row[next_action]
        if not step.truncated:
            learner.pending = next_action
    x, over = learner.features(step.obs), step.terminated or step.truncated
    return learner.update(x, int(step.action), step.reward, q_next, over)


NONE = -1
"""No action is pending: the next state is the first of an episode."""


@dataclass(frozen=True)
class SemiGradientSarsaConfig(SemiGradientConfig):
    """Hyper-parameters of semi-gradient SARSA."""

    # probability ε of a random action, in [0, 1]
    epsilon: Annotated[Schedule, unit_interval] = Linear(1.0, 0.05)


class SemiGradientSarsa(SemiGradientAgent):
    """Semi-gradient SARSA, n-step or with traces. Acts in one environment."""

    Config = SemiGradientSarsaConfig
    on_policy = True
    METRICS: ClassVar[dict[str, str]] = LinearAgent.METRICS | {
        "td_error": "mean of |δ|, how far q was from its targets, in reward units",
        "epsilon": "probability of a random action",
    }

    def __init__(self, env: gymnasium.Env, config: SemiGradientSarsaConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self.pending = NONE
        """The action to take now, chosen by the last update."""

    def columns(self) -> int:
        return self.num_actions

    def begin(self) -> None:
        super().begin()
        self.pending = NONE

    def _exploring_copy(self) -> Self:
        """Without the action that was chosen for the state in training."""
        twin = super()._exploring_copy()
        twin.pending = NONE
        return twin

    def act(
        self,
        observation: Observation,
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> int:
        self.check_one(observation)
        if explore and self.pending != NONE:
            return self.pending
        features = self.features(observation)
        row = self.row(features, action_mask)
        if explore:
            return self.choose_action(row)
        return deterministic_argmax(row, int(features[0]) if self.features.binary else 0)

    def row(
        self, features: NDArray[np.number], action_mask: NDArray[np.bool_] | None
    ) -> list[float]:
        """q(s, ·), [A], in reward units; -∞ for actions that the mask forbids."""
        row = linear(self.weights, features).tolist()
        if action_mask is not None:
            forbid(row, action_mask, FORBIDDEN)
        return row

    def choose_action(self, row: list[float]) -> int:
        """A random action with probability ε, otherwise one of the best by q(s, ·), [A]."""
        if self.rng.random() < self.config.epsilon(self.progress):
            return random_action(row, self.rng)
        return greedy(row, self.rng)

    def learn(self, step: Step) -> Metrics:
        error = semi_gradient_sarsa_update(self, step)
        return self.rates() | ({} if error is None else {"td_error": error})

    def rates(self) -> Metrics:
        return super().rates() | {"epsilon": self.config.epsilon(self.progress)}

    def value(self, observations: ArrayLike) -> NDArray[np.float64]:
        """max_a q(s, a) of the environment's observations: [N, ...] → [N], in reward units."""
        return linear(self.weights, self.features(self.adapt_observations(observations))).max(
            axis=-1
        )

    def values(self) -> NDArray[np.float64]:
        """max_a q(s, a): [S], in reward units, if states can be enumerated."""
        return self.action_values().max(axis=1)

    def action_values(self) -> NDArray[np.float64]:
        """q(s, a): [S, A], in reward units, if states can be enumerated; -∞ for forbidden
        actions."""
        values = linear(self.weights, self.features(self.states()))
        return values if self.allowed is None else np.where(self.allowed, values, FORBIDDEN)

    def own_policy(self) -> NDArray[np.float64]:
        """π(a|s), [S, A]: the agent's current policy, exploration included."""
        values = self.action_values()
        best = values == values.max(axis=1, keepdims=True)
        epsilon, allowed = self.config.epsilon(self.progress), np.isfinite(values)
        random = epsilon * allowed / allowed.sum(axis=1, keepdims=True)
        return random + (1.0 - epsilon) * best / best.sum(axis=1, keepdims=True)

    def greedy_policy(self) -> NDArray[np.int64]:
        """[S]: the action taken without exploration."""
        masks = [None] * len(self.states()) if self.allowed is None else self.allowed
        pairs = zip(self.states(), masks, strict=True)
        return np.array([self.act(state, explore=False, action_mask=mask) for state, mask in pairs])

    def state_dict(self) -> State:
        return super().state_dict() | {"pending": self.pending}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        pending = state["pending"]
        if type(pending) is not int or not NONE <= pending < self.num_actions:
            raise ValueError(f"the saved pending must be an action or {NONE}, got {pending!r}")
        self.pending = pending
