"""REINFORCE: increase each action's log-probability in proportion to the return that followed it.

    repeat
        play whole episodes with π;   G_t = r_t + γ r_{t+1} + γ² r_{t+2} + …,   A_t = G_t - b
        minimise  -mean over episodes Σ_t A_t log π(a_t|s_t)

With γ = 1 the expected gradient is minus that of the expected return, for every baseline b that
does not depend on a_t; a good b reduces the variance. `baseline` = none means b = 0; leave-one-out
is the mean return of the other episodes (with a group_size, of those from the same start: RLOO);
learned is V(s_t), a network regressed on G_t.

Source: Williams 1992, doi:10.1007/BF00992696; Sutton & Barto 2018, boxes on pages 328 and 330;
RLOO: Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740. Differences: the boxes' factor γ^t
is omitted, so late steps count as much as early ones; one Adam step for many episodes; a time limit
ends the return.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor

from rlbook.agent import Metrics, Parts, Step
from rlbook.algorithms.policy.options import AdamOptions, RecurrentOptions, ScalingOptions
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.checks import non_negative, positive_int, unit_interval
from rlbook.data.rollout import Batch, Rollout
from rlbook.functional.advantages import leave_one_out_advantage
from rlbook.functional.averages import weighted_sum
from rlbook.functional.policy_losses import policy_gradient_loss, regularised_loss
from rlbook.functional.returns import discounted_returns
from rlbook.functional.value_losses import squared_value_loss
from rlbook.hyperparameters import Rate
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.normalizer import Normalizer
from rlbook.networks.optimizer import LossOutput, Optimizer, gradient_step, mean_metrics
from rlbook.networks.policy import Policy


@torch.no_grad()
def reinforce_rows(
    policy: Policy, rollout: Rollout, reward: Tensor, config: ReinforceConfig
) -> Batch:
    """Whole episodes [T, N] as rows, with A, the value target, and each step's share of the
    loss."""
    mask = rollout.tensor("valid")
    ends = rollout.tensor("terminated"), rollout.tensor("truncated")
    returns = discounted_returns(reward, *ends, config.gamma, valid=mask)  # [T, N]
    advantage = returns - baseline(policy, rollout, returns, config)
    weight = mask / mask.shape[1]  # a sum over steps, a mean over N
    return policy.batch(rollout, advantage=advantage, target=returns, weight=weight)


def baseline(policy: Policy, rollout: Rollout, returns: Tensor, config: ReinforceConfig) -> Tensor:
    """b for each step: [T, N] → [T, N], in reward units."""
    if config.baseline == "none":
        return torch.zeros_like(returns)
    if config.baseline == "learned":
        return policy.values(rollout)[0]
    group = config.group_size if config.group_size > 1 else returns.shape[1]
    return (returns[0] - leave_one_out_advantage(returns[0], group)).expand_as(returns)


def reinforce_update(
    policy: Policy,
    optimizer: Optimizer,
    batch: Batch,
    config: ReinforceConfig,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """One gradient step with the rows of a round; returns the diagnostics.

    Args:
        policy, optimizer: changed in place.
        batch: rows, as `reinforce_rows` makes them.
        config: hyper-parameters, each schedule at its value.
        loss: of some rows; None is `reinforce_loss`.
    """
    assert batch.advantage is not None and batch.weight is not None
    metrics = gradient_step(
        optimizer,
        partial(loss or reinforce_loss, policy, config=config),
        batch,
        micro_batch_size=config.micro_batch_size,
        max_grad_norm=config.max_grad_norm,
    )
    for name in metrics.keys() & {"entropy", "value_loss"}:  # logged: means over steps
        metrics[name] = metrics[name] / batch.weight.sum()
    metrics["advantage_std"] = batch.advantage[batch.mask].std()
    return mean_metrics([metrics])


def reinforce_loss(policy: Policy, batch: Batch, *, config: ReinforceConfig) -> LossOutput:
    """These rows' share of the round's loss; lower is better."""
    log_prob, entropy, value = policy.evaluate(batch, entropy_gradient=config.entropy_coef > 0)
    assert entropy is not None and batch.advantage is not None
    total = policy_gradient_loss(log_prob, batch.advantage, **batch.share)
    bonus = weighted_sum(entropy, **batch.share)
    metrics = {"policy_loss": total.detach(), "entropy": bonus.detach()}
    if value is not None and batch.target is not None:
        value_loss = squared_value_loss(value, batch.target, **batch.share)
        metrics["value_loss"] = value_loss.detach()
        total = total + config.value_coef * value_loss
    total = regularised_loss(total, bonus, None, entropy_coef=config.entropy_coef)
    return LossOutput(total, metrics)


@dataclass(frozen=True)
class ReinforceConfig(ScalingOptions, RecurrentOptions, AdamOptions):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    baseline: Literal["none", "leave-one-out", "learned"] = "leave-one-out"  # b, subtracted from G
    # episodes per start; must divide num_envs; 1: each episode has its own start
    group_size: Annotated[int, positive_int] = 1
    # weight of the value loss (½ mean square) if baseline = learned
    value_coef: Annotated[float, non_negative] = 0.5
    # weight of the entropy bonus, in reward units per nat
    entropy_coef: Annotated[Rate, non_negative] = 0.0
    # rows backpropagated at once; affects memory, not the gradient
    micro_batch_size: Annotated[int, positive_int] | None = None


class Reinforce(PolicyAgent):
    """REINFORCE; see the module docstring."""

    Config = ReinforceConfig
    rollout = "episodes"
    default_num_envs = 16
    loss = staticmethod(reinforce_loss)
    METRICS = {
        "policy_loss": "-mean over episodes of Σ A log π, minimised; its value means little",
        "value_loss": "½ mean (V - G)², in squared reward units (if baseline = learned)",
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
        self.critic = config.baseline == "learned"
        super().__init__(env, config, seed, parts)

    def learn(self, step: Step) -> Metrics:
        memory = self._acting if self.remembers else None
        self.rollout_data.add(step, self._log_prob, memory)
        if memory is not None:
            memory.forget(step.terminated | step.truncated)
        if not self.round_over(step):
            return {}
        batch = self.prepare()
        metrics = self.update(batch)
        # only now: what acted and what learned saw the same numbers
        if isinstance(self.policy.normalizer, Normalizer):
            self.policy.normalizer.update(batch.obs[batch.mask])
        self.rollout_data.clear()
        return metrics

    def prepare(self) -> Batch:
        """The round as rows to train on."""
        return reinforce_rows(self.policy, self.rollout_data, self.rewards(), self.config)

    def update(self, batch: Batch) -> Metrics:
        """One gradient step; returns the diagnostics."""
        rate = self.anneal()
        metrics = reinforce_update(self.policy, self.optimizer, batch, self.settings, self.loss)
        return metrics | {"learning_rate": rate}
