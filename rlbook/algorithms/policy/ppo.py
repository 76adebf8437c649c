"""Proximal policy optimisation (PPO): take several gradient steps on one rollout, and clip the loss
so that the policy stays close to the one that collected it.

    repeat
        act for T steps in N environments with π_old; A ← GAE(V)
        repeat for K epochs, over shuffled minibatches
            ρ = π(a|s) / π_old(a|s)
            minimise  -mean min(ρ A, clip(ρ, 1-ε, 1+ε) A)
                      + c_v ½ mean (V - (A + V_old))²  -  c_e mean H(π)

The clip removes the incentive to move ρ out of [1-ε, 1+ε]. The same file trains an MLP on a maze
and a sequence model on text: the latter collects whole episodes, and its minibatches are episodes.
A KL penalty may keep the policy close to a reference policy. With a reward model that scores whole
texts and a critic initialised from it, these are the four models of RLHF.

Source: Schulman et al. 2017, arXiv:1707.06347, algorithm 1 and eq. 9; the 13 core details of Huang
et al. 2022, "The 37 Implementation Details of PPO", numbered in the config. RLHF: Ziegler et al.
2019, arXiv:1909.08593, section 2; the critic: Stiennon et al. 2020, arXiv:2009.01325, section 3.4.
Difference: all values of a rollout are computed once, when it is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from gymnasium.vector import VectorEnv
from numpy.random import Generator
from torch import Tensor

from rlbook.agent import Metrics, Parts, State
from rlbook.algorithms.policy.actor_critic_agent import ActorCriticAgent, surrogate_loss
from rlbook.algorithms.policy.episode_scores import weight_rollout
from rlbook.algorithms.policy.kl_penalty import KLPenalty, loss_penalty
from rlbook.algorithms.policy.ppo_config import METRICS, PPOConfig
from rlbook.data.rollout import Batch, Rollout, minibatches
from rlbook.errors import RequestError
from rlbook.functional.advantages import explained_variance, gae, normalize, whiten
from rlbook.functional.averages import per_token, weighted_sum
from rlbook.functional.divergences import k3
from rlbook.functional.policy_losses import clip_fraction, regularised_loss
from rlbook.functional.value_losses import clipped_value_loss, squared_value_loss
from rlbook.networks.optimizer import LossOutput, Optimizer, gradient_step, mean_metrics
from rlbook.networks.policy import Policy


@torch.no_grad()
def ppo_rows(
    policy: Policy, rollout: Rollout, reward: Tensor, config: PPOConfig, **fields: Tensor
) -> tuple[Batch, Metrics]:
    """A full rollout [T, N] as rows to train on, with advantages and value targets.

    Args:
        policy: its critic values every state and successor once.
        rollout: T steps of N environments.
        reward: [T, N], what counts as the reward, in reward units.
        config: hyper-parameters.
        fields: what else the rows are to have, [T, N] each.
    """
    mask = rollout.tensor("valid")
    terminated, truncated = rollout.tensor("terminated"), rollout.tensor("truncated")
    if config.truncation == "terminal":
        terminated, truncated = terminated | truncated, torch.zeros_like(truncated)
    reward = whiten(reward, mask, shift=False) if config.whiten_reward else reward
    value, next_value = policy.values(rollout)
    advantage = gae(
        reward,
        value,
        next_value,
        terminated,
        truncated,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        valid=mask,
    )
    target = advantage + value
    metrics = {"explained_variance": explained_variance(advantage, target, mask)}
    if config.normalize_advantage and config.normalize_over == "rollout":
        advantage = whiten(advantage, mask)
    fields |= {"value": value, "advantage": advantage, "target": target}
    return policy.batch(rollout, **fields), metrics


def ppo_update(
    policy: Policy,
    optimizer: Optimizer,
    batch: Batch,
    config: PPOConfig,
    rng: Generator,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """K epochs of minibatches over the rows of a rollout.

    Args:
        policy, optimizer: changed in place.
        batch: rows, as `ppo_rows` makes them.
        config: hyper-parameters, each schedule at its value (`Hyperparameters.resolve`).
        rng: shuffles the rows.
        loss: of a minibatch; None is `ppo_loss`.

    Returns:
        The means of the last epoch's diagnostics.
    """
    rows: list[Batch] = []
    metrics: list[dict[str, Tensor]] = []
    for epoch in range(config.epochs):
        if epoch == 0 or len(rows) > 1:  # one minibatch stays as it is
            shuffled = minibatches(batch, config.batch_size, rng)
            rows = [standardize_advantages(minibatch, policy, config) for minibatch in shuffled]
        # diagnostics take a tenth of an update: only where somebody looks at them
        diagnose = epoch == config.epochs - 1 or config.target_kl is not None
        step_loss = partial(loss or ppo_loss, policy, config=config, diagnose=diagnose)
        metrics = [
            gradient_step(
                optimizer,
                step_loss,
                minibatch,
                micro_batch_size=config.micro_batch_size,
                max_grad_norm=config.max_grad_norm,
            )
            for minibatch in rows
        ]
        if config.target_kl and mean_metrics(metrics)["approx_kl"] > config.target_kl:
            break
    return mean_metrics(metrics)


def ppo_loss(
    policy: Policy, batch: Batch, *, config: PPOConfig, diagnose: bool = True
) -> LossOutput:
    """These rows' share of the clipped surrogate, the value loss and the entropy bonus; lower is
    better.

    Without `diagnose` only the total is wanted.
    """
    assert batch.value is not None and batch.advantage is not None and batch.target is not None
    log_prob, entropy, value = policy.evaluate(
        batch,
        entropy=diagnose or config.entropy_coef > 0,
        entropy_gradient=config.entropy_coef > 0,
    )
    assert value is not None
    share = policy_share = batch.share
    if batch.importance is not None and batch.weight is not None:
        policy_share = share | {"average": batch.weight * batch.importance}
    policy_loss = surrogate_loss(
        log_prob,
        batch.log_prob,
        batch.advantage,
        clip=config.clip,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip,
        **policy_share,
    )
    if config.clip_value is None:
        value_loss = squared_value_loss(value, batch.target, **share)
    else:
        value_loss = clipped_value_loss(
            value, batch.value, batch.target, clip=config.clip_value, **share
        )
    entropy = None if entropy is None else weighted_sum(entropy, **share)
    penalised = batch.reference_log_prob is not None and config.kl_in == "loss"
    kl = loss_penalty(log_prob, batch, config) if penalised else None
    coefs = {"entropy_coef": config.entropy_coef, "kl_coef": config.kl_coef}
    total = regularised_loss(policy_loss + config.value_coef * value_loss, entropy, kl, **coefs)
    if not diagnose or entropy is None:
        return LossOutput(total, {})
    parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    parts = {name: part.detach() for name, part in parts.items()}
    return LossOutput(total, parts | policy_change(log_prob.detach(), batch, config))


def standardize_advantages(batch: Batch, policy: Policy, config: PPOConfig) -> Batch:
    """A minibatch with standardised advantages, and each element's share of the loss."""
    assert batch.advantage is not None
    mask = None if policy.unit == "step" else batch.mask
    if config.normalize_advantage and config.normalize_over == "minibatch":
        batch.advantage = normalize(batch.advantage, mask)
    if mask is not None or config.micro_batch_size or batch.importance is not None:
        batch = batch.weigh(per_token if mask is None else config.averaging())
    return batch


