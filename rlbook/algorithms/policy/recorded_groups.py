"""GRPO on recorded groups with scores, such as the beams of a search: π_old is the reference.

A_i = (s_i - mean of the group) / (standard deviation of the group + 1e-4) / τ
minimise the loss of `grpo` with ρ = π(a|s) / π_ref(a|s)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

import torch

from rlbook.agent import Data, Metrics
from rlbook.algorithms.policy.grpo_config import GRPOConfig
from rlbook.algorithms.policy.kl_penalty import KLControl
from rlbook.algorithms.policy.policy_agent import weighted_step
from rlbook.data.episodes import RankedBatch
from rlbook.data.rollout import Batch
from rlbook.functional.advantages import group_advantage
from rlbook.functional.averages import weighted_sum
from rlbook.networks.data_parallel import log_prob_by_rows
from rlbook.networks.optimizer import Optimizer, mean_metrics
from rlbook.networks.policy import Policy
from rlbook.seeding import rng_for


class Learner(Protocol):
    """The part of `grpo`'s interface that the functions below use."""

    config: Any
    seed: int
    parts: Any
    progress: float
    policy: Policy
    reference: Policy | None
    optimizer: Optimizer
    control: KLControl
    loss: Any

    @property
    def settings(self) -> GRPOConfig: ...

    def anneal(self) -> float: ...


def fit_groups(agent: Learner, data: Data) -> Iterator[Metrics]:
    """One gradient step for each minibatch of recorded groups."""
    held_out = data.hold_out(agent.config.held_out, rng_for(agent.seed, "held out"))
    for groups in data.minibatches(agent.config.batch_size or 16):
        batch, metrics = recorded_rows(agent, groups)
        rate, config = agent.anneal(), agent.settings
        loss = partial(agent.loss, agent.policy, config=config)
        step = weighted_step(agent.optimizer, loss, batch, config)
        metrics |= mean_metrics([step]) | {"learning_rate": rate} | reference_metrics(agent, batch)
        metrics |= agent.control.update_coef(metrics["reference_kl"])
        if len(held_out) and data.passes % 1 == 0:
            metrics |= held_out_metrics(agent, data[held_out])
        yield metrics


@torch.no_grad()
def recorded_rows(agent: Learner, groups: RankedBatch) -> tuple[Batch, Metrics]:
    """Recorded groups as rows [B, T] with group-relative advantages: those of the best few episodes
    at first, then of all."""
    config, temperature = agent.config, agent.control.temperature
    if config.top is not None and agent.progress < config.top_share:
        groups = groups.best_episodes(config.top)
    batch, metrics = groups.episodes.to(agent.parts.device), {}
    assert agent.reference is not None
    batch.log_prob = batch.reference_log_prob = log_prob_by_rows(agent.reference, batch)
    scores = groups.returns.split(groups.sizes.tolist())
    advantage = torch.cat(
        [
            group_advantage(score, len(score), scale=config.scale, baseline=config.baseline)
            for score in scores
        ]
    )
    if config.advantage_clip is not None:
        advantage = advantage.clamp(-config.advantage_clip, config.advantage_clip)
    if temperature is not None:
        advantage, metrics["score_temperature"] = advantage / temperature, temperature
    metrics |= {"advantage": float(advantage.mean()), "advantage_std": float(advantage.std())}
    advantage = advantage.to(batch.mask.device)[:, None]
    batch.advantage = advantage.expand(batch.mask.shape).contiguous()
    return batch, metrics


@torch.no_grad()
def reference_metrics(agent: Learner, batch: Batch) -> Metrics:
    """Metrics of the policy's distance from the reference in recorded states."""
    assert agent.reference is not None
    new, old = agent.policy.distributions(batch), agent.reference.distributions(batch)
    ratio = (new.log_prob(batch.action) - batch.log_prob).exp()
    kl = weighted_sum(new.kl(old), batch.mask)
    return {"reference_kl": float(kl), "ratio": float(weighted_sum(ratio, batch.mask))}


@torch.no_grad()
def held_out_metrics(agent: Learner, groups: RankedBatch) -> Metrics:
    """Loss and KL on the held-out recorded groups."""
    batch, _ = recorded_rows(agent, groups)
    batch = batch.weigh(agent.config.averaging())
    loss = agent.loss(agent.policy, batch, config=agent.settings).metrics["policy_loss"]
    kl = reference_metrics(agent, batch)["reference_kl"]
    return {"held_out_loss": float(loss), "held_out_kl": kl}


IDLE_WITH_RECORDED = (
    "epochs",
    "refill",
    "min_spread",
    "importance_cap",
    "episode_reward",
    "mask_truncated",
    "credit",
)
"""Hyper-parameters without effect on learning from recorded groups."""


def check_recorded(config: GRPOConfig) -> None:
    """Raises ValueError if a hyper-parameter has no meaning with recorded groups."""
    if config.kl_coef == 0.0:
        raise ValueError(
            "kl_coef must be above 0 for recorded groups, whose ratio is to the reference, got 0.0"
        )
    for name, value in {"scale": config.scale, "baseline": config.baseline}.items():
        if value == "batch":
            raise ValueError(f"{name} must be within each group for recorded groups, got 'batch'")
    if config.kl_in == "reward":
        raise ValueError("kl_in must be 'loss' for recorded groups, got 'reward'")
