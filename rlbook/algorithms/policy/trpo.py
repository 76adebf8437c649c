"""Trust-region policy optimisation (TRPO): take the best step among those that change the policy's
probabilities by no more than a given amount.

    repeat
        act for T steps in N environments with π_old; A ← GAE(V)
        g ← ∇ mean ρ A   at π_old,   ρ = π(a|s) / π_old(a|s)
        s ← F⁻¹ g by conjugate gradient, from products F v alone
        d ← √(2 δ / sᵀFs) s                              so that ½ dᵀFd = δ, the KL it predicts
        for k = 0, 1, 2, …:   θ ← θ_old + α^k d   until KL(π_old ‖ π) ≤ δ and mean ρ A has grown
        fit V to A + V_old by some epochs of minibatches

A step of one length in the weights may change the policy hardly at all or beyond recognition. F,
the second derivative of the KL, measures a step by what it does to the probabilities. PPO's clip
is a cheaper stand-in for this bound; here the bound holds in every update, as an average over the
states of the rollout.

Source: Schulman et al. 2015, arXiv:1502.05477, appendix C, with advantages by GAE as in Schulman et
al. 2016, arXiv:1506.02438. Differences: V is fitted by Adam, not by a trust region of its own; F is
computed from all states of the rollout and damped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from rlbook.agent import Metrics, Parts, Step
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.checks import bound, non_negative, open_unit_interval, positive, positive_int, positive_ints, unit_interval
from rlbook.data.rollout import Batch, minibatches
from rlbook.functional.advantages import explained_variance, gae, normalize
from rlbook.functional.averages import averaged, given, per_token
from rlbook.functional.natural_gradient import (
    conjugate_gradient,
    fisher_vector_product,
    flat_gradient,
    trust_region_step,
)
from rlbook.functional.policy_losses import clipped_surrogate_loss
from rlbook.functional.schedules import Schedule
from rlbook.functional.value_losses import squared_value_loss
from rlbook.hyperparameters import Hyperparameters
from rlbook.policies.distributions import Distribution
from rlbook.policies.optimizer import LossOutput, gradient_step, mean_metrics


@dataclass(frozen=True)
class TRPOConfig(Hyperparameters):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    gae_lambda: Annotated[float, unit_interval] = 0.95  # λ of the advantage estimate, in [0, 1]
    # T, steps of each environment between updates
    rollout_steps: Annotated[int, positive_int] = 128
    # δ, bound of the mean KL(π_old ‖ π) of an update, in nats, > 0
    max_kl: Annotated[float, positive] = 0.01
    # products F v with which the linear system is solved
    cg_iterations: Annotated[int, positive_int] = 10
    cg_damping: Annotated[float, non_negative] = 0.1  # c, added to F's diagonal
    # step lengths that are tried before the update is given up
    line_search_steps: Annotated[int, positive_int] = 10
    # α, from one step length to the next, in (0, 1)
    line_search_decay: Annotated[float, open_unit_interval] = 0.8
    value_epochs: Annotated[int, positive_int] = 10  # passes over a rollout when V is fitted
    # rows of a minibatch of V: steps, or episodes for a sequence model
    batch_size: Annotated[int, positive_int] = 128
    # Adam's step size, for V alone; > 0
    learning_rate: Annotated[float | Schedule, positive] = 1e-3
    anneal_learning_rate: bool = False  # lower the step size linearly to 0 over the run
    adam_eps: Annotated[float, positive] = 1e-5  # Adam's ε
    max_grad_norm: Annotated[float, bound] = 0.5  # the L2 norm of V's gradient is clipped to this
    normalize_advantage: bool = True  # standardise advantages within each rollout
    # standardise observations by running statistics, clipped to ±10
    normalize_observation: bool = False
    # divide rewards by the running standard deviation of the discounted return, clipped to ±10
    normalize_reward: bool = False
    orthogonal_init: bool = True  # orthogonal weights, gain 0.01 for the policy's output
    # divides the logits of a discrete policy, always; > 0
    temperature: Annotated[float, positive] = 1.0
    # units of each hidden layer of an MLP
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)


class TRPO(PolicyAgent):
    """Trust-region policy optimisation; see the module docstring."""

    Config = TRPOConfig
    critic = True
    METRICS = {
        "kl": "mean KL(π_old ‖ π) of the step that was taken, in nats; at most max_kl",
        "step_fraction": "α^k, share of the step that was taken; 0 where none was good enough",
        "line_search_steps": "step lengths that were tried",
        "improvement": "growth of mean ρ A by the step, in units of A",
        "predicted_improvement": "g · d of the whole step: the growth if mean ρ A were linear",
        "entropy": "mean entropy of π(·|s) after the step, in nats",
        "value_loss": "½ mean (V - target)², in squared reward units, mean over the last epoch",
        "grad_norm": "L2 norm of V's gradient before clipping, mean over the last epoch",
        "explained_variance": "1 - Var(target - V) / Var(target); 1 is a perfect critic, 0 no "
        "better than a constant",
        "learning_rate": "Adam's step size for V",
    }

    def __init__(
        self, env: VectorEnv, config: TRPOConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        self.config: TRPOConfig = config
        super().__init__(env, config, seed, parts)
        self.rollout = self.policy.rollout
        self.check_rollout(env, config.rollout_steps)

    @property
    def policy_parameters(self) -> list[Tensor]:
        """θ: what is trained of π, without V."""
        of_value = {id(p) for p in self.policy.value_parameters()}
        return [p for p in self.policy.parameters() if p.requires_grad and id(p) not in of_value]

    def value(self, observations: ArrayLike | dict[str, ArrayLike]) -> NDArray[np.float32]:
        """V of the environment's observations: [N, ...] → [N], in reward units."""
        return self.critic_value(observations)

    def learn(self, step: Step) -> Metrics:
        self.rollout_data.add(step, self._log_prob)
        if not self.rollout_over(step, self.config.rollout_steps):
            return {}
        batch, metrics = self.prepare()
        metrics |= self.policy_step(batch) | self.fit_value(batch)
        self.end_rollout(batch)
        return metrics

    @torch.no_grad()
    def prepare(self) -> tuple[Batch, Metrics]:
        """The rollout as rows, with A, the target of V, and each row's share in the averages."""
        data, config = self.rollout_data, self.config
        reward, mask = self.rewards(), data.tensor("valid")                            # [T, N]
        ends = data.tensor("terminated"), data.tensor("truncated")
        value, next_value = self.policy.values(data)
        advantage = gae(
            reward, value, next_value, *ends,
            gamma=config.gamma, gae_lambda=config.gae_lambda, valid=mask,
        )  # fmt: skip
        target = advantage + value
        metrics = {"explained_variance": explained_variance(advantage, target, mask)}
        if config.normalize_advantage:
            advantage = normalize(advantage, mask)
        weight = per_token(mask)
        return self.as_batch(mask, advantage=advantage, target=target, weight=weight), metrics

    def policy_step(self, batch: Batch) -> Metrics:
        """The natural gradient step, and as much of it as the line search takes."""
        parameters = self.policy_parameters
        with torch.no_grad():
            old = self.policy.distributions(batch)
        surrogate, kl, _ = self.objective(batch, old)
        gradient = flat_gradient(surrogate, parameters)
        step = self.natural_step(gradient, flat_gradient(kl, parameters, create_graph=True))
        predicted = {"predicted_improvement": float(gradient @ step)}
        return predicted | self.line_search(batch, old, step, float(surrogate.detach()))

    def natural_step(self, gradient: Tensor, kl_gradient: Tensor) -> Tensor:
        """d: the step along F⁻¹ g whose predicted KL is `max_kl`; [P] and [P] → [P]."""
        config, parameters = self.config, self.policy_parameters

        def product(vector: Tensor) -> Tensor:
            return fisher_vector_product(
                kl_gradient, parameters, vector, damping=config.cg_damping
            )

        direction = conjugate_gradient(product, gradient, iterations=config.cg_iterations)
        return trust_region_step(direction, product(direction), config.max_kl)

    @torch.no_grad()
    def line_search(
        self, batch: Batch, old: Distribution, step: Tensor, before: float
    ) -> Metrics:
        """Shortens the step until the KL is within its bound and the surrogate has grown."""
        config, parameters = self.config, self.policy_parameters
        start, fractions = parameters_to_vector(parameters), []
        for k in range(config.line_search_steps):
            fractions.append(config.line_search_decay**k)
            set_parameters(parameters, start + fractions[-1] * step)
            surrogate, kl, entropy = map(float, self.objective(batch, old))
            if kl <= config.max_kl and surrogate > before:
                break
        else:
            set_parameters(parameters, start)
            surrogate, kl, entropy = map(float, self.objective(batch, old))
            fractions.append(0.0)
        return {
            "kl": kl, "step_fraction": fractions[-1], "improvement": surrogate - before,
            "line_search_steps": float(np.count_nonzero(fractions)), "entropy": entropy,
        }  # fmt: skip

    def objective(self, batch: Batch, old: Distribution) -> tuple[Tensor, Tensor, Tensor]:
        """Mean ρ A, mean KL(π_old ‖ π) and the mean entropy, under the weights as they are."""
        assert batch.advantage is not None and batch.weight is not None
        new, over = self.policy.distributions(batch), given(batch.weight)
        loss = clipped_surrogate_loss(
            new.log_prob(batch.action), batch.log_prob, batch.advantage,
            clip=math.inf, mask=batch.mask, average=over,
        )  # fmt: skip
        kl, entropy = (averaged(x, batch.mask, over) for x in (old.kl(new), new.entropy()))
        return -loss, kl, entropy

    def fit_value(self, batch: Batch) -> Metrics:
        """Some epochs of Adam on V, whose loss has no gradient in π's weights."""
        rate, config = self.anneal(), self.config
        metrics: list[dict[str, Tensor]] = []
        for _ in range(config.value_epochs):
            metrics = [
                gradient_step(
                    self.optimizer, self.value_loss, rows, max_grad_norm=config.max_grad_norm
                )
                for rows in minibatches(batch, config.batch_size, self.shuffling)
            ]
        return mean_metrics(metrics) | {"learning_rate": rate}

    def value_loss(self, batch: Batch) -> LossOutput:
        """½ mean (V - y)² of some rows."""
        value = self.policy.evaluate(batch, entropy=False)[2]
        assert value is not None and batch.target is not None
        loss = squared_value_loss(value, batch.target, mask=batch.mask)
        return LossOutput(loss, {"value_loss": loss.detach()})


def set_parameters(parameters: Sequence[Tensor], values: Tensor) -> None:
    """Writes the numbers [P] into the parameters, in their order, where they lie."""
    parts = values.split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.view_as(parameter))
