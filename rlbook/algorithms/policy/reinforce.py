"""REINFORCE: make every action likelier in proportion to the return that followed it.

    repeat
        play whole episodes with π;   G_t = r_t + γ r_{t+1} + γ² r_{t+2} + …,   A_t = G_t - b
        minimise  -mean over episodes Σ_t A_t log π(a_t|s_t)

With γ = 1 its gradient is, in the mean, minus that of the expected return, for every baseline b
that does not depend on a_t; a good b reduces the variance. `baseline` = none has b = 0;
leave-one-out takes the mean return of the other episodes (of those from the same start, with a
group_size: RLOO); learned takes V(s_t), a network that regresses on G_t.

Source: Williams 1992, doi:10.1007/BF00992696; Sutton & Barto 2018, boxes on pages 328 and 330;
RLOO: Ahmadian et al. 2024, arXiv:2402.14740. Differences: the boxes' γ^t is left out, so late steps
count like early ones; one step of Adam for many episodes; a time limit ends the return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from rlbook.agent import Metrics, Parts, Step
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.checks import bound, non_negative, positive, positive_int, positive_ints, unit_interval
from rlbook.data.rollout import Batch
from rlbook.functional.advantages import leave_one_out_advantage
from rlbook.functional.averages import averaged, given
from rlbook.functional.policy_losses import policy_gradient_loss, regularised_loss
from rlbook.functional.returns import discounted_returns
from rlbook.functional.schedules import Schedule
from rlbook.functional.value_losses import squared_value_loss
from rlbook.hyperparameters import Hyperparameters
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.policies.optimizer import LossOutput, gradient_step, mean_metrics


@dataclass(frozen=True)
class ReinforceConfig(Hyperparameters):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    baseline: Literal["none", "leave-one-out", "learned"] = "leave-one-out"  # b, taken off G
    # episodes from one start; divides num_envs; 1: each from its own
    group_size: Annotated[int, positive_int] = 1
    # weight of the value loss (½ mean square) where baseline = learned
    value_coef: Annotated[float, non_negative] = 0.5
    # weight of the entropy bonus, in reward units per nat
    entropy_coef: Annotated[float | Schedule, non_negative] = 0.0
    learning_rate: Annotated[float | Schedule, positive] = 1e-3  # Adam's step size, > 0
    anneal_learning_rate: bool = False  # lower the step size linearly to 0 over the run
    adam_eps: Annotated[float, positive] = 1e-8  # Adam's ε
    max_grad_norm: Annotated[float, bound] = 1.0  # the gradient's L2 norm is clipped to this
    # standardise observations by running statistics, clipped to ±10
    normalize_observation: bool = False
    # divide rewards by the running standard deviation of the discounted return, clipped to ±10
    normalize_reward: bool = False
    # divides the logits of a discrete policy, always; > 0
    temperature: Annotated[float, positive] = 1.0
    # units of each hidden layer of an MLP
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)
    # rows backpropagated at once; changes memory alone
    micro_batch_size: Annotated[int, positive_int] | None = None


class Reinforce(PolicyAgent):
    """REINFORCE; see the module docstring."""

    Config = ReinforceConfig
    rollout = "episodes"
    default_num_envs = 16
    METRICS = {
        "policy_loss": "-mean over episodes of Σ A log π, minimised; of no meaning by itself",
        "value_loss": "½ mean (V - G)², in squared reward units (where baseline = learned)",
        "entropy": "mean entropy of π(·|s), in nats",
        "advantage_std": "standard deviation of A over all steps, in reward units",
        "grad_norm": "L2 norm of the gradient before clipping",
        "learning_rate": "Adam's step size",
    }

    def __init__(
        self, env: AdaptedVectorEnv, config: ReinforceConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        if config.baseline == "leave-one-out" and env.num_envs < 2:
            raise ValueError("baseline = leave-one-out needs num_envs of at least 2, got 1")
        self.config, self.critic = config, config.baseline == "learned"
        super().__init__(env, config, seed, parts)

    def learn(self, step: Step) -> Metrics:
        self.rollout_data.add(step, self._log_prob)
        if not self.round_over(step):
            return {}
        batch = self.prepare()
        metrics = self.update(batch)
        self.end_rollout(batch)
        return metrics

    @torch.no_grad()
    def prepare(self) -> Batch:
        """The round as rows, with A, the target of V, and each step's share in the loss."""
        data = self.rollout_data
        reward, mask = self.rewards(), data.tensor("valid")                            # [T, N]
        ends = data.tensor("terminated"), data.tensor("truncated")
        returns = discounted_returns(reward, *ends, self.config.gamma, valid=mask)     # [T, N]
        fields = {"advantage": returns - self.baseline(returns), "target": returns}
        fields["weight"] = mask / mask.shape[1]                   # a sum over steps, a mean over N
        return self.as_batch(mask, **fields)

    def baseline(self, returns: Tensor) -> Tensor:
        """b for each step: [T, N] → [T, N], in reward units."""
        if self.config.baseline == "none":
            return torch.zeros_like(returns)
        if self.config.baseline == "learned":
            return self.policy.values(self.rollout_data)[0]
        group = self.group_size if self.group_size > 1 else returns.shape[1]
        return (returns[0] - leave_one_out_advantage(returns[0], group)).expand_as(returns)

    def update(self, batch: Batch) -> Metrics:
        """One gradient step; returns the diagnostics."""
        rate = self.anneal()
        assert batch.advantage is not None and batch.weight is not None
        metrics = gradient_step(
            self.optimizer, self.loss, batch,
            micro_batch_size=self.config.micro_batch_size, max_grad_norm=self.config.max_grad_norm,
        )  # fmt: skip
        for name in metrics.keys() & {"entropy", "value_loss"}:           # logged: means over steps
            metrics[name] = metrics[name] / batch.weight.sum()
        metrics["advantage_std"] = batch.advantage[batch.mask].std()
        return mean_metrics([metrics]) | {"learning_rate": rate}

    def loss(self, batch: Batch) -> LossOutput:
        """The share of some rows in the loss of the round."""
        coef = self.now("entropy_coef")
        log_prob, entropy, value = self.policy.evaluate(batch, entropy_gradient=coef > 0)
        assert entropy is not None and batch.advantage is not None and batch.weight is not None
        mask, average = batch.mask, given(batch.weight)
        total = policy_gradient_loss(log_prob, batch.advantage, mask=mask, average=average)
        bonus = averaged(entropy, mask, average)
        metrics = {"policy_loss": total.detach(), "entropy": bonus.detach()}
        if value is not None and batch.target is not None:
            value_loss = squared_value_loss(value, batch.target, mask=mask, average=average)
            metrics["value_loss"] = value_loss.detach()
            total = total + self.config.value_coef * value_loss
        total = regularised_loss(total, bonus, None, entropy_coef=coef)
        return LossOutput(total, metrics)
