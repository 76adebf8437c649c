"""Trust-region policy optimisation (TRPO): take the best step among those that keep the KL
divergence from the old policy below a bound.

    repeat
        act for T steps in N environments with π_old; A ← GAE(V)
        g ← ∇ mean ρ A   at π_old,   ρ = π(a|s) / π_old(a|s)
        s ← F⁻¹ g by conjugate gradient, from products F v alone
        d ← √(2 δ / sᵀFs) s                              so that ½ dᵀFd = δ, the predicted KL
        for k = 0, 1, 2, …:   θ ← θ_old + α^k d   until KL(π_old ‖ π) ≤ δ and mean ρ A has grown
        fit V to A + V_old by several epochs of minibatches

A step of a given length in the weights may change the policy hardly at all or beyond recognition.
F, the second derivative of the KL, measures a step by its effect on the probabilities. PPO's clip
is a cheaper substitute for this bound; here the bound holds in every update, on average over the
states of the rollout.

Source: Schulman et al. 2015, arXiv:1502.05477, appendix C, with advantages by GAE as in Schulman et
al. 2016, arXiv:1506.02438. Differences: V is fitted by Adam, not by a trust region of its own; F is
computed from all states of the rollout and damped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from rlbook.agent import Metrics
from rlbook.algorithms.policy.a2c import advantage_rows
from rlbook.algorithms.policy.actor_critic_agent import ActorCriticAgent
from rlbook.algorithms.policy.options import SeparateNetworkOptions, StepOptions
from rlbook.checks import non_negative, open_unit_interval, positive, positive_int, unit_interval
from rlbook.data.rollout import Batch, minibatches
from rlbook.functional.averages import per_token, weighted_sum
from rlbook.functional.natural_gradient import (
    conjugate_gradient,
    fisher_vector_product,
    flat_gradient,
    trust_region_step,
)
from rlbook.functional.policy_losses import clipped_surrogate_loss
from rlbook.functional.value_losses import squared_value_loss
from rlbook.hyperparameters import Rate
from rlbook.networks.distributions import Distribution
from rlbook.networks.optimizer import LossOutput, Optimizer, gradient_step, mean_metrics
from rlbook.networks.policy import Policy


def trpo_update(policy: Policy, batch: Batch, config: TRPOConfig) -> Metrics:
    """The natural-gradient step, scaled back by the line search.

    Args:
        policy: changed in place, but for its value network.
        batch: rows of a rollout, as `advantage_rows` makes them.
        config: hyper-parameters.
    """
    parameters = policy_parameters(policy)
    with torch.no_grad():
        old = policy.distributions(batch)
    surrogate, kl, _ = trpo_objective(policy, batch, old)
    gradient = flat_gradient(surrogate, parameters)
    kl_gradient = flat_gradient(kl, parameters, create_graph=True)
    step = natural_step(gradient, kl_gradient, parameters, config)
    predicted = {"predicted_improvement": float(gradient @ step)}
    return predicted | line_search(policy, batch, old, step, float(surrogate.detach()), config)


def trpo_objective(
    policy: Policy, batch: Batch, old: Distribution
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean ρ A, mean KL(π_old ‖ π) and mean entropy, under the current weights."""
    assert batch.advantage is not None and batch.weight is not None
    new, average = policy.distributions(batch), batch.weight
    loss = clipped_surrogate_loss(
        new.log_prob(batch.action),
        batch.log_prob,
        batch.advantage,
        clip=math.inf,
        mask=batch.mask,
        average=average,
    )
    kl, entropy = (weighted_sum(x, batch.mask, average) for x in (old.kl(new), new.entropy()))
    return -loss, kl, entropy


def natural_step(
    gradient: Tensor, kl_gradient: Tensor, parameters: Sequence[Tensor], config: TRPOConfig
) -> Tensor:
    """d: the step along F⁻¹ g whose predicted KL is `max_kl`; [P] and [P] → [P]."""
    product = partial(fisher_vector_product, kl_gradient, parameters, damping=config.cg_damping)
    direction = conjugate_gradient(product, gradient, iterations=config.cg_iterations)
    return trust_region_step(direction, product(direction), config.max_kl)


@torch.no_grad()
def line_search(
    policy: Policy,
    batch: Batch,
    old: Distribution,
    step: Tensor,
    before: float,
    config: TRPOConfig,
) -> Metrics:
    """Shortens the step until the KL is within its bound and the surrogate has grown."""
    parameters = policy_parameters(policy)
    start, fractions = parameters_to_vector(parameters), []
    for k in range(config.line_search_steps):
        fractions.append(config.line_search_decay**k)
        set_parameters(parameters, start + fractions[-1] * step)
        surrogate, kl, entropy = map(float, trpo_objective(policy, batch, old))
        if kl <= config.max_kl and surrogate > before:
            break
    else:
        set_parameters(parameters, start)
        surrogate, kl, entropy = map(float, trpo_objective(policy, batch, old))
        fractions.append(0.0)
    return {
        "kl": kl,
        "step_fraction": fractions[-1],
        "improvement": surrogate - before,
        "line_search_steps": float(np.count_nonzero(fractions)),
        "entropy": entropy,
    }


