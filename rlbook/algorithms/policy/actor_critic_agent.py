"""What agents with a policy and a critic share: rollouts of a fixed number of steps."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import Metrics, Parts, Step
from rlbook.algorithms.policy.options import PolicyOptions
from rlbook.algorithms.policy.policy_agent import PolicyAgent, refuse_average
from rlbook.data.rollout import Batch
from rlbook.fast_forms import has_fast_form
from rlbook.functional.policy_losses import clipped_surrogate_loss
from rlbook.networks.normalizer import Normalizer
from rlbook.networks.policy import as_array

surrogate_loss = has_fast_form(clipped_surrogate_loss)
"""`rlbook.functional.policy_losses.clipped_surrogate_loss` with its fast form; the equations
themselves have none."""


class ActorCriticAgent(PolicyAgent):
    """A policy with a critic, which learn from rollouts of `rollout_steps` steps."""

    critic = True

    def __init__(
        self, env: VectorEnv, config: PolicyOptions, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        refuse_average(self.policy, config)
        self.rollout = self.policy.rollout
        self.check_rollout(env, self.config.rollout_steps)

    def value(self, observations: ArrayLike | dict[str, ArrayLike]) -> NDArray[np.float32]:
        """V of the environment's observations: [N, ...] → [N], in reward units."""
        seen = self.adapt_observations(observations)
        if isinstance(seen, dict):
            parts = {name: torch.as_tensor(part) for name, part in seen.items()}
            return as_array(self.policy.value(parts))
        return as_array(self.policy.value(torch.as_tensor(seen, dtype=torch.float32)))

    def learn(self, step: Step) -> Metrics:
        memory = self._acting if self.remembers else None
        self.rollout_data.add(step, self._log_prob, memory)
        if memory is not None:
            memory.forget(step.terminated | step.truncated)
        full = len(self.rollout_data.steps) == self.config.rollout_steps
        if not (full if self.rollout == "steps" else self.round_over(step)):
            return {}
        batch, metrics = self.prepare()
        metrics |= self.update(batch)
        # only now: what acted and what learned saw the same numbers
        if isinstance(self.policy.normalizer, Normalizer):
            self.policy.normalizer.update(batch.obs[batch.mask])
        self.rollout_data.clear()
        return metrics

    @abstractmethod
    def prepare(self) -> tuple[Batch, Metrics]:
        """A full rollout as rows to train on, and metrics of the critic."""

    @abstractmethod
    def update(self, batch: Batch) -> Metrics:
        """The gradient steps on a rollout; returns the diagnostics."""