def policy_change(log_prob: Tensor, batch: Batch, config: PPOConfig) -> dict[str, Tensor]:
    """How far the policy is from the one that acted. log_prob: shaped like `batch.mask`."""
    old_log_prob, share = batch.log_prob, batch.share
    if batch.step_weight is not None:  # in the mean of what is logged all steps weigh alike
        share["average"] = batch.step_weight
    kl = weighted_sum(k3(old_log_prob, log_prob, share.get("mask")), **share)
    assert batch.advantage is not None
    bounds = {"clip": config.clip, "clip_high": config.clip_high}
    clipped = clip_fraction(log_prob, old_log_prob, batch.advantage, **bounds, **share)
    return {"approx_kl": kl, "clip_fraction": clipped}


class PPO(ActorCriticAgent):
    """Proximal policy optimisation; see the module docstring."""

    Config = PPOConfig
    uses = ("reference", "reward_model", "sampler", *ActorCriticAgent.uses)
    loss = staticmethod(ppo_loss)
    METRICS = METRICS

    def __init__(
        self, env: VectorEnv, config: PPOConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.penalty = KLPenalty(config)
        if config.critic_start == "reward_model":
            if parts.reward_model is None:
                lacking = "needs a reward_model, but none is given"
                raise RequestError(f"critic_start 'reward_model' {lacking}")
            self.policy.start_critic(parts.reward_model.network)  # type: ignore[attr-defined]

    @staticmethod
    def needs_reference(config: PPOConfig) -> bool:
        return config.kl_coef != 0.0

    @property
    def settings(self) -> PPOConfig:
        moved = {} if self.config.kl_target is None else {"kl_coef": self.penalty.coef}
        resolves = moved or self.scheduled
        return self.config.resolve(self.progress, **moved) if resolves else self.config

    def prepare(self) -> tuple[Batch, Metrics]:
        reward, data, config = self.rewards(), self.rollout_data, self.config
        weighted = config.importance_cap is not None
        fields, metrics = weight_rollout(data, self.policy, config) if weighted else ({}, {})
        if self.reference is not None:
            reward, fields["reference_log_prob"] = self.penalty.penalize(
                reward, self.policy, self.reference, data, self.settings.kl_coef
            )
            metrics["reference_kl"] = self.penalty.kl
        batch, rest = ppo_rows(self.policy, data, reward, config, **fields)
        return batch, metrics | rest

    def update(self, batch: Batch) -> Metrics:
        rate, config = self.anneal(), self.settings
        found = ppo_update(self.policy, self.optimizer, batch, config, self.shuffling, self.loss)
        found |= {"learning_rate": rate}
        return found if config.kl_target is None else found | self.penalty.adapt(len(batch))

    def state_dict(self) -> State:
        return super().state_dict() | {"kl_coef": self.penalty.coef}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.penalty.coef = state["kl_coef"]
