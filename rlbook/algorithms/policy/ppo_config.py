"""The hyper-parameters of PPO and what it logs; see `rlbook.algorithms.policy.ppo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from rlbook.algorithms.policy.options import MinibatchOptions, NetworkOptions, ReferenceOptions
from rlbook.checks import bound, non_negative, number_from, positive, positive_int, unit_interval
from rlbook.hyperparameters import Rate


@dataclass(frozen=True)
class PPOConfig(NetworkOptions, MinibatchOptions, ReferenceOptions):
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
    clip: Annotated[Rate, bound] = 0.2
    # ε of the upper side alone; none means the same as clip
    clip_high: Annotated[float, bound] | None = None
    # c, at least 1: where A < 0, a sample's loss is at most -c A; none sets no bound
    dual_clip: Annotated[float, number_from(1.0)] | None = None
    # how far V may move from its old value in an update, in reward units; none: no clipping (detail
    # 9)
    clip_value: Annotated[float, bound] | None = None
    learning_rate: Annotated[Rate, positive] = 2.5e-4  # Adam's step size, > 0
    # c_v, weight of the value loss (½ mean square, detail 10)
    value_coef: Annotated[float, non_negative] = 1.0
    # c_e, weight of the entropy bonus, in reward units per nat (detail 10)
    entropy_coef: Annotated[Rate, non_negative] = 0.0
    normalize_advantage: bool = True  # standardise advantages (detail 7)
    # over which of them: each minibatch (ε beside the standard deviation), or all of the rollout
    # (whitening, ε under its root, as in TRL and verl); n - 1 in both, unmasked elements alone
    normalize_over: Literal["minibatch", "rollout"] = "minibatch"
    # stop an update's epochs when the policy has moved this far, in nats (diagnostics: detail 12)
    target_kl: Annotated[float, positive] | None = None
    # scale the rollout's rewards, KL penalty included, to unit variance and leave their mean
    whiten_reward: bool = False
    # a language model's critic: the policy's trunk with a head of 0, or the reward model's weights
    critic_start: Literal["policy", "reward_model"] = "policy"
    # a time limit: bootstrap from V at the truncation, or treat it as terminal (a token budget)
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"


METRICS = {
    "policy_loss": "clipped surrogate, minimised; its size means little, "
    "since advantages are standardised",
    "value_loss": "½ mean (V - target)², in squared reward units",
    "entropy": "mean entropy of π(·|s), in nats; falls as the policy makes up its mind",
    "approx_kl": "KL(π_old ‖ π) after the update, estimated by k3, in nats; "
    "above 0.05 the steps are too large",
    "clip_fraction": "share of samples that the clip takes the gradient from, in the last epoch",
    "grad_norm": "L2 norm of the gradient before clipping, mean over the last epoch",
    "explained_variance": "1 - Var(target - V) / Var(target); "
    "1 is a perfect critic, 0 no better than a constant",
    "learning_rate": "Adam's step size in this update",
    "reference_kl": "KL(π ‖ π_ref) per step, estimated, in nats (where kl_coef > 0)",
    "kl_coef": "β in this update, in reward units per nat (where kl_target changes it)",
}
