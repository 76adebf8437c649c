"""Group-relative policy optimisation (GRPO): compare an episode with others from the same start.

    repeat
        from each of several starts, play G episodes with π_old; R_i is the return of episode i
        A_i = (R_i - mean of the group) / (standard deviation of the group + 1e-4),
              the same for every step of the episode
        minimise  -mean min(ρ A, clip(ρ, 1-ε, 1+ε) A)  -  c_e mean H(π)  +  β mean KL(π ‖ π_ref)

There is no critic. A group whose returns are all equal has no gradient. On the maze a group is G
episodes from one start; on a token environment, G completions of one prompt. Without the clip and
the standard deviation this is REINFORCE with the group's mean as baseline.

The group's mean contains R_i itself, which scales the reward's gradient by (G - 1) / G of its
unbiased size. The KL term in the loss is not scaled with it, so β acts like β G / (G - 1).
`baseline` = leave-one-out, the mean of the other G - 1 returns, removes the factor.

`refill` plays on until no group of a round has equal returns (DAPO's dynamic sampling); all steps
count. `fit` uses recorded groups with scores; π_old is then the reference. `kl_band` adapts β.

Source: Shao et al. 2024 (DeepSeekMath), arXiv:2402.03300, eq. 3; `scale` and `average` = none,
constant: Liu et al. 2025 (Dr. GRPO), arXiv:2503.20783; clip_high, average = token and refill: Yu
et al. 2025 (DAPO), arXiv:2503.14476; baseline = leave-one-out: Kool et al. 2019, "Buy 4 REINFORCE
Samples", and Ahmadian et al. 2024 (RLOO), arXiv:2402.14740; credit = reward-to-go: Hu 2025
(REINFORCE++), arXiv:2501.03262; ratio = sequence: Zheng et al. 2025 (GSPO), arXiv:2507.18071; ratio
= cispo: MiniMax 2025, arXiv:2506.13585.
Difference: β is 0 by default, as in TRL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from numpy.random import Generator

from rlbook.agent import Data, Metrics, Parts, State, Step
from rlbook.algorithms.policy.episode_rewards import EpisodeReward, episode_reward
from rlbook.algorithms.policy.episode_scores import score_episodes, weight_by_importance
from rlbook.algorithms.policy.grpo_config import METRICS, GRPOConfig
from rlbook.algorithms.policy.kl_penalty import KLControl, loss_penalty
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.algorithms.policy.recorded_groups import IDLE_WITH_RECORDED, check_recorded, fit_groups
from rlbook.data.refill import DynamicSampling
from rlbook.data.rollout import Batch, Rollout, minibatches
from rlbook.functional.advantages import group_advantage, reward_to_go_advantage
from rlbook.functional.averages import weighted_sum
from rlbook.functional.divergences import k3
from rlbook.functional.policy_losses import (
    clip_fraction,
    clipped_surrogate_loss,
    clipped_weight_loss,
    episode_log_ratio,
    regularised_loss,
)
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.optimizer import LossOutput, Optimizer, gradient_step, mean_metrics
from rlbook.networks.policy import Policy


@torch.no_grad()
def grpo_rows(
    policy: Policy,
    rollout: Rollout,
    config: GRPOConfig,
    reference: Policy | None = None,
    reward: EpisodeReward | None = None,
    sampling: DynamicSampling | None = None,
) -> tuple[Batch | None, Metrics]:
    """A round of whole episodes [T, N] as rows [N, T] with advantages.

    Args:
        policy: the one that played.
        rollout: G episodes from one start after the other.
        config: hyper-parameters, each schedule at its value.
        reference: π_ref; None where none is kept.
        reward: what an episode is worth; None for its return.
        sampling: leaves groups out; the rows are None while it waits for more rounds.
    """
    batch = policy.batch(rollout, "episode")
    weights = {}
    if config.importance_cap is not None:
        weights["importance"] = weight_by_importance(batch, policy, config)
    returns, metrics = score_episodes(batch, policy, rollout, config, reference, reward)
    metrics |= weights
    if config.mask_truncated:
        batch.mask = batch.mask & ~rollout.tensor("truncated").any(0)[:, None]
    if sampling is not None:
        batch, dropped = sampling.add(batch, returns)
        metrics |= dropped
    if batch is None:
        return None, metrics
    assert batch.score is not None
    if batch.reward is None:  # one advantage for the whole episode
        advantage = group_advantage(
            batch.score, config.group_size, scale=config.scale, baseline=config.baseline
        )[:, None]
    else:  # each step's own
        advantage = reward_to_go_advantage(batch.reward, batch.mask)
    if config.advantage_clip is not None:
        advantage = advantage.clamp(-config.advantage_clip, config.advantage_clip)
    batch.advantage = advantage.expand(batch.mask.shape).contiguous()
    return batch, metrics


def grpo_update(
    policy: Policy,
    optimizer: Optimizer,
    batch: Batch,
    config: GRPOConfig,
    rng: Generator,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """One or more passes over the rows of a round; returns the mean diagnostics.

    Args:
        policy, optimizer: changed in place.
        batch: rows, as `grpo_rows` makes them.
        config: hyper-parameters, each schedule at its value.
        rng: shuffles the rows.
        loss: of some rows; None is `grpo_loss`.
    """
    step_loss, metrics = partial(loss or grpo_loss, policy, config=config), []
    for _ in range(config.epochs):
        for minibatch in minibatches(batch, config.batch_size or len(batch), rng):
            step = gradient_step(
                optimizer,
                step_loss,
                minibatch.weigh(config.averaging()),
                micro_batch_size=config.micro_batch_size,
                max_grad_norm=config.max_grad_norm,
            )
            metrics.append(step)
    return mean_metrics(metrics)


def grpo_loss(policy: Policy, batch: Batch, *, config: GRPOConfig) -> LossOutput:
    """These rows' share of the clipped surrogate, the entropy bonus and the KL penalty; lower is
    better."""
    assert batch.advantage is not None and batch.weight is not None
    log_prob, entropy, _ = policy.evaluate(batch, entropy_gradient=config.entropy_coef > 0)
    assert entropy is not None
    new, old, mask = log_prob, batch.log_prob, batch.mask
    if config.ratio in ("sequence", "product"):  # ρ of the whole episode, at each of its steps
        new = episode_log_ratio(new, old, mask, mean=config.ratio == "sequence")
        old = torch.zeros_like(old)
    weight = batch.weight if batch.importance is None else batch.weight * batch.importance
    clip: Any = {"clip": config.clip, "clip_high": config.clip_high, "mask": mask}
    weighted = clip | {"average": weight}
    if config.ratio == "cispo":
        policy_loss = clipped_weight_loss(new, old, batch.advantage, **weighted)
    else:
        policy_loss = clipped_surrogate_loss(
            new, old, batch.advantage, dual_clip=config.dual_clip, **weighted
        )
    penalised = batch.reference_log_prob is not None and config.kl_in == "loss"
    kl = loss_penalty(log_prob, batch, config) if penalised else None
    entropy = weighted_sum(entropy, mask, batch.weight)
    coefs = {"entropy_coef": config.entropy_coef, "kl_coef": config.kl_coef}
    total = regularised_loss(policy_loss, entropy, kl, **coefs)
    advantage = None if config.ratio == "cispo" else batch.advantage
    # in the mean of what is logged all steps weigh alike
    share = batch.weight if batch.step_weight is None else batch.step_weight
    clipped = clip_fraction(new.detach(), old, advantage, **clip, average=share)
    moved = weighted_sum(k3(batch.log_prob, log_prob.detach(), mask), mask, share)
    metrics = {"policy_loss": policy_loss.detach(), "entropy": entropy.detach()}
    return LossOutput(total, metrics | {"approx_kl": moved, "clip_fraction": clipped})


class GRPO(PolicyAgent):
    """Group-relative policy optimisation; see the module docstring."""

    Config = GRPOConfig
    uses = ("reference", "sampler", *PolicyAgent.uses)
    data_kinds = ("Groups",)
    idle_on_data = IDLE_WITH_RECORDED
    rollout = "episodes"
    default_num_envs = 32
    loss = staticmethod(grpo_loss)
    METRICS = METRICS

    def __init__(
        self, env: AdaptedVectorEnv, config: GRPOConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        self.reward = episode_reward(config.episode_reward, env)
        super().__init__(env, config, seed, parts)
        self.config: GRPOConfig = config
        self.sampling = DynamicSampling(config.group_size, config.refill, config.min_spread)
        self.seed = seed
        self.control = KLControl(config)

    @staticmethod
    def needs_reference(config: GRPOConfig) -> bool:
        return config.kl_coef != 0.0 or config.episode_reward == "answer"

    @property
    def settings(self) -> GRPOConfig:
        moved = {} if self.config.kl_band is None else {"kl_coef": self.control.kl_coef}
        resolves = moved or self.scheduled
        return self.config.resolve(self.progress, **moved) if resolves else self.config

    @property
    def may_be_best(self) -> bool:  # type: ignore[override]
        """Whether the policy is within `kl_band`."""
        return self.control.is_within_band

    def learn(self, step: Step) -> Metrics:
        self.rollout_data.add(step, self._log_prob)
        if not self.round_over(step):
            return {}
        batch, metrics = self.prepare()
        self.rollout_data.clear()
        if batch is not None:
            metrics |= self.update(batch)
            metrics |= self.control.update_coef(metrics.get("reference_kl", 0.0))
        return metrics

    def prepare(self) -> tuple[Batch | None, Metrics]:
        """The round as rows to train on; with `refill` those of several rounds, or None until there
        are enough."""
        config = self.settings
        sampling = self.sampling if config.refill > 1 or config.min_spread else None
        parts = self.reference, self.reward, sampling
        return grpo_rows(self.policy, self.rollout_data, config, *parts)

    def update(self, batch: Batch) -> Metrics:
        rate, config = self.anneal(), self.settings
        found = grpo_update(self.policy, self.optimizer, batch, config, self.shuffling, self.loss)
        return found | {"learning_rate": rate}

    def check_data(self, data: Data) -> None:
        super().check_data(data)
        check_recorded(self.config)

    def fit(self, data: Data) -> Iterator[Metrics]:
        """One gradient step for each minibatch of recorded groups; π_old is the reference."""
        self.check_data(data)
        return fit_groups(self, data)

    def state_dict(self) -> State:
        control = {"control": self.control.state_dict()}
        return super().state_dict() | self.sampling.state_dict() | control

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.sampling.load_state_dict(state)
        self.control.load_state_dict(state["control"])
