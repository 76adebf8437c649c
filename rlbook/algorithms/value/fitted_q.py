"""Fitted Q iteration: Q-learning from a fixed data set, without interacting with the environment.

    D: recorded transitions (s, a, r, s')
    repeat
        Q⁻ ← Q
        for M minibatches of D
            y = r                                            where terminated, else
            y = r + γ max_a' Q⁻(s', a')
            minimise  ½ mean (Q(s, a) - y)²

Each round is a regression: the inputs are the recorded pairs, the targets one step of value
iteration with the Q of the previous round. The data may come from any policy, good or bad.

The maximum is over all actions, but Q was fitted only to recorded ones. The value of an untried
action is an arbitrary extrapolation of the network; the maximum picks such values when they are too
high, the next round learns from them, and no recorded step corrects them. So the data should cover
every action in every state. If they do not, see `cql`.

Recorded steps come from `--data`; without it, from uniformly random walks.

Source: Ernst, Geurts & Wehenkel 2005, JMLR 6, figure 1; with a network: Riedmiller 2005,
doi:10.1007/11564096_32, figure 1. Differences: minibatches and Adam instead of a fit to
convergence, and each round continues from the weights of the last one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlbook.agent import Agent, Data, Metrics, Parts, State
from rlbook.checks import bound, positive, positive_int, positive_ints, unit_interval, value_at
from rlbook.data.replay import Transitions
from rlbook.functional.schedules import Schedule
from rlbook.functional.value_losses import q_target, squared_value_loss
from rlbook.hyperparameters import Activation, Hyperparameters, check_activation
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.build import build_action_value
from rlbook.networks.optimizer import (
    Group,
    LossOutput,
    Optimizer,
    adam,
    gradient_step,
    mean_metrics,
)
from rlbook.networks.policy import as_array, to_full_precision
from rlbook.networks.values import ActionValue, greedy_actions
from rlbook.seeding import rng_for


def fitted_q_update(
    q: ActionValue,
    target: ActionValue,
    optimizer: Optimizer,
    batch: Transitions,
    config: FittedQConfig,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """One gradient step of a round on B recorded transitions.

    Args:
        q, optimizer: changed in place.
        target: Q⁻, which is Q of the round before.
        batch: recorded transitions.
        config: hyper-parameters.
        loss: of the transitions; None is `fitted_q_loss`.
    """
    step_loss = partial(loss or fitted_q_loss, q, target, config=config)
    step = gradient_step(optimizer, step_loss, batch, max_grad_norm=config.max_grad_norm)
    return mean_metrics([step])


def fitted_q_loss(
    q: ActionValue, target: ActionValue, batch: Transitions, *, config: FittedQConfig
) -> LossOutput:
    """The error of Q(s, a) against its target; lower is better."""
    return regression_loss(to_full_precision(q(batch.obs)), target, batch, config.gamma)


def regression_loss(
    values: Tensor, target_network: ActionValue, batch: Transitions, gamma: float
) -> LossOutput:
    """The same loss, from Q(s, ·) of the recorded states, [B, A]."""
    q = values.gather(1, batch.action[:, None]).squeeze(1)
    with torch.no_grad():
        next_q = target_network(batch.next_obs)
    target = q_target(batch.reward, batch.terminated, next_q, gamma, batch.next_action_mask)
    loss = squared_value_loss(q, target)
    metrics = {"td_loss": loss.detach(), "q": q.detach().mean(), "target": target.mean()}
    return LossOutput(loss, metrics)


@dataclass(frozen=True)
class FittedQConfig(Hyperparameters):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    target_period: Annotated[int, positive_int] = 50  # M, minibatches per round
    batch_size: Annotated[int, positive_int] = 128  # transitions per minibatch
    learning_rate: Annotated[float | Schedule, positive] = 1e-3  # Adam's step size, > 0
    max_grad_norm: Annotated[float, bound] = 10.0  # the gradient's L2 norm is clipped to this
    adam_eps: Annotated[float, positive] = 1e-8  # Adam's ε
    # random walks to record if no data set is given
    walks: Annotated[int, positive_int] = 100
    # units in each hidden layer; none makes Q linear in the observation, a table for one-hot states
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)
    activation: Activation = "relu"  # activation function of the hidden layers

    def __post_init__(self) -> None:
        super().__post_init__()
        check_activation(self)


class FittedQ(Agent):
    """Fitted Q iteration; see the module docstring."""

    Config = FittedQConfig
    loss = staticmethod(fitted_q_loss)
    batched = True
    observations = "network"
    actions = "discrete only"
    data_kinds = ("Steps",)
    uses = ("model", "device")
    budget = {"passes": 30}
    METRICS = {
        "td_loss": "½ mean (Q(s, a) - y)², in squared reward units",
        "q": "mean Q(s, a) of the recorded pairs, in reward units",
        "target": "mean target y, in reward units; far above any possible return, the targets rely "
        "on overestimated values of untried actions",
        "grad_norm": "L2 norm of the gradient before clipping",
        "learning_rate": "Adam's step size",
    }

    def __init__(
        self, env: AdaptedVectorEnv, config: FittedQConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: FittedQConfig = config
        rng, hidden_sizes = rng_for(seed, "initialisation"), tuple(config.hidden_sizes)
        q = build_action_value(env, rng, hidden_sizes, parts.model, activation=config.activation)
        self.q = q.to(parts.device)
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.optimizer = adam(
            [Group([self.q])], value_at(config.learning_rate, 0.0), eps=config.adam_eps
        )
        self.fitted = 0  # minibatches

    def act(
        self,
        observation: NDArray[np.number],
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        self.check_batch(observation)
        with torch.inference_mode():
            return greedy_actions(self.q(torch.from_numpy(observation)), action_mask)

    def action_values(self, observations: ArrayLike) -> NDArray[np.float32]:
        """Q of the environment's observations: [N, ...] → [N, A], in reward units."""
        with torch.inference_mode():
            seen = torch.as_tensor(self.adapt_observations(observations), dtype=torch.float32)
            return as_array(self.q(seen))

    def fit(self, data: Data) -> Iterator[Metrics]:
        for batch in data.minibatches(self.config.batch_size):
            if self.fitted % self.config.target_period == 0:
                self.target.load_state_dict(self.q.state_dict())
            self.fitted += 1
            yield self.train_on(batch.map_fields(lambda field: field.to(self.parts.device)))

    def train_on(self, batch: Transitions) -> Metrics:
        """One gradient step on B recorded transitions."""
        rate = self.optimizer.learning_rate = value_at(self.config.learning_rate, self.progress)
        metrics = fitted_q_update(
            self.q, self.target, self.optimizer, batch, self.config, self.loss
        )
        return metrics | {"learning_rate": rate}

    def state_dict(self) -> State:
        return {
            "q": dict(self.q.state_dict()),
            "target": dict(self.target.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "fitted": self.fitted,
        }

    def load_state_dict(self, state: State) -> None:
        self.q.load_state_dict(state["q"])
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.fitted = state["fitted"]
