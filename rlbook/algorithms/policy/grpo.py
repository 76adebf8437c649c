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

`refill` plays on until a round has no group of equals (DAPO's dynamic sampling); all steps count.
`fit` takes recorded groups with scores, such as beams; π_old is then the reference. `kl_band` moves
β, within bounds, when the policy is too far from the reference or too near to it.

Source: Shao et al. 2024 (DeepSeekMath), arXiv:2402.03300, eq. 3; `scale` and `average` = none,
constant: Liu et al. 2025 (Dr. GRPO), arXiv:2503.20783; clip_high, average = token and refill: Yu
et al. 2025 (DAPO), arXiv:2503.14476; baseline = leave-one-out: Ahmadian et al. 2024 (RLOO),
arXiv:2402.14740; credit = reward-to-go: Hu 2025 (REINFORCE++), arXiv:2501.03262; ratio =
sequence: Zheng et al. 2025 (GSPO), arXiv:2507.18071; ratio = cispo: MiniMax 2025, arXiv:2506.13585.
Difference: β is 0 by default, as in TRL.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from rlbook.agent import Data, Metrics, Parts, State, Step
from rlbook.algorithms.policy.episode_rewards import episode_reward
from rlbook.algorithms.policy.grpo_config import GRPOConfig, check_recorded
from rlbook.algorithms.policy.kl_control import KLControl
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.data.episodes import RankedBatch
from rlbook.data.refill import Refill, SpreadFilter, differ
from rlbook.data.rollout import Batch
from rlbook.functional.advantages import group_advantage, reward_to_go_advantage
from rlbook.functional.averages import averaged, given
from rlbook.functional.divergences import ESTIMATORS, k3
from rlbook.functional.policy_losses import (
    clip_fraction,
    clipped_surrogate_loss,
    clipped_weight_loss,
    episode_log_ratio,
    regularised_loss,
    truncated_importance_weight,
)
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.optimizer import LossOutput, mean_metrics
from rlbook.seeding import rng_for


class GRPO(PolicyAgent):
    """Group-relative policy optimisation; see the module docstring."""

    Config = GRPOConfig
    uses = ("reference", *PolicyAgent.uses)
    data_kinds = ("Groups",)
    rollout = "episodes"
    default_num_envs = 32
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

    def __init__(
        self, env: AdaptedVectorEnv, config: GRPOConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        self.reward = episode_reward(config.episode_reward, env)
        super().__init__(env, config, seed, parts)
        self.config: GRPOConfig = config
        self.refill = Refill(config.group_size, config.refill)
        self.spread = SpreadFilter(config.group_size, config.min_spread)
        self.seed = seed
        self.control = KLControl(config)

    @staticmethod
    def needs_reference(config: GRPOConfig) -> bool:
        return config.kl_coef != 0.0 or config.episode_reward == "answer"

    def learn(self, step: Step) -> Metrics:
        self.rollout_data.add(step, self._log_prob)
        if not self.round_over(step):
            return {}
        batch, metrics = self.prepare()
        self.rollout_data.clear()
        if batch is not None:
            metrics |= self.update(batch)
            metrics |= self.control.follow(metrics.get("reference_kl", 0.0))
        return metrics

    def now(self, name: str) -> float:
        follows = name == "kl_coef" and self.config.kl_band is not None
        return self.control.kl_coef if follows else super().now(name)

    @property
    def may_be_best(self) -> bool:  # type: ignore[override]
        """Not where the policy has moved above `kl_band`."""
        return self.control.inside

    def prepare(self) -> tuple[Batch | None, Metrics]:
        """The round as rows [N, T] with advantages; with `refill` those of several rounds, and None
        until there are enough."""
        batch, returns, metrics = self.scored()
        if self.config.refill == 1 and not self.config.min_spread:
            return self.compared(batch), metrics
        keep = self.spread.keep(returns)
        if self.config.refill > 1:
            keep = keep & differ(returns, self.group_size)
        metrics["dropped_groups"] = 1.0 - float(keep.float().mean())
        filled = self.refill.add(batch, keep)
        return None if filled is None else self.compared(filled), metrics

    @torch.no_grad()
    def scored(self) -> tuple[Batch, Tensor, Metrics]:
        """The round as rows [N, T] with scores: the returns, less a penalty in the reward; and the
        returns themselves [N]."""
        config, data, metrics = self.config, self.rollout_data, {}
        batch = self.policy.batch(data, "episode")
        returns = data.tensor("reward").sum(0)  # [N]
        metrics["group_return"] = float(returns.mean())
        if self.reward is not None:
            returns = self.reward(self.policy, self.reference, batch)
            metrics["episode_reward"] = float(returns.mean())
        batch.score = returns
        if config.credit == "reward-to-go":
            batch.reward = self.step_rewards(returns, batch.mask)
        batch.reference_log_prob = self.reference_log_prob(batch)
        if batch.reference_log_prob is not None:
            estimator = ESTIMATORS[config.kl_estimator]
            kl = estimator(batch.log_prob, batch.reference_log_prob, batch.mask)  # [N, T]
            metrics["reference_kl"] = float(averaged(kl, batch.mask))
            if config.kl_in == "reward":
                batch.score = returns - self.now("kl_coef") * kl.sum(1)
                if batch.reward is not None:
                    batch.reward = batch.reward - self.now("kl_coef") * kl
        alike = ~differ(batch.score, config.group_size)
        metrics["zero_std_groups"] = float(alike.float().mean())
        if config.importance_cap is not None:
            log_prob, _, _ = self.policy.evaluate(batch, entropy=False)
            batch.importance = truncated_importance_weight(
                log_prob,
                batch.log_prob,
                batch.mask,
                cap=config.importance_cap,
                episode=config.importance_of == "sequence",
            )
            batch.log_prob = log_prob
            metrics["importance"] = float(averaged(batch.importance, batch.mask))
        if config.mask_truncated:
            batch.mask = batch.mask & ~data.tensor("truncated").any(0)[:, None]
        return batch, returns, metrics

    def step_rewards(self, returns: Tensor, mask: Tensor) -> Tensor:
        """What each step was paid [N, T]; where the episode is judged as a whole, the last one."""
        if self.reward is None:
            return self.rollout_data.tensor("reward").T
        last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
        return last * returns[:, None]

    def compared(self, batch: Batch) -> Batch:
        """The rows with advantages: group-relative ones, the same for every step of an episode, or
        each step's own."""
        assert batch.score is not None
        if batch.reward is None:
            return spread_out(batch, self.advantage(batch.score, self.config.group_size))
        advantage = reward_to_go_advantage(batch.reward, batch.mask)
        return dataclasses.replace(batch, advantage=self.cut(advantage))

    def advantage(self, score: Tensor, group_size: int) -> Tensor:
        """A of episodes [B] that stand group by group."""
        config = self.config
        return self.cut(
            group_advantage(score, group_size, scale=config.scale, baseline=config.baseline)
        )

    def cut(self, advantage: Tensor) -> Tensor:
        """Advantages within ± `advantage_clip`."""
        most = self.config.advantage_clip
        return advantage if most is None else advantage.clamp(-most, most)

    def fit(self, data: Data) -> Iterator[Metrics]:
        """One gradient step for each minibatch of recorded groups; π_old is the reference."""
        check_recorded(config := self.config)
        held_out = data.hold_out(config.held_out, rng_for(self.seed, "held out"))
        for groups in data.minibatches(config.batch_size or 16):
            batch, told = self.recorded(groups)
            rate, step = self.anneal(), self.train_on(batch)
            told |= mean_metrics([step]) | {"learning_rate": rate} | self.moved(batch)
            told |= self.control.follow(told["reference_kl"])
            if len(held_out) and data.passes % 1 == 0:
                told |= self.validated(data[held_out])
            yield told

    def recorded(self, groups: RankedBatch) -> tuple[Batch, Metrics]:
        """Recorded groups as rows with advantages: those of the best few at first, then of all."""
        config, told = self.config, {}
        if config.top is not None and self.progress < config.top_share:
            groups = groups.best(config.top)
        batch = groups.episodes.to(self.parts.device)
        batch.reference_log_prob = self.reference_log_prob(batch)
        assert batch.reference_log_prob is not None
        batch.log_prob = batch.reference_log_prob
        scores = groups.returns.split(groups.sizes.tolist())
        advantage = torch.cat([self.advantage(score, len(score)) for score in scores])
        if (temperature := self.control.temperature) is not None:
            advantage, told["score_temperature"] = advantage / temperature, temperature
        told |= {"advantage": float(advantage.mean()), "advantage_std": float(advantage.std())}
        return spread_out(batch, advantage), told

    @torch.no_grad()
    def moved(self, batch: Batch) -> Metrics:
        """How far the policy is from the reference in recorded states."""
        assert self.reference is not None
        new, old = self.policy.distributions(batch), self.reference.distributions(batch)
        ratio = (new.log_prob(batch.action) - batch.log_prob).exp()
        kl = averaged(new.kl(old), batch.mask)
        return {"reference_kl": float(kl), "ratio": float(averaged(ratio, batch.mask))}

    @torch.no_grad()
    def validated(self, groups: RankedBatch) -> Metrics:
        """The same of groups that are not learned from, and their loss."""
        batch, _ = self.recorded(groups)
        batch.weight = self.config.averaging()(batch.mask)
        loss = self.loss(batch).metrics["policy_loss"]
        return {"held_out_loss": float(loss), "held_out_kl": self.moved(batch)["reference_kl"]}

    def update(self, batch: Batch) -> Metrics:
        """One or more epochs over the round; returns the mean diagnostics."""
        return self.epochs_over(batch, self.train_on)

    def train_on(self, batch: Batch) -> dict[str, Tensor]:
        """One gradient step. Returns the diagnostics and "grad_norm"."""
        return self.weighted_step(batch, self.loss)

    def loss(self, batch: Batch) -> LossOutput:
        """The total loss of some episodes, and what it is made of."""
        config, mask = self.config, batch.mask
        assert batch.advantage is not None and batch.weight is not None
        average, importance = given(batch.weight), batch.importance
        weighed = average if importance is None else given(batch.weight * importance)
        entropy_coef, kl_coef = self.now("entropy_coef"), self.now("kl_coef")
        clips = {"clip": self.now("clip"), "clip_high": config.clip_high}
        log_prob, entropy, _ = self.policy.evaluate(batch, entropy_gradient=entropy_coef > 0)
        new, old = log_prob, batch.log_prob
        if config.ratio in ("sequence", "product"):
            mean = config.ratio == "sequence"
            new, old = episode_log_ratio(new, old, mask, mean=mean), torch.zeros_like(old)
        if config.ratio == "cispo":
            policy_loss = clipped_weight_loss(
                new, old, batch.advantage, mask=mask, average=weighed, **clips
            )
        else:
            policy_loss = clipped_surrogate_loss(
                new,
                old,
                batch.advantage,
                dual_clip=config.dual_clip,
                mask=mask,
                average=weighed,
                **clips,
            )
        assert entropy is not None
        entropy, kl = averaged(entropy, mask, average), None
        if batch.reference_log_prob is not None and config.kl_in == "loss":
            estimator = ESTIMATORS[config.kl_estimator]
            kl = averaged(estimator(log_prob, batch.reference_log_prob, mask), mask, average)
        total = regularised_loss(
            policy_loss, entropy, kl, entropy_coef=entropy_coef, kl_coef=kl_coef
        )
        with torch.no_grad():
            return LossOutput(
                total,
                {
                    "policy_loss": policy_loss.detach(),
                    "entropy": entropy.detach(),
                    "approx_kl": averaged(k3(batch.log_prob, log_prob, mask), mask, average),
                    "clip_fraction": clip_fraction(
                        new,
                        old,
                        None if config.ratio == "cispo" else batch.advantage,
                        mask=mask,
                        average=average,
                        **clips,
                    ),
                },
            )

    def state_dict(self) -> State:
        kept = {"refill": self.refill, "spread": self.spread, "control": self.control}
        return super().state_dict() | {name: part.state_dict() for name, part in kept.items()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.refill.load_state_dict(state["refill"])
        self.spread.load_state_dict(state["spread"])
        self.control.load_state_dict(state["control"])


def spread_out(batch: Batch, advantage: Tensor) -> Batch:
    """Episodes [B, T] with one advantage each [B], the same at all steps."""
    rows = advantage.to(batch.mask.device)[:, None].expand(batch.mask.shape)
    return dataclasses.replace(batch, advantage=rows.contiguous())
