"""The hyper-parameters of PPO and what it logs; see `rlbook.algorithms.policy.ppo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from rlbook.algorithms.policy.options import (
    ImportanceOptions,
    MinibatchOptions,
    NetworkOptions,
    ReferenceOptions,
)
from rlbook.checks import bound, non_negative, number_from, positive, positive_int, unit_interval
from rlbook.hyperparameters import Rate


@dataclass(frozen=True)
class PPOConfig(NetworkOptions, MinibatchOptions, ReferenceOptions, ImportanceOptions):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    # λ of the GAE advantage estimate, in [0, 1]; 0 relies on the critic, 1 on the returns (detail
    # 5)
    gae_lambda: Annotated[float, unit_interval] = 0.95
    # T, steps per environment between updates (detail 1); a sequence model collects one episode
    # per environment instead
    rollout_steps: Annotated[int, positive_int] = 128
    # minibatch size: steps, or episodes for a sequence model (detail 6)
    batch_size: Annotated[int, positive_int] = 256
    epochs: Annotated[int, positive_int] = 4  # K, passes over a rollout
    # ε, clip range of the probability ratio around 1, > 0 (detail 8)
    clip: Annotated[Rate, bound] = 0.2
    # ε of the upper bound; none: the same as clip
    clip_high: Annotated[float, bound] | None = None
    # c, at least 1: if A < 0, bounds a sample's loss by -c A; none sets no bound
    dual_clip: Annotated[float, number_from(1.0)] | None = None
    # clip range of V around its old value in an update, in reward units; none: no clipping (detail
    # 9)
    clip_value: Annotated[float, bound] | None = None
    learning_rate: Annotated[Rate, positive] = 2.5e-4  # Adam's step size, > 0
    # c_v, weight of the value loss (½ mean square, detail 10)
    value_coef: Annotated[float, non_negative] = 1.0
    # c_e, weight of the entropy bonus, in reward units per nat (detail 10)
    entropy_coef: Annotated[Rate, non_negative] = 0.0
    normalize_advantage: bool = True  # standardise advantages (detail 7)
    # standardise per minibatch (ε added to the standard deviation) or over the whole rollout
    # (whitening, ε added to the variance, as in TRL and verl); both use n - 1 and unmasked elements
    normalize_over: Literal["minibatch", "rollout"] = "minibatch"
    # end an update early when approx_kl exceeds this, in nats (diagnostics: detail 12)
    target_kl: Annotated[float, positive] | None = None
    # scale the rollout's rewards, KL penalty included, to unit variance; keeps their mean
    whiten_reward: bool = False
    # initial critic of a language model: the policy's trunk with a zero head, or the reward model
    critic_start: Literal["policy", "reward_model"] = "policy"
    # at a time limit: bootstrap from V, or treat it as terminal (such as a token budget)
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"


METRICS = {
    "policy_loss": "clipped surrogate, minimised; its size means little, "
    "because advantages are standardised",
    "value_loss": "½ mean (V - target)², in squared reward units",
    "entropy": "mean entropy of π(·|s), in nats; falls as the policy becomes more certain",
    "approx_kl": "KL(π_old ‖ π) after the update, estimated by k3, in nats; "
    "above 0.05 the steps are too large",
    "clip_fraction": "fraction of samples whose gradient the clip removes, in the last epoch",
    "grad_norm": "L2 norm of the gradient before clipping, mean over the last epoch",
    "explained_variance": "1 - Var(target - V) / Var(target); "
    "1 is a perfect critic, 0 no better than a constant",
    "learning_rate": "Adam's step size in this update",
    "reference_kl": "estimated KL(π ‖ π_ref) per step, in nats (if kl_coef > 0)",
    "importance": "mean importance weight, learner's probability over sampler's, at most C "
    "(if importance_cap is set)",
    "kl_coef": "β in this update, in reward units per nat (if kl_target is set)",
}
