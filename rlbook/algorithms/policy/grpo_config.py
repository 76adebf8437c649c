"""The hyper-parameters of GRPO and what it logs; see `rlbook.algorithms.policy.grpo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from rlbook.algorithms.policy.options import (
    AdamOptions,
    ImportanceOptions,
    MinibatchOptions,
    PolicyOptions,
)
from rlbook.checks import (
    at_least,
    bound,
    check_idle,
    non_negative,
    number_from,
    positive,
    positive_fraction,
    positive_int,
    positive_pair,
    rising_pair,
    share_below_one,
    unit_interval,
)
from rlbook.functional.divergences import check_estimator
from rlbook.hyperparameters import Hyperparameters, Rate, check_moving


@dataclass(frozen=True)
class SamplingOptions(Hyperparameters):
    """Which groups are learned from."""

    # maximum number of rounds played per update in order to replace groups of equal returns; 1
    # keeps such groups, whose gradient is 0
    refill: Annotated[int, positive_int] = 1
    # from the eleventh round on, drop groups whose standard deviation is below this fraction of
    # its average over rounds (from the sixth on); 0 drops none
    min_spread: Annotated[float, unit_interval] = 0.0


@dataclass(frozen=True)
class KLBandOptions(Hyperparameters):
    """An adaptive weight of the KL penalty."""

    # band of the KL per step, in nats: above it β rises, below it β falls, after each gradient
    # step on recorded groups or after each round; none keeps β fixed
    kl_band: Annotated[tuple[float, float], rising_pair] | None = None
    # factor by which β rises or falls outside kl_band, above 1
    kl_factor: Annotated[float, number_from(1.0)] = 1.1
    # lower bound of β if kl_band is set
    kl_coef_min: Annotated[float, positive] = 1e-3
    # upper bound of β if kl_band is set
    kl_coef_max: Annotated[float, positive] = 10.0


@dataclass(frozen=True)
class RecordedGroupOptions(Hyperparameters):
    """How recorded groups are used."""

    # recorded groups: use only this many of the best episodes, also for the group's mean; none
    # uses all
    top: Annotated[int, at_least(2)] | None = None
    # fraction of the budget, from the start, during which `top` applies
    top_share: Annotated[float, positive_fraction] = 1.0
    # recorded groups: divide advantages by τ, which moves with the KL from the first value, at the
    # lower end of kl_band, to the second, at its upper end; none: τ = 1
    score_temperatures: Annotated[tuple[float, float], positive_pair] | None = None
    # fraction of the recorded groups held out from training, in [0, 1)
    held_out: Annotated[float, share_below_one] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top is None:
            check_idle(self, "top_share", "without top")


@dataclass(frozen=True)
class GRPOConfig(
    PolicyOptions,
    AdamOptions,
    MinibatchOptions,
    SamplingOptions,
    KLBandOptions,
    RecordedGroupOptions,
    ImportanceOptions,
):
    # G, episodes per start, at least 2; must divide num_envs
    group_size: Annotated[int, at_least(2)] = 8
    # the reward of an episode: none: its return; else the policy's own confidence (RLIF), or the
    # probability of the reference answer after the episode's reasoning (answer: RLPR)
    episode_reward: (
        Literal["self-certainty", "entropy", "log-probability", "trajectory", "answer"] | None
    ) = None
    # divisor of the centred returns: the standard deviation of the group or of the whole batch, or
    # none
    scale: Literal["std", "batch", "none"] = "std"
    # baseline subtracted from a return: the mean of its group, of the others in its group, or of
    # the whole batch, or none
    baseline: Literal["mean", "leave-one-out", "batch", "none"] = "mean"
    # credit of a step: its episode's return, or the reward-to-go from that step on, standardised
    # over all steps of the round (REINFORCE++: baseline and scale are batch)
    credit: Literal["return", "reward-to-go"] = "return"
    # episodes, or recorded groups, per minibatch; none: the whole round, or 16 groups
    batch_size: Annotated[int, positive_int] | None = None
    epochs: Annotated[int, positive_int] = 1  # passes over a round of episodes
    # ε, clip range of the ratio ρ around 1, > 0
    clip: Annotated[Rate, bound] = 0.2
    # ε of the upper bound; none: the same as clip
    clip_high: Annotated[float, bound] | None = None
    # c, at least 1: if A < 0, bounds the loss of a step by -c A; none sets no bound
    dual_clip: Annotated[float, number_from(1.0)] | None = None
    # ρ: per step (token), the geometric mean over the episode (sequence: GSPO), the product over
    # the episode (RLOO), or per step as a policy-gradient weight clipped at 1 + clip_high (CISPO)
    ratio: Literal["token", "sequence", "product", "cispo"] = "token"
    mask_truncated: bool = False  # exclude truncated episodes from the loss
    # β, weight of the KL penalty towards the initial policy or a given reference, in reward units
    # per nat; in the loss with baseline = mean it acts like β G / (G - 1)
    kl_coef: Annotated[Rate, non_negative] = 0.0
    kl_in: Literal["reward", "loss"] = "loss"  # add the penalty to the reward or the loss
    # estimator of the KL divergence from samples; k1+ and k3+ have the values of k1 and k3 and the
    # gradient of k2; k1 is for the reward only, since its gradient has mean zero
    kl_estimator: Literal["k1", "k2", "k3", "k1+", "k3+"] = "k3"
    # clamp each step's estimate to ± this many nats, and k3's log-ratio to ±20; verl's low_var_kl
    # has 10; none: no clamp
    kl_clamp: Annotated[float, positive] | None = None
    # c_e, weight of the entropy bonus, in reward units per nat
    entropy_coef: Annotated[Rate, non_negative] = 0.0
    # clip advantages to ± this; none: no clipping
    advantage_clip: Annotated[float, bound] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_estimator(self.kl_estimator, self.kl_in)
        for name in ("baseline", "scale"):
            if self.credit == "reward-to-go" and getattr(self, name) != "batch":
                raise ValueError(
                    f"{name} must be 'batch' where credit is 'reward-to-go', got "
                    f"{getattr(self, name)!r}"
                )
        allowed = {"batch": ("batch", "none"), "none": ("none",)}.get(self.baseline)
        if allowed is not None and self.scale not in allowed:
            raise ValueError(
                f"scale must be {' or '.join(map(repr, allowed))} where baseline is"
                f" {self.baseline!r}, got {self.scale!r}: equal returns, which another baseline"
                " makes 0, have no deviation to be divided by"
            )
        needs = ("kl_factor", "kl_coef_min", "kl_coef_max", "score_temperatures")
        check_moving(self, "kl_coef", "kl_band", needs)


METRICS = {
    "policy_loss": "clipped surrogate, minimised",
    "entropy": "mean entropy of π(·|s), in nats",
    "approx_kl": "KL(π_old ‖ π) over the round, estimated by k3, in nats; "
    "0 but for rounding with one epoch of one minibatch",
    "clip_fraction": "fraction of steps whose gradient the clip removes (cispo: whose weight "
    "it changes)",
    "grad_norm": "L2 norm of the gradient before clipping",
    "group_return": "mean undiscounted return of the round, in reward units, "
    "without any KL penalty",
    "zero_std_groups": "fraction of groups whose returns are all equal, "
    "and whose gradient is therefore 0",
    "dropped_groups": "fraction of groups dropped by refill or min_spread",
    "episode_reward": "mean reward that replaces the episodes' return (if episode_reward is "
    "set); it does not measure correctness",
    "importance": "mean importance weight, learner's probability over sampler's, at most C "
    "(if importance_cap is set)",
    "learning_rate": "Adam's step size in this update",
    "reference_kl": "estimated KL(π ‖ π_ref) per step, in nats (if kl_coef > 0); for "
    "recorded groups, the exact KL in the recorded states, after the update",
    "kl_coef": "β in this update, in reward units per nat (if kl_band is set)",
    "score_temperature": "τ, the divisor of the advantages (if score_temperatures is set)",
    "ratio": "mean of π(a|s) / π_ref(a|s) over recorded steps, after the update",
    "advantage": "mean advantage of the recorded episodes; 0 up to rounding",
    "advantage_std": "standard deviation of the recorded episodes' advantages",
    "held_out_loss": "policy_loss on the held-out recorded groups, after each pass",
    "held_out_kl": "reference_kl on the held-out recorded groups, after each pass",
}
