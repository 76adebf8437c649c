"""Advantage actor-critic (A2C): a policy-gradient step every few environment steps, on n-step
returns that bootstrap from V.

    repeat
        act for T steps in N environments with π
        A_t ← Σ_l (γλ)^l δ_{t+l},   δ_t = r_t + γ V(s_{t+1}) - V(s_t)      until the rollout's end
        minimise  -mean A log π(a|s)  +  c_v ½ mean (V - (A + V_old))²  -  c_e mean H(π)

REINFORCE waits for the return of a whole episode. A2C replaces the rewards after the rollout by the
critic's estimate, so that it can learn before the episode ends; the estimate has less variance than
the return, and is biased to the extent that V is wrong. λ = 1 uses all rewards of the rollout
("n-step"), λ = 0 only one. Each rollout is used for one gradient step. PPO takes several, for which
it needs its clip: with one epoch, one minibatch and raw advantages, PPO is this algorithm.

Source: Mnih et al. 2016, arXiv:1602.01783, algorithm S3; all environments step together as in
Wu et al. 2017, arXiv:1708.05144, section 5. Difference: λ, from Schulman et al. 2016,
arXiv:1506.02438, eq. 16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from rlbook.agent import Metrics
from rlbook.algorithms.policy.actor_critic_agent import ActorCriticAgent
from rlbook.algorithms.policy.options import NetworkOptions, OptimizerOptions
from rlbook.checks import non_negative, positive, positive_int, unit_interval
from rlbook.data.rollout import Batch, Rollout
from rlbook.functional.advantages import explained_variance, gae, normalize
from rlbook.functional.averages import per_token, weighted_sum
from rlbook.functional.policy_losses import policy_gradient_loss, regularised_loss
from rlbook.functional.value_losses import squared_value_loss
from rlbook.hyperparameters import Rate
from rlbook.networks.optimizer import (
    Group,
    LossOutput,
    Optimizer,
    gradient_step,
    mean_metrics,
    rmsprop,
)
from rlbook.networks.policy import Policy


@torch.no_grad()
def advantage_rows(
    policy: Policy, rollout: Rollout, reward: Tensor, config: Any
) -> tuple[Batch, Metrics]:
    """A full rollout [T, N] as rows with A, the value target, and each row's share of the loss.

    Of the config it reads gamma, gae_lambda and normalize_advantage.
    """
    mask = rollout.tensor("valid")
    ends = rollout.tensor("terminated"), rollout.tensor("truncated")
    value, next_value = policy.values(rollout)
    discounts = {"gamma": config.gamma, "gae_lambda": config.gae_lambda}
    advantage = gae(reward, value, next_value, *ends, **discounts, valid=mask)
    target = advantage + value
    metrics = {"explained_variance": explained_variance(advantage, target, mask)}
    if config.normalize_advantage:
        advantage = normalize(advantage, mask)
    rows = policy.batch(rollout, advantage=advantage, target=target, weight=per_token(mask))
    return rows, metrics


def a2c_update(
    policy: Policy,
    optimizer: Optimizer,
    batch: Batch,
    config: A2CConfig,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """One gradient step with the rows of a rollout; returns the diagnostics.

    Args:
        policy, optimizer: changed in place.
        batch: rows, as `advantage_rows` makes them.
        config: hyper-parameters, each schedule at its value.
        loss: of some rows; None is `a2c_loss`.
    """
    return mean_metrics(
        [
            gradient_step(
                optimizer,
                partial(loss or a2c_loss, policy, config=config),
                batch,
                micro_batch_size=config.micro_batch_size,
                max_grad_norm=config.max_grad_norm,
            )
        ]
    )


def a2c_loss(policy: Policy, batch: Batch, *, config: A2CConfig) -> LossOutput:
    """These rows' share of the rollout's loss; lower is better."""
    assert batch.advantage is not None and batch.target is not None
    log_prob, entropy, value = policy.evaluate(batch, entropy_gradient=config.entropy_coef > 0)
    assert entropy is not None and value is not None
    policy_loss = policy_gradient_loss(log_prob, batch.advantage, **batch.share)
    value_loss = squared_value_loss(value, batch.target, **batch.share)
    bonus = weighted_sum(entropy, **batch.share)
    total = regularised_loss(
        policy_loss + config.value_coef * value_loss, bonus, None, entropy_coef=config.entropy_coef
    )
    metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": bonus}
    return LossOutput(total, {name: item.detach() for name, item in metrics.items()})


@dataclass(frozen=True)
class A2CConfig(NetworkOptions, OptimizerOptions):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    # λ of the GAE advantage estimate, in [0, 1]; 1 is the n-step return
    gae_lambda: Annotated[float, unit_interval] = 1.0
    # T, steps per environment between updates
    rollout_steps: Annotated[int, positive_int] = 5
    # c_v, weight of the value loss (½ mean square)
    value_coef: Annotated[float, non_negative] = 0.5
    # c_e, weight of the entropy bonus, in reward units per nat
    entropy_coef: Annotated[Rate, non_negative] = 0.0
    optimizer: Literal["adam", "rmsprop"] = "adam"  # optimiser; the paper uses RMSprop
    learning_rate: Annotated[Rate, positive] = 3e-3  # the optimiser's step size, > 0
    normalize_advantage: bool = False  # standardise advantages within each rollout
    # rows backpropagated at once; affects memory, not the gradient
    micro_batch_size: Annotated[int, positive_int] | None = None


class A2C(ActorCriticAgent):
    """Advantage actor-critic; see the module docstring."""

    Config = A2CConfig
    loss = staticmethod(a2c_loss)
    METRICS = {
        "policy_loss": "-mean A log π, minimised; its value has no meaning by itself",
        "value_loss": "½ mean (V - target)², in squared reward units",
        "entropy": "mean entropy of π(·|s), in nats; falls as the policy becomes more certain",
        "grad_norm": "L2 norm of the gradient before clipping",
        "explained_variance": "1 - Var(target - V) / Var(target); 1 is a perfect critic, 0 no "
        "better than a constant",
        "learning_rate": "the optimiser's step size",
    }

    def make_optimizer(self, groups: Sequence[Group], rate: float) -> Optimizer:
        if self.config.optimizer == "adam":
            return super().make_optimizer(groups, rate)
        return rmsprop(groups, rate, eps=self.config.adam_eps, warmup_steps=self.warmup_steps)

    def prepare(self) -> tuple[Batch, Metrics]:
        return advantage_rows(self.policy, self.rollout_data, self.rewards(), self.config)

    def update(self, batch: Batch) -> Metrics:
        rate = self.anneal()
        metrics = a2c_update(self.policy, self.optimizer, batch, self.settings, self.loss)
        return metrics | {"learning_rate": rate}
