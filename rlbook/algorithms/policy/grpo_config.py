"""The hyper-parameters of GRPO and what it logs; see `rlbook.algorithms.policy.grpo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from rlbook.algorithms.policy.options import AdamOptions, MinibatchOptions, PolicyOptions
from rlbook.checks import (
    at_least,
    bound,
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

    # rounds that may be played for one update, so that groups of equal returns are replaced; 1
    # keeps them, as groups that teach nothing
    refill: Annotated[int, positive_int] = 1
    # groups are left out whose deviation is below this share of the average over rounds, which
    # begins with the sixth, from the eleventh on; 0 leaves none out
    min_spread: Annotated[float, unit_interval] = 0.0


@dataclass(frozen=True)
class KLBandOptions(Hyperparameters):
    """A weight of the KL penalty that follows the KL."""

    # the KL per step, in nats, between which β is left alone: above it β rises, below it falls,
    # after each gradient step on recorded groups or after each round; none leaves β alone
    kl_band: Annotated[tuple[float, float], rising_pair] | None = None
    # what β is then multiplied or divided by, above 1
    kl_factor: Annotated[float, number_from(1.0)] = 1.1
    # what β cannot fall below, where kl_band changes it
    kl_coef_min: Annotated[float, positive] = 1e-3
    # what β cannot rise above, where kl_band changes it
    kl_coef_max: Annotated[float, positive] = 10.0


@dataclass(frozen=True)
class RecordedGroupOptions(Hyperparameters):
    """What is learned from recorded groups."""

    # of recorded groups: how many of the best episodes count, the others not even in the mean; none
    # takes all
    top: Annotated[int, at_least(2)] | None = None
    # the first share of the budget, in which `top` holds; then all count
    top_share: Annotated[float, positive_fraction] = 1.0
    # of recorded groups: advantages are divided by τ, which follows the KL from the first of these,
    # at the lower end of kl_band, to the second at its upper end; none divides by nothing
    score_temperatures: Annotated[tuple[float, float], positive_pair] | None = None
    # share of the recorded groups that is not learned from, in [0, 1)
    held_out: Annotated[float, share_below_one] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top is None and self.top_share != 1.0:
            raise ValueError("top_share is for a top, and there is none; leave it out")


@dataclass(frozen=True)
class GRPOConfig(
    PolicyOptions,
    AdamOptions,
    MinibatchOptions,
    SamplingOptions,
    KLBandOptions,
    RecordedGroupOptions,
):
    # G, episodes from one start, at least 2; divides num_envs
    group_size: Annotated[int, at_least(2)] = 8
    # what an episode is worth: none: its return; else how sure the policy was of what it did
    # (RLIF), or how likely it makes the reference answer behind its written steps (RLPR: answer)
    episode_reward: (
        Literal["self-certainty", "entropy", "log-probability", "trajectory", "answer"] | None
    ) = None
    # what centred returns are divided by: the group's deviation, the whole batch's, or nothing
    scale: Literal["std", "batch", "none"] = "std"
    # what is taken off a return: the mean of its group, of the others in it, of all, or nothing
    baseline: Literal["mean", "leave-one-out", "batch", "none"] = "mean"
    # what a step is judged by: its episode's return, or what was earned from the step on, which is
    # then standardised over all steps of the round (REINFORCE++: baseline and scale are batch)
    credit: Literal["return", "reward-to-go"] = "return"
    # episodes of a minibatch, or recorded groups; none takes the whole round, or 16 groups
    batch_size: Annotated[int, positive_int] | None = None
    epochs: Annotated[int, positive_int] = 1  # passes over a round of episodes
    # ε, how far the ratio ρ may move from 1 and still gain, > 0
    clip: Annotated[Rate, bound] = 0.2
    # ε of the upper side alone; none means the same as clip
    clip_high: Annotated[float, bound] | None = None
    # c, at least 1: where A < 0, the loss of a step is at most -c A; none sets no bound
    dual_clip: Annotated[float, number_from(1.0)] | None = None
    # ρ: of each step; the geometric mean of the episode's (GSPO); their product (RLOO); or of each
    # step, as a clipped weight of the policy gradient, at most 1 + clip_high (CISPO)
    ratio: Literal["token", "sequence", "product", "cispo"] = "token"
    # C, the largest weight of a sample that another program drew (π_old by the learner over π_old
    # by the sampler), above 0; none takes both for equal
    importance_cap: Annotated[float, bound] | None = None
    importance_of: Literal["token", "sequence"] = "token"  # that weight: of each step, or a product
    mask_truncated: bool = False  # leave episodes out of the loss that a limit cut short
    # β, weight of the KL penalty that pulls towards the first policy, or a named reference, in
    # reward units per nat; in the loss and with baseline = mean it acts like β G / (G - 1)
    kl_coef: Annotated[Rate, non_negative] = 0.0
    kl_in: Literal["reward", "loss"] = "loss"  # where the penalty goes
    # how the KL divergence is estimated from samples; k1+ and k3+ have the values of k1 and k3 and
    # the gradient of k2; k1, whose gradient has mean zero, only goes into the reward
    kl_estimator: Literal["k1", "k2", "k3", "k1+", "k3+"] = "k3"
    # c_e, weight of the entropy bonus, reward units per nat
    entropy_coef: Annotated[Rate, non_negative] = 0.0
    # advantages are cut to ± this; none cuts nothing
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
        needs = ("kl_factor", "kl_coef_min", "kl_coef_max", "score_temperatures")
        check_moving(self, "kl_coef", "kl_band", needs)


METRICS = {
    "policy_loss": "clipped surrogate, minimised",
    "entropy": "mean entropy of π(·|s), in nats",
    "approx_kl": "KL(π_old ‖ π) over the round, estimated by k3, in nats; "
    "exactly 0 with one epoch of one minibatch",
    "clip_fraction": "share of steps that the clip takes the gradient from (cispo: whose "
    "weight it changes)",
    "grad_norm": "L2 norm of the gradient before clipping",
    "group_return": "mean undiscounted return of the round, in reward units, "
    "without any KL penalty",
    "zero_std_groups": "share of groups whose returns are all equal, "
    "and which therefore teach nothing",
    "dropped_groups": "share of groups that refill or min_spread left out",
    "episode_reward": "mean of what the episodes are worth instead of their return "
    "(where episode_reward is set); says nothing of what is right",
    "importance": "mean weight of a sample, learner's probability over sampler's, at most C "
    "(where importance_cap is set)",
    "learning_rate": "Adam's step size in this update",
    "reference_kl": "KL(π ‖ π_ref) per step, estimated, in nats (where kl_coef > 0); of "
    "recorded groups, the exact one in the recorded states, after the update",
    "kl_coef": "β in this update, in reward units per nat (where kl_band changes it)",
    "score_temperature": "τ, which divides the advantages (where score_temperatures is set)",
    "ratio": "mean of π(a|s) / π_ref(a|s) over recorded steps, after the update",
    "advantage": "mean advantage of the recorded episodes; 0 but for rounding",
    "advantage_std": "standard deviation of the recorded episodes' advantages",
    "held_out_loss": "policy_loss on the recorded groups that are not learned from, after each "
    "pass",
    "held_out_kl": "reference_kl in the states of those groups, after each pass",
}
