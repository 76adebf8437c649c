"""Proximal policy optimisation: take several gradient steps on one rollout, but not so far that the
data no longer fit the policy.

    repeat
        act for T steps in N environments with π_old; A ← GAE(V)
        repeat for K epochs, over shuffled minibatches
            ρ = π(a|s) / π_old(a|s)
            minimise  -mean min(ρ A, clip(ρ, 1-ε, 1+ε) A)
                      + c_v ½ mean (V - (A + V_old))²  -  c_e mean H(π)

The clip removes the incentive to move ρ out of [1-ε, 1+ε]. The same file trains an MLP on a maze
and a sequence model on text: the latter collects whole episodes, and its minibatches are episodes;
a reference policy may pull the policy back through a KL penalty. With a reward model that pays for
whole texts and a critic that starts from it, these are the four models of RLHF.

Source: Schulman et al. 2017, arXiv:1707.06347, algorithm 1 and eq. 9; the 13 core details of Huang
et al. 2022, "The 37 Implementation Details of PPO", numbered in the config. RLHF: Ziegler et al.
2019, arXiv:1909.08593, section 2; the critic: Stiennon et al. 2020, arXiv:2009.01325, section 3.4.
Difference: all values of a rollout are computed once, when it is full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlbook.agent import Metrics, Parts, State, Step
from rlbook.algorithms.policy.policy_agent import PolicyAgent, surrogate_loss
from rlbook.checks import at, bound, non_negative, number_from, positive, positive_int, positive_ints, unit_interval
from rlbook.data.rollout import Batch, minibatches
from rlbook.errors import RequestError
from rlbook.fast_forms import has_fast_form
from rlbook.functional.advantages import explained_variance, gae, normalize, whiten
from rlbook.functional.averages import Average, averaged, given, per_token
from rlbook.functional.divergences import ESTIMATORS, adapted_kl_coef, check_estimator, k3
from rlbook.functional.policy_losses import clip_fraction, regularised_loss
from rlbook.functional.schedules import Schedule
from rlbook.functional.value_losses import clipped_value_loss, squared_value_loss
from rlbook.hyperparameters import Hyperparameters, check_moving
from rlbook.policies.optimizer import LossOutput, gradient_step, mean_metrics


@dataclass(frozen=True)
class PPOConfig(Hyperparameters):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    # λ of the advantage estimate, in [0, 1]; 0 trusts the critic, 1 the returns (detail 5)
    gae_lambda: Annotated[float, unit_interval] = 0.95
    # T, steps of each environment between updates (detail 1); a sequence model collects one episode
    # of each instead
    rollout_steps: Annotated[int, positive_int] = 128
    # rows of a minibatch: steps, or episodes for a sequence model (detail 6)
    batch_size: Annotated[int, positive_int] = 256
    epochs: Annotated[int, positive_int] = 4  # K, passes over a rollout
    # ε, how far the probability ratio may move from 1 and still gain, > 0 (detail 8)
    clip: Annotated[float | Schedule, bound] = 0.2
    # ε of the upper side alone; none means the same as clip
    clip_high: Annotated[float, bound] | None = None
    # c, at least 1: where A < 0, a sample's loss is at most -c A; none sets no bound
    dual_clip: Annotated[float, number_from(1.0)] | None = None
    # how far V may move from its old value in an update, in reward units; none: no clipping (detail
    # 9)
    clip_value: Annotated[float, bound] | None = None
    learning_rate: Annotated[float | Schedule, positive] = 2.5e-4  # Adam's step size, > 0
    anneal_learning_rate: bool = True  # lower the step size linearly to 0 over the run (detail 4)
    adam_eps: Annotated[float, positive] = 1e-5  # Adam's ε (detail 3)
    # c_v, weight of the value loss (½ mean square, detail 10)
    value_coef: Annotated[float, non_negative] = 1.0
    # c_e, weight of the entropy bonus, in reward units per nat (detail 10)
    entropy_coef: Annotated[float | Schedule, non_negative] = 0.0
    # the gradient's L2 norm is clipped to this (detail 11)
    max_grad_norm: Annotated[float, bound] = 0.5
    normalize_advantage: bool = True  # standardise advantages (detail 7)
    # over which of them: each minibatch (ε beside the standard deviation), or all of the rollout
    # (whitening, ε under its root, as in TRL and verl); n - 1 in both, unmasked elements alone
    normalize_over: Literal["minibatch", "rollout"] = "minibatch"
    # orthogonal weights of gain √2, 0.01 for the policy's output and 1 for the value's (detail 2)
    orthogonal_init: bool = True
    # a network of its own for V; false makes it a second head on the policy's (detail 13)
    separate_networks: bool = True
    # stop an update's epochs when the policy has moved this far, in nats (diagnostics: detail 12)
    target_kl: Annotated[float, positive] | None = None
    # standardise observations by running statistics, clipped to ±10
    normalize_observation: bool = False
    # divide rewards by the running standard deviation of the discounted return, clipped to ±10
    normalize_reward: bool = False
    # scale the rollout's rewards, KL penalty included, to unit variance and leave their mean
    whiten_reward: bool = False
    # a language model's critic: the policy's trunk with a head of 0, or the reward model's weights
    critic_start: Literal["policy", "reward_model"] = "policy"
    # units of each hidden layer of an MLP
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)
    # divides the logits of a discrete policy, acting and learning alike, > 0
    temperature: Annotated[float, positive] = 1.0
    # a time limit: V goes on behind it, or it ends the task (a token budget)
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"
    # β, weight of the KL penalty towards the first policy, or a named reference, in reward units
    # per nat
    kl_coef: Annotated[float | Schedule, non_negative] = 0.0
    # the KL per step, in nats, towards which β is changed after each rollout; none leaves β alone
    kl_target: Annotated[float, positive] | None = None
    # rows (steps, or episodes for a sequence model) in which β changes by a fifth at most
    kl_horizon: Annotated[int, positive_int] = 10_000
    # what β cannot fall below, where kl_target changes it
    kl_coef_min: Annotated[float, positive] = 1e-4
    # what β cannot rise above, where kl_target changes it
    kl_coef_max: Annotated[float, positive] = 10.0
    kl_in: Literal["reward", "loss"] = "reward"  # where the penalty goes
    # of the KL; + has k2's gradient; k1 not in the loss
    kl_estimator: Literal["k1", "k2", "k3", "k1+", "k3+"] = "k1"
    # what the loss of an episode batch is a mean over
    average: Literal["token", "sequence", "constant"] = "token"
    # elements per episode that average = constant divides by
    average_divisor: Annotated[int, positive_int] = 1
    # rows that are backpropagated at once; changes memory, not the gradient
    micro_batch_size: Annotated[int, positive_int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_estimator(self.kl_estimator, self.kl_in)
        needs = ("kl_horizon", "kl_coef_min", "kl_coef_max")
        check_moving(self, "kl_coef", "kl_target", needs)


class PPO(PolicyAgent):
    """Proximal policy optimisation; see the module docstring."""

    Config = PPOConfig
    uses = ("reference", "reward_model", *PolicyAgent.uses)
    critic = True
    METRICS = {
        "policy_loss": "clipped surrogate, minimised; its size means little, "
        "since advantages are standardised",
        "value_loss": "½ mean (V - target)², in squared reward units",
        "entropy": "mean entropy of π(·|s), in nats; falls as the policy makes up its mind",
        "approx_kl": "KL(π_old ‖ π) after the update, estimated by k3, in nats; "
        "above 0.05 the steps are too large",
        "clip_fraction": "share of samples that the clip takes the gradient from, "
        "in the last epoch",
        "grad_norm": "L2 norm of the gradient before clipping, mean over the last epoch",
        "explained_variance": "1 - Var(target - V) / Var(target); "
        "1 is a perfect critic, 0 no better than a constant",
        "learning_rate": "Adam's step size in this update",
        "reference_kl": "KL(π ‖ π_ref) per step, estimated, in nats (where kl_coef > 0)",
        "kl_coef": "β in this update, in reward units per nat (where kl_target changes it)",
    }

    def __init__(
        self, env: VectorEnv, config: PPOConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: PPOConfig = config
        self.rollout = self.policy.rollout
        self.kl_coef = at(config.kl_coef, 0.0)                # changed by `adapt_kl_coef` alone
        if config.critic_start == "reward_model":
            if parts.reward_model is None:
                lacking = "needs a reward_model, and none is named"
                raise RequestError(f"critic_start 'reward_model' {lacking}")
            self.policy.start_critic(parts.reward_model.network)  # type: ignore[attr-defined]
        self.check_rollout(env, config.rollout_steps)

    def value(self, observations: ArrayLike | dict[str, ArrayLike]) -> NDArray[np.float32]:
        """V of the environment's observations: [N, ...] → [N], in reward units."""
        return self.critic_value(observations)

    def learn(self, step: Step) -> Metrics:
        self.rollout_data.add(step, self._log_prob)
        if not self.rollout_over(step, self.config.rollout_steps):
            return {}
        batch, metrics = self.prepare()
        metrics |= self.update(batch)
        if self.config.kl_target is not None:
            metrics["kl_coef"] = self.kl_coef
            self.adapt_kl_coef(metrics["reference_kl"], len(batch))
        self.end_rollout(batch)
        return metrics

    def now(self, name: str) -> float:
        adapts = name == "kl_coef" and self.config.kl_target is not None
        return self.kl_coef if adapts else super().now(name)

    def adapt_kl_coef(self, kl: float, rows: int) -> None:
        """Moves β after a rollout of so many rows, in which the KL was `kl` per step."""
        config = self.config
        assert config.kl_target is not None
        self.kl_coef = adapted_kl_coef(
            self.kl_coef, kl, target=config.kl_target, share=rows / config.kl_horizon,
            low=config.kl_coef_min, high=config.kl_coef_max,
        )  # fmt: skip

    @torch.no_grad()
    def prepare(self) -> tuple[Batch, Metrics]:
        """Advantages and value targets for everything in the rollout, as rows to train on."""
        data, config = self.rollout_data, self.config
        reward, mask = self.rewards(), data.tensor("valid")                            # [T, N]
        terminated, truncated = data.tensor("terminated"), data.tensor("truncated")
        reference_log_prob, metrics = None, {}
        if self.reference is not None:
            episodes = self.policy.batch(data, "episode")
            reference_log_prob = self.reference.evaluate(episodes, entropy=False)[0].T  # [T, N]
            kl = ESTIMATORS[config.kl_estimator](episodes.log_prob.T, reference_log_prob, mask)
            metrics["reference_kl"] = float(averaged(kl, mask))
            reward = reward - self.now("kl_coef") * kl if config.kl_in == "reward" else reward
        reward = whiten(reward, mask, shift=False) if config.whiten_reward else reward
        value, next_value = self.policy.values(data)
        if config.truncation == "terminal":
            terminated, truncated = terminated | truncated, torch.zeros_like(truncated)
        advantage = gae(
            reward, value, next_value, terminated, truncated,
            gamma=config.gamma, gae_lambda=config.gae_lambda, valid=mask,
        )  # fmt: skip
        target = advantage + value
        metrics["explained_variance"] = explained_variance(advantage, target, mask)
        if config.normalize_advantage and config.normalize_over == "rollout":
            advantage = whiten(advantage, mask)
        fields = {"value": value, "advantage": advantage, "target": target}
        if reference_log_prob is not None:
            fields["reference_log_prob"] = reference_log_prob
        return self.as_batch(mask, **fields), metrics

    def update(self, batch: Batch) -> Metrics:
        """K epochs of minibatches; returns the means of the last one's diagnostics."""
        rate, config = self.anneal(), self.config
        metrics: list[dict[str, Tensor]] = []
        for epoch in range(config.epochs):
            if epoch == 0 or len(batch) > config.batch_size:   # one minibatch stays what it is
                rows = minibatches(batch, config.batch_size, self.shuffling)
                shuffled = [self.weighed(minibatch) for minibatch in rows]
            # diagnostics take a tenth of an update: only where somebody looks at them
            diagnose = epoch == config.epochs - 1 or config.target_kl is not None
            metrics = [self.train_on(minibatch, diagnose) for minibatch in shuffled]
            if config.target_kl and mean_metrics(metrics)["approx_kl"] > config.target_kl:
                break
        return mean_metrics(metrics) | {"learning_rate": rate}

    def weighed(self, batch: Batch) -> Batch:
        """A minibatch with standardised advantages, and each element's share in the loss."""
        assert batch.advantage is not None
        mask = None if self.policy.unit == "step" else batch.mask
        if self.config.normalize_advantage and self.config.normalize_over == "minibatch":
            batch.advantage = normalize(batch.advantage, mask)
        if mask is not None or self.config.micro_batch_size:
            batch.weight = (per_token if mask is None else self.average())(batch.mask)
        return batch

    @has_fast_form("rlbook.fast.ppo_step:train_on")
    def train_on(self, batch: Batch, diagnose: bool = True) -> dict[str, Tensor]:
        """One gradient step on a minibatch.

        Returns "grad_norm" and, where asked for, the other diagnostics.
        """
        config = self.config
        return gradient_step(
            self.optimizer, lambda rows: self.loss(rows, diagnose), batch,
            micro_batch_size=config.micro_batch_size, max_grad_norm=config.max_grad_norm,
        )  # fmt: skip

    def loss(self, batch: Batch, diagnose: bool = True) -> LossOutput:
        """The total loss of some rows and, where asked for, what it is made of."""
        config, over = self.config, _share(batch)
        assert batch.value is not None and batch.advantage is not None and batch.target is not None
        entropy_coef, kl_coef = self.now("entropy_coef"), self.now("kl_coef")
        log_prob, entropy, value = self.policy.evaluate(
            batch, entropy=diagnose or entropy_coef > 0, entropy_gradient=entropy_coef > 0
        )
        assert value is not None
        policy_loss = surrogate_loss(
            log_prob, batch.log_prob, batch.advantage,
            clip=self.now("clip"), clip_high=config.clip_high, dual_clip=config.dual_clip, **over,
        )  # fmt: skip
        if config.clip_value is None:
            value_loss = squared_value_loss(value, batch.target, **over)
        else:
            value_loss = clipped_value_loss(
                value, batch.value, batch.target, clip=config.clip_value, **over
            )
        entropy = None if entropy is None else averaged(entropy, **over)
        kl = None
        if batch.reference_log_prob is not None and config.kl_in == "loss":
            estimate = ESTIMATORS[config.kl_estimator]
            kl = averaged(estimate(log_prob, batch.reference_log_prob, over.get("mask")), **over)
        total = regularised_loss(
            policy_loss + config.value_coef * value_loss, entropy, kl,
            entropy_coef=entropy_coef, kl_coef=kl_coef,
        )  # fmt: skip
        if not diagnose or entropy is None:
            return LossOutput(total, {})
        parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        parts = {name: part.detach() for name, part in parts.items()}
        return LossOutput(total, parts | self.movement(log_prob.detach(), batch))

    def state_dict(self) -> State:
        return super().state_dict() | {"kl_coef": self.kl_coef}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.kl_coef = state["kl_coef"]

    def movement(self, log_prob: Tensor, batch: Batch) -> dict[str, Tensor]:
        """How far the policy is from the one that acted. log_prob: shaped like `batch.mask`."""
        over = _share(batch)
        kl = averaged(k3(batch.log_prob, log_prob, over.get("mask")), **over)
        clips = {"clip": self.now("clip"), "clip_high": self.config.clip_high}
        clipped = clip_fraction(log_prob, batch.log_prob, batch.advantage, **clips, **over)
        return {"approx_kl": kl, "clip_fraction": clipped}


class Share(TypedDict, total=False):
    """Which elements count in a mean, and how much; empty for all alike."""

    mask: Tensor
    average: Average


def _share(batch: Batch) -> Share:
    if batch.weight is None:
        return {}
    return {"mask": batch.mask, "average": given(batch.weight)}
