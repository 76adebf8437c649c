"""Group-relative policy optimisation: compare an episode with others from the same start.

    repeat
        from each of several starts, play G episodes with π_old; R_i is the return of episode i
        A_i = (R_i - mean of the group) / (standard deviation of the group + 1e-4),
              the same for every step of the episode
        minimise  -mean min(ρ A, clip(ρ, 1-ε, 1+ε) A)  -  c_e mean H(π)  +  β mean KL(π ‖ π_ref)

There is no critic. A group whose episodes all did equally well teaches nothing. On the maze a group
is G episodes from one start; on a token environment, G completions of one prompt. Without the clip
and the deviation this is REINFORCE with the group's mean as baseline.

The group's mean contains R_i itself, which makes the reward's gradient (G - 1) / G of its unbiased
size. The KL term in the loss is not reduced with it, so β acts like β G / (G - 1).
`baseline` = leave-one-out, the mean of the other G - 1 returns, removes the factor.

Source: Shao et al. 2024 (DeepSeekMath), arXiv:2402.03300, eq. 3; `scale` and `average` = none,
constant: Liu et al. 2025 (Dr. GRPO), arXiv:2503.20783; clip_high and average = token: Yu et al.
2025 (DAPO), arXiv:2503.14476; baseline = leave-one-out: Ahmadian et al. 2024, arXiv:2402.14740.
Difference: β is 0 by default, as in TRL.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlbook import checks
from rlbook.agent import Metrics, Parts, Step
from rlbook.algorithms.policy.policy_agent import AVERAGES, PolicyAgent
from rlbook.data.rollout import Batch, minibatches
from rlbook.functional.advantages import group_advantage
from rlbook.functional.averages import averaged, given
from rlbook.functional.divergences import ESTIMATORS, check_estimator, k3
from rlbook.functional.policy_losses import (
    clip_fraction,
    clipped_surrogate_loss,
    regularised_loss,
)
from rlbook.functional.schedules import Schedule
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.policies.optimizer import LossOutput, gradient_step, mean_metrics


@dataclass(frozen=True)
class GRPOConfig:
    group_size: int = 8  # G, episodes from one start, at least 2; divides num_envs
    # what centred returns are divided by: the group's deviation, the whole batch's, or nothing
    scale: Literal["std", "batch", "none"] = "std"
    # what is taken off a return: the mean of its group, or of the others in it
    baseline: Literal["mean", "leave-one-out"] = "mean"
    batch_size: int | None = None  # episodes of a minibatch; none takes the whole round
    epochs: int = 1  # passes over a round of episodes
    clip: float | Schedule = 0.2  # ε, how far the ratio ρ may move from 1 and still gain, > 0
    clip_high: float | None = None  # ε of the upper side alone; none means the same as clip
    # c, at least 1: where A < 0, the loss of a step is at most -c A; none sets no bound
    dual_clip: float | None = None
    # the loss: a mean over steps, over episodes' means, or a sum over a constant
    average: Literal["token", "sequence", "constant"] = "token"
    average_divisor: int = 1  # steps per episode that average = constant divides by
    mask_truncated: bool = False  # leave episodes out of the loss that a limit cut short
    # β, weight of the KL penalty that pulls towards the first policy, or a named reference, in
    # reward units per nat; in the loss and with baseline = mean it acts like β G / (G - 1)
    kl_coef: float | Schedule = 0.0
    kl_in: Literal["reward", "loss"] = "loss"  # where the penalty goes
    # how the KL divergence is estimated from samples; k1+ and k3+ have the values of k1 and k3 and
    # the gradient of k2; k1, whose gradient has mean zero, only goes into the reward
    kl_estimator: Literal["k1", "k2", "k3", "k1+", "k3+"] = "k3"
    entropy_coef: float | Schedule = 0.0  # c_e, weight of the entropy bonus, reward units per nat
    learning_rate: float | Schedule = 1e-3  # Adam's step size, > 0
    anneal_learning_rate: bool = False  # lower the step size linearly to 0 over the run
    adam_eps: float = 1e-8  # Adam's ε
    max_grad_norm: float = 1.0  # the gradient's L2 norm is clipped to this
    temperature: float = 1.0  # divides the logits of a discrete policy, always; > 0
    hidden_sizes: tuple[int, ...] = (64, 64)  # units of each hidden layer of an MLP
    # episodes that are backpropagated at once; changes memory, not the gradient
    micro_batch_size: int | None = None

    def __post_init__(self) -> None:
        checks.check_fields(
            self, group_size=checks.at_least(2), scale=checks.one_of("std", "batch", "none"),
            baseline=checks.one_of("mean", "leave-one-out"),
            batch_size=checks.optional(checks.positive_int), epochs=checks.positive_int,
            clip_high=checks.optional(checks.bound),
            dual_clip=checks.optional(checks.number_from(1.0)), average=checks.one_of(*AVERAGES),
            average_divisor=checks.positive_int, mask_truncated=checks.boolean,
            kl_in=checks.one_of("reward", "loss"),
            kl_estimator=checks.one_of(*ESTIMATORS), anneal_learning_rate=checks.boolean,
            adam_eps=checks.positive, max_grad_norm=checks.bound, temperature=checks.positive,
            hidden_sizes=checks.positive_ints,
            micro_batch_size=checks.optional(checks.positive_int),
        )  # fmt: skip
        checks.check_rates(
            self, clip=checks.bound, learning_rate=checks.positive,
            entropy_coef=checks.non_negative, kl_coef=checks.non_negative,
        )  # fmt: skip
        check_estimator(self.kl_estimator, self.kl_in)


class GRPO(PolicyAgent):
    """Group-relative policy optimisation; see the module docstring."""

    Config = GRPOConfig
    uses = ("reference", *PolicyAgent.uses)
    rollout = "episodes"
    default_num_envs = 32
    METRICS = {
        "policy_loss": "clipped surrogate, minimised",
        "entropy": "mean entropy of π(·|s), in nats",
        "approx_kl": "KL(π_old ‖ π) over the round, estimated by k3, in nats; "
        "exactly 0 with one epoch of one minibatch",
        "clip_fraction": "share of steps whose probability ratio left [1-ε, 1+ε]",
        "grad_norm": "L2 norm of the gradient before clipping",
        "group_return": "mean undiscounted return of the round, in reward units, "
        "without any KL penalty",
        "zero_std_groups": "share of groups whose returns are all equal, "
        "and which therefore teach nothing",
        "learning_rate": "Adam's step size in this update",
        "reference_kl": "KL(π ‖ π_ref) per step, estimated, in nats (where kl_coef > 0)",
    }

    def __init__(
        self, env: AdaptedVectorEnv, config: GRPOConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: GRPOConfig = config

    def learn(self, step: Step) -> Metrics:
        self.rollout_data.add(step, self._log_prob)
        if not self.round_over(step):
            return {}
        batch, metrics = self.prepare()
        metrics |= self.update(batch)
        self.rollout_data.clear()
        return metrics

    @torch.no_grad()
    def prepare(self) -> tuple[Batch, Metrics]:
        """Group-relative advantages for every episode of the round: rows [N, T]."""
        config, data = self.config, self.rollout_data
        batch = self.policy.batch(data, "episode")
        returns, metrics = data.tensor("reward").sum(0), {}                            # [N]
        metrics["group_return"] = float(returns.mean())
        batch.reference_log_prob = self.reference_log_prob(batch)
        if batch.reference_log_prob is not None:
            estimator = ESTIMATORS[config.kl_estimator]
            kl = estimator(batch.log_prob, batch.reference_log_prob, batch.mask)       # [N, T]
            metrics["reference_kl"] = float(averaged(kl, batch.mask))
            if config.kl_in == "reward":
                returns = returns - self.now("kl_coef") * kl.sum(1)
        groups = returns.view(-1, config.group_size)
        metrics["zero_std_groups"] = float((groups == groups[:, :1]).all(1).float().mean())
        advantage = group_advantage(
            returns, config.group_size, scale=config.scale, baseline=config.baseline
        )
        batch.advantage = advantage[:, None].expand(batch.mask.shape).contiguous()
        if config.mask_truncated:
            batch.mask = batch.mask & ~data.tensor("truncated").any(0)[:, None]
        return batch, metrics

    def update(self, batch: Batch) -> Metrics:
        """One or more epochs over the round; returns the mean diagnostics."""
        rate = self.anneal()
        size = self.config.batch_size or len(batch)
        steps = [
            self.train_on(minibatch)
            for _ in range(self.config.epochs)
            for minibatch in minibatches(batch, size, self.shuffling)
        ]
        return mean_metrics(steps) | {"learning_rate": rate}

    def train_on(self, batch: Batch) -> dict[str, Tensor]:
        """One gradient step. Returns the diagnostics and "grad_norm"."""
        batch = dataclasses.replace(batch, weight=self.average()(batch.mask))
        return gradient_step(
            self.optimizer, self.loss, batch,
            micro_batch_size=self.config.micro_batch_size, max_grad_norm=self.config.max_grad_norm,
        )  # fmt: skip

    def loss(self, batch: Batch) -> LossOutput:
        """The total loss of some episodes, and what it is made of."""
        config, mask = self.config, batch.mask
        assert batch.advantage is not None and batch.weight is not None
        average = given(batch.weight)
        entropy_coef, kl_coef = self.now("entropy_coef"), self.now("kl_coef")
        clips = {"clip": self.now("clip"), "clip_high": config.clip_high}
        log_prob, entropy, _ = self.policy.evaluate(batch, entropy_gradient=entropy_coef > 0)
        policy_loss = clipped_surrogate_loss(
            log_prob, batch.log_prob, batch.advantage, dual_clip=config.dual_clip,
            mask=mask, average=average, **clips,
        )  # fmt: skip
        assert entropy is not None
        entropy, kl = averaged(entropy, mask, average), None
        if batch.reference_log_prob is not None and config.kl_in == "loss":
            estimator = ESTIMATORS[config.kl_estimator]
            kl = averaged(estimator(log_prob, batch.reference_log_prob, mask), mask, average)
        total = regularised_loss(
            policy_loss, entropy, kl, entropy_coef=entropy_coef, kl_coef=kl_coef
        )
        with torch.no_grad():
            return LossOutput(total, {
                "policy_loss": policy_loss.detach(),
                "entropy": entropy.detach(),
                "approx_kl": averaged(k3(batch.log_prob, log_prob, mask), mask, average),
                "clip_fraction": clip_fraction(
                    log_prob, batch.log_prob, mask=mask, average=average, **clips
                ),
            })  # fmt: skip
