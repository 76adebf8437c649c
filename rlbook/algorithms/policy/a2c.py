"""Advantage actor-critic (A2C): a policy gradient every few steps, with V standing in for the rest
of the episode.

    repeat
        act for T steps in N environments with π
        A_t ← Σ_l (γλ)^l δ_{t+l},   δ_t = r_t + γ V(s_{t+1}) - V(s_t)      until the rollout's end
        minimise  -mean A log π(a|s)  +  c_v ½ mean (V - (A + V_old))²  -  c_e mean H(π)

REINFORCE waits for the return of a whole episode. A2C replaces what follows the rollout by the
critic's estimate, so that it can learn before the episode ends; the estimate varies less than the
return, and is biased as far as V is wrong. λ = 1 takes all rewards of the rollout ("n-step"), λ = 0
one. One gradient step is made with each rollout. PPO makes several, and needs its clip for that:
with one epoch, one minibatch and advantages as they are, PPO is this algorithm.

Source: Mnih et al. 2016, arXiv:1602.01783, algorithm S3; all environments step together as in
Wu et al. 2017, arXiv:1708.05144, section 5. Difference: λ, from Schulman et al. 2016,
arXiv:1506.02438, eq. 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlbook.agent import Metrics, Parts, Step
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.checks import bound, non_negative, positive, positive_int, positive_ints, unit_interval
from rlbook.data.rollout import Batch
from rlbook.fast_forms import has_fast_form
from rlbook.functional.advantages import explained_variance, gae, normalize
from rlbook.functional.averages import averaged, given, per_token
from rlbook.functional.policy_losses import policy_gradient_loss, regularised_loss
from rlbook.functional.schedules import Schedule
from rlbook.functional.value_losses import squared_value_loss
from rlbook.hyperparameters import Hyperparameters
from rlbook.policies.optimizer import (
    Group,
    LossOutput,
    Optimizer,
    gradient_step,
    mean_metrics,
    rmsprop,
)


@dataclass(frozen=True)
class A2CConfig(Hyperparameters):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    # λ of the advantage estimate, in [0, 1]; 1 is the n-step return
    gae_lambda: Annotated[float, unit_interval] = 1.0
    rollout_steps: Annotated[int, positive_int] = 5  # T, steps of each environment between updates
    # c_v, weight of the value loss (½ mean square)
    value_coef: Annotated[float, non_negative] = 0.5
    # c_e, weight of the entropy, in reward units per nat
    entropy_coef: Annotated[float | Schedule, non_negative] = 0.0
    optimizer: Literal["adam", "rmsprop"] = "adam"  # the paper has RMSprop
    learning_rate: Annotated[float | Schedule, positive] = 3e-3  # the optimiser's step size, > 0
    anneal_learning_rate: bool = True  # lower the step size linearly to 0 over the run
    adam_eps: Annotated[float, positive] = 1e-5  # the optimiser's ε
    max_grad_norm: Annotated[float, bound] = 0.5  # the gradient's L2 norm is clipped to this
    normalize_advantage: bool = False  # standardise advantages within each rollout
    # standardise observations by running statistics, clipped to ±10
    normalize_observation: bool = False
    # divide rewards by the running standard deviation of the discounted return, clipped to ±10
    normalize_reward: bool = False
    orthogonal_init: bool = True  # orthogonal weights, gain 0.01 for the policy's output
    separate_networks: bool = True  # a network of its own for V; false: a second head
    # divides the logits of a discrete policy, always; > 0
    temperature: Annotated[float, positive] = 1.0
    # units of each hidden layer of an MLP
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)
    # rows backpropagated at once; changes memory alone
    micro_batch_size: Annotated[int, positive_int] | None = None


class A2C(PolicyAgent):
    """Advantage actor-critic; see the module docstring."""

    Config = A2CConfig
    critic = True
    METRICS = {
        "policy_loss": "-mean A log π, minimised; of no meaning by itself",
        "value_loss": "½ mean (V - target)², in squared reward units",
        "entropy": "mean entropy of π(·|s), in nats; falls as the policy makes up its mind",
        "grad_norm": "L2 norm of the gradient before clipping",
        "explained_variance": "1 - Var(target - V) / Var(target); 1 is a perfect critic, 0 no "
        "better than a constant",
        "learning_rate": "the optimiser's step size",
    }

    def __init__(
        self, env: VectorEnv, config: A2CConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        self.config: A2CConfig = config
        super().__init__(env, config, seed, parts)
        self.rollout = self.policy.rollout
        self.check_rollout(env, config.rollout_steps)

    def make_optimizer(self, groups: Sequence[Group], rate: float) -> Optimizer:
        if self.config.optimizer == "adam":
            return super().make_optimizer(groups, rate)
        return rmsprop(groups, rate, eps=self.config.adam_eps)

    def value(self, observations: ArrayLike | dict[str, ArrayLike]) -> NDArray[np.float32]:
        """V of the environment's observations: [N, ...] → [N], in reward units."""
        return self.critic_value(observations)

    def learn(self, step: Step) -> Metrics:
        self.rollout_data.add(step, self._log_prob)
        if not self.rollout_over(step, self.config.rollout_steps):
            return {}
        batch, metrics = self.prepare()
        metrics |= self.update(batch)
        self.end_rollout(batch)
        return metrics

    @torch.no_grad()
    def prepare(self) -> tuple[Batch, Metrics]:
        """The rollout as rows, with A, the target of V, and each row's share in the loss."""
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

    def update(self, batch: Batch) -> Metrics:
        """One gradient step; returns the diagnostics."""
        rate = self.anneal()
        return mean_metrics([self.train_on(batch)]) | {"learning_rate": rate}

    @has_fast_form("rlbook.fast.a2c_step:train_on")
    def train_on(self, batch: Batch) -> dict[str, Tensor]:
        """One gradient step. Returns the diagnostics and "grad_norm"."""
        return gradient_step(
            self.optimizer, self.loss, batch,
            micro_batch_size=self.config.micro_batch_size, max_grad_norm=self.config.max_grad_norm,
        )  # fmt: skip

    def loss(self, batch: Batch) -> LossOutput:
        """The share of some rows in the loss of the rollout."""
        coef = self.now("entropy_coef")
        log_prob, entropy, value = self.policy.evaluate(batch, entropy_gradient=coef > 0)
        assert entropy is not None and value is not None and batch.weight is not None
        assert batch.advantage is not None and batch.target is not None
        mask, average = batch.mask, given(batch.weight)
        policy_loss = policy_gradient_loss(log_prob, batch.advantage, mask=mask, average=average)
        value_loss = squared_value_loss(value, batch.target, mask=mask, average=average)
        bonus = averaged(entropy, mask, average)
        total = regularised_loss(
            policy_loss + self.config.value_coef * value_loss, bonus, None, entropy_coef=coef
        )
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": bonus}
        return LossOutput(total, {name: item.detach() for name, item in metrics.items()})
