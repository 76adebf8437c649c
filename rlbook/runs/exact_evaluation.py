"""Evaluates learners against the exact solution, if the environment has a model."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbook.errors import TrainingError

if TYPE_CHECKING:
    from rlbook.agent import Agent, Metrics
    from rlbook.envs.tabular.mdp import TabularMDP

LARGEST = 20_000
"""The number of state-action pairs above which evaluation would take longer than learning."""


class ExactEvaluation:
    """Computes V* of a model once, and V^π of any policy.

    Args:
        model: S states, A actions.
        gamma: γ, discount per step, in [0, 1].
        target: the policy whose values are learned, [S, A] probabilities; None: the values are
            those of acting optimally.

    Raises:
        ValueError, TrainingError: there are no such values: γ is 1, and some state never ends the
            episode.
    """

    def __init__(self, model: TabularMDP, gamma: float, target: np.ndarray | None = None) -> None:
        from rlbook.algorithms.planning.policy_iteration import PolicyIteration

        self.model, self.gamma, self.target = model, gamma, target
        self.counted = model.reachable() & ~model.terminal
        self.exact = (
            PolicyIteration.solve(model, gamma=gamma).values()
            if target is None
            else model.policy_values(target, gamma)
        )

    def evaluate(self, agent: Any) -> Metrics:
        """`value_error`, and for control agents also `policy_regret`.

        An on-policy agent learns the values of its own policy, exploration included, and is
        compared with those.
        """
        own = agent.own_policy() if self.target is None and hasattr(agent, "own_policy") else None
        found: Metrics = {}
        with contextlib.suppress(ValueError):  # γ is 1 and its own policy may walk in circles
            exact = self.exact if own is None else self.model.policy_values(own, self.gamma)
            values = (
                agent.values()
                if own is None
                else (own * np.where(own > 0, agent.action_values(), 0.0)).sum(axis=1)
            )
            found = {"value_error": float(np.sqrt(np.mean((values - exact)[self.counted] ** 2)))}
        if self.target is not None:
            return found
        try:
            return found | {"policy_regret": self.regret(agent.greedy_policy())}
        except ValueError:  # γ is 1 and the policy may walk in circles
            return found

    def regret(self, policy: np.ndarray) -> float:
        """V*(s) - V^π(s), averaged over the initial states, in reward units.

        Args:
            policy: π, [S, A] probabilities, or [S] integers for a deterministic policy.

        Raises:
            ValueError: γ is 1, and from some state the policy may never end the episode.
        """
        return float(
            self.model.initial @ (self.exact - self.model.policy_values(policy, self.gamma))
        )


def exact_evaluation_of(agent: Agent, model: TabularMDP | None) -> ExactEvaluation | None:
    """The exact evaluation for this agent; None if it has no table of values over the model's
    states, or if the model is too large."""
    if (
        model is None
        or not model.observable
        or not hasattr(agent, "values")
        or not hasattr(agent.config, "gamma")
    ):
        return None
    if model.num_states * model.num_actions > LARGEST:
        return None
    try:
        return ExactEvaluation(model, agent.config.gamma, getattr(agent, "target_policy", None))
    except (ValueError, TrainingError):  # γ is 1 and rewards add up to infinity
        return None
