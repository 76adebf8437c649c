"""DAgger: act with the learner, and let the expert label the states it visits.

    D ← ∅
    repeat
        for T steps in N environments
            a* ← the expert's action in s                  whichever policy led to s
            D ← D ∪ {(s, a*)}
            act a* with probability β, else argmax_a π(a|s)
        for K random minibatches of D
            minimise  -mean log π(a*|s)

Behaviour cloning trains on the states that the expert visits, but is evaluated in those that its
own mistakes lead to. Dataset aggregation labels the states that the learner itself visits, so that
it learns to recover: the cost of its mistakes grows with the horizon, not with its square.

The expert is queried at every step, so it has to be available: `--expert RUN`, or the exact policy
if the environment has a model. Token tasks have no such expert: a reference answer labels only its
own prefix, and DAgger needs an expert for any prefix.

Source: Ross, Gordon & Bagnell 2011, arXiv:1011.0686, algorithm 3.1; the mixture is sampled at each
step. Differences: β follows the training budget, not the iteration number; each fit continues from
the weights of the previous one; the last policy is kept, not the best on validation data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.agent import Metrics, Parts, State, Step
from rlbook.algorithms.imitation.behavior_cloning import cloning_loss
from rlbook.algorithms.policy.options import AdamOptions, PolicyOptions
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.checks import positive_int, unit_interval, value_at
from rlbook.data.rollout import Batch
from rlbook.envs.space_batches import Elements
from rlbook.functional.schedules import Linear, Schedule
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.optimizer import LossOutput, Optimizer, gradient_step, mean_metrics
from rlbook.networks.policy import Policy, module_device


def dagger_update(
    policy: Policy,
    optimizer: Optimizer,
    data: Batch,
    config: DAggerConfig,
    rng: Generator,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """K gradient steps on random minibatches of D; returns the mean diagnostics.

    Args:
        policy, optimizer: changed in place.
        data: D, every state that was labelled so far.
        config: hyper-parameters.
        rng: draws the minibatches, with replacement.
        loss: of a minibatch; None is `cloning_loss`.
    """
    drawn = rng.integers(len(data), size=(config.gradient_steps, config.batch_size))
    step_loss, device = partial(loss or cloning_loss, policy, config=config), module_device(policy)
    steps = [
        gradient_step(
            optimizer, step_loss, data[rows].to(device), max_grad_norm=config.max_grad_norm
        )
        for rows in torch.from_numpy(drawn)
    ]
    return mean_metrics(steps)


def labelled_rows(
    obs: NDArray[np.number], label: NDArray[np.number], allowed: NDArray[np.bool_] | None = None
) -> Batch:
    """States [M, ...] with the expert's actions [M] or [M, A] as rows to train on; `allowed`: the
    action masks [M, A], None where the environment shows none."""
    mask = torch.ones(len(label), dtype=torch.bool)
    return Batch(
        torch.from_numpy(obs),
        torch.from_numpy(label),
        log_prob=torch.full(mask.shape, torch.nan),
        mask=mask,
        action_mask=None if allowed is None else torch.from_numpy(allowed),
    )


@dataclass(frozen=True)
class DAggerConfig(PolicyOptions, AdamOptions):
    # β, probability of taking the expert's action, in [0, 1]
    beta: Annotated[float | Schedule, unit_interval] = Linear(1.0, 0.0, 0.3)
    rollout_steps: Annotated[int, positive_int] = 32  # T, steps per environment between fits
    gradient_steps: Annotated[int, positive_int] = 100  # K, minibatches per fit
    # labelled states per minibatch, drawn with replacement
    batch_size: Annotated[int, positive_int] = 64


class DAgger(PolicyAgent):
    """Dataset aggregation; see the module docstring."""

    Config = DAggerConfig
    uses = ("expert", "advice", *PolicyAgent.uses)
    budget = {"steps": 4_000}
    loss = staticmethod(cloning_loss)
    METRICS = {
        "loss": "-log π(a*|s) per labelled state, in nats; ln A if all actions are equally likely",
        "grad_norm": "L2 norm of the gradient before clipping",
        "learning_rate": "Adam's step size in this fit",
        "agreement": "fraction of the new states in which the learner's greedy action is the "
        "expert's; continuous actions never agree",
        "labels": "states labelled so far; each fit draws from all of them",
        "beta": "probability of taking the expert's action",
    }

    def __init__(
        self, env: AdaptedVectorEnv, config: DAggerConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: DAggerConfig = config
        self.check_rollout(env, config.rollout_steps)
        self.obs: list[NDArray[np.number]] = []  # D: [M, ...] of each fit, and of the new steps
        self.labels: list[NDArray[np.number]] = []  # the same, [M] or [M, A]
        self.allowed: list[NDArray[np.bool_]] = []  # the same, [M, A], where there are masks
        self.new = self.agreed = 0  # states labelled since the last fit, and those

    def act(
        self,
        observation: NDArray[np.number],
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64] | NDArray[np.float32]:
        own = super().act(observation, explore=False, action_mask=action_mask)
        if not explore:
            return own
        assert self.parts.advice is not None
        label = self.parts.advice(action_mask)
        self.obs.append(observation)
        self.labels.append(label)
        if action_mask is not None:
            before = sum(map(len, self.labels[:-1]))
            if before and not self.allowed:  # until the first mask, everything is allowed
                self.allowed.append(np.ones((before, action_mask.shape[1]), dtype=bool))
            self.allowed.append(action_mask)
        same = (own == label).reshape(len(label), -1).all(axis=1)
        self.new, self.agreed = self.new + len(label), self.agreed + int(same.sum())
        follows = self.exploration.random(len(label)) < value_at(self.config.beta, self.progress)
        return np.where(follows.reshape(-1, *[1] * (label.ndim - 1)), label, own)

    def _act_in_env(
        self,
        observation: Elements,
        explore: bool,
        action_mask: NDArray[np.bool_] | None,
        memory: Any = None,
    ) -> Any:
        """Without an expert's advice: `predict` has none."""
        return super()._act_in_env(observation, False, action_mask, memory)

    def learn(self, step: Step) -> Metrics:
        if self.new < self.config.rollout_steps * len(step.reward):
            return {}
        agreement, self.new, self.agreed = self.agreed / self.new, 0, 0
        self.obs, self.labels = [np.concatenate(self.obs)], [np.concatenate(self.labels)]
        self.allowed = [np.concatenate(self.allowed)] if self.allowed else []
        labels, beta = float(len(self.labels[0])), value_at(self.config.beta, self.progress)
        return self.update() | {"agreement": agreement, "labels": labels, "beta": beta}

    def update(self) -> Metrics:
        """Gradient steps on everything labelled so far."""
        rate, data = self.anneal(), labelled_rows(self.obs[0], self.labels[0], *self.allowed)
        models = self.policy, self.optimizer
        found = dagger_update(*models, data, self.settings, self.shuffling, self.loss)
        return found | {"learning_rate": rate}

    def state_dict(self) -> State:
        labelled = {name: list(getattr(self, name)) for name in ("obs", "labels", "allowed")}
        return super().state_dict() | labelled | {"new": self.new, "agreed": self.agreed}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.obs, self.labels = list(state["obs"]), list(state["labels"])
        self.allowed = list(state["allowed"])
        self.new, self.agreed = state["new"], state["agreed"]