def fit_value(
    policy: Policy, optimizer: Optimizer, batch: Batch, config: TRPOConfig, rng: Generator
) -> Metrics:
    """Several epochs of Adam on V; the value loss has no gradient with respect to π's weights."""
    metrics: list[dict[str, Tensor]] = []
    for _ in range(config.value_epochs):
        metrics = [
            gradient_step(
                optimizer,
                partial(value_loss, policy),
                weigh_equally(rows),
                max_grad_norm=config.max_grad_norm,
            )
            for rows in minibatches(batch, config.batch_size, rng)
        ]
    return mean_metrics(metrics)


def weigh_equally(rows: Batch) -> Batch:
    """A minibatch whose elements have equal weights."""
    assert rows.target is not None
    return replace(rows, weight=per_token(rows.mask.to(rows.target.dtype)))


def value_loss(policy: Policy, batch: Batch) -> LossOutput:
    """These rows' share of ½ mean (V - y)²."""
    value = policy.evaluate(batch, entropy=False)[2]
    assert value is not None and batch.target is not None
    loss = squared_value_loss(value, batch.target, **batch.share)
    return LossOutput(loss, {"value_loss": loss.detach()})


def policy_parameters(policy: Policy) -> list[Tensor]:
    """θ: the trainable parameters of π, without those of V."""
    of_value = {id(p) for p in policy.value_parameters()}
    return [p for p in policy.parameters() if p.requires_grad and id(p) not in of_value]


def set_parameters(parameters: Sequence[Tensor], values: Tensor) -> None:
    """Copies the numbers [P] into the parameters, in their order, in place."""
    parts = values.split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.view_as(parameter))


@dataclass(frozen=True)
class TRPOConfig(SeparateNetworkOptions, StepOptions):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    gae_lambda: Annotated[float, unit_interval] = 0.95  # λ of the GAE advantage, in [0, 1]
    # T, steps per environment between updates
    rollout_steps: Annotated[int, positive_int] = 128
    # δ, upper bound on an update's mean KL(π_old ‖ π), in nats, > 0
    max_kl: Annotated[float, positive] = 0.01
    # conjugate-gradient iterations, one product F v each
    cg_iterations: Annotated[int, positive_int] = 10
    cg_damping: Annotated[float, non_negative] = 0.1  # c, added to F's diagonal
    # step lengths to try before giving up on the update
    line_search_steps: Annotated[int, positive_int] = 10
    # α, factor from one step length to the next, in (0, 1)
    line_search_decay: Annotated[float, open_unit_interval] = 0.8
    value_epochs: Annotated[int, positive_int] = 10  # passes over a rollout to fit V
    # minibatch size for V: steps, or episodes for a sequence model
    batch_size: Annotated[int, positive_int] = 128
    # Adam's step size for V, > 0
    learning_rate: Annotated[Rate, positive] = 1e-3
    anneal_learning_rate: bool = False  # anneal the learning rate linearly to 0 over the run
    normalize_advantage: bool = True  # standardise advantages within each rollout


class TRPO(ActorCriticAgent):
    """Trust-region policy optimisation; see the module docstring."""

    Config = TRPOConfig
    METRICS = {
        "kl": "mean KL(π_old ‖ π) of the step that was taken, in nats; at most max_kl",
        "step_fraction": "α^k, fraction of the full step that was taken; 0 if none was accepted",
        "line_search_steps": "step lengths that the line search tried",
        "improvement": "increase of mean ρ A by the step, in units of A",
        "predicted_improvement": "g · d of the full step: the increase if mean ρ A were linear",
        "entropy": "mean entropy of π(·|s) after the step, in nats",
        "value_loss": "½ mean (V - target)², in squared reward units, mean over the last epoch",
        "grad_norm": "L2 norm of V's gradient before clipping, mean over the last epoch",
        "explained_variance": "1 - Var(target - V) / Var(target); 1 is a perfect critic, 0 no "
        "better than a constant",
        "learning_rate": "Adam's step size for V",
    }

    def prepare(self) -> tuple[Batch, Metrics]:
        return advantage_rows(self.policy, self.rollout_data, self.rewards(), self.config)

    def update(self, batch: Batch) -> Metrics:
        metrics = trpo_update(self.policy, batch, self.config)
        rate = self.anneal()
        metrics |= fit_value(self.policy, self.optimizer, batch, self.config, self.shuffling)
        return metrics | {"learning_rate": rate}
