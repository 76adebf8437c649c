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

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from rlbook import checks
from rlbook.agent import Metrics, Parts, Step
from rlbook.algorithms.policy.policy_agent import PolicyAgent
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
from rlbook.policies.distributions import Distribution
from rlbook.policies.optimizer import LossOutput, gradient_step, mean_metrics


@dataclass(frozen=True)
class TRPOConfig:
    gamma: float = 0.99  # discount per environment step, in [0, 1]
    gae_lambda: float = 0.95  # λ of the advantage estimate, in [0, 1]
    rollout_steps: int = 128  # T, steps of each environment between updates
    max_kl: float = 0.01  # δ, bound of the mean KL(π_old ‖ π) of an update, in nats, > 0
    cg_iterations: int = 10  # products F v with which the linear system is solved
    cg_damping: float = 0.1  # c, added to F's diagonal
    line_search_steps: int = 10  # step lengths that are tried before the update is given up
    line_search_decay: float = 0.8  # α, from one step length to the next, in (0, 1)
    value_epochs: int = 10  # passes over a rollout when V is fitted
    batch_size: int = 128  # rows of a minibatch of V: steps, or episodes for a sequence model
    learning_rate: float | Schedule = 1e-3  # Adam's step size, for V alone; > 0
    anneal_learning_rate: bool = False  # lower the step size linearly to 0 over the run
    adam_eps: float = 1e-5  # Adam's ε
    max_grad_norm: float = 0.5  # the L2 norm of V's gradient is clipped to this
    normalize_advantage: bool = True  # standardise advantages within each rollout
    # standardise observations by running statistics, clipped to ±10
    normalize_observation: bool = False
    # divide rewards by the running standard deviation of the discounted return, clipped to ±10
    normalize_reward: bool = False
    orthogonal_init: bool = True  # orthogonal weights, gain 0.01 for the policy's output
    temperature: float = 1.0  # divides the logits of a discrete policy, always; > 0
    hidden_sizes: tuple[int, ...] = (64, 64)  # units of each hidden layer of an MLP

    def __post_init__(self) -> None:
        checks.check_fields(
            self, gamma=checks.unit_interval, gae_lambda=checks.unit_interval,
            rollout_steps=checks.positive_int, max_kl=checks.positive,
            cg_iterations=checks.positive_int, cg_damping=checks.non_negative,
            line_search_steps=checks.positive_int, line_search_decay=checks.open_unit_interval,
            value_epochs=checks.positive_int, batch_size=checks.positive_int,
            anneal_learning_rate=checks.boolean, adam_eps=checks.positive,
            max_grad_norm=checks.bound, normalize_advantage=checks.boolean,
            normalize_observation=checks.boolean, normalize_reward=checks.boolean,
            orthogonal_init=checks.boolean, temperature=checks.positive,
            hidden_sizes=checks.positive_ints,
        )  # fmt: skip
        checks.check_rates(self, learning_rate=checks.positive)


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
