"""GAIL: learn a policy whose steps a discriminator cannot tell from the expert's.

    repeat
        act for T steps in N environments with π
        for M minibatches of the expert's steps and of π's
            minimise  -mean log D(s_E, a_E) - mean log(1 - D(s_π, a_π)) + λ penalty
        r(s, a) ← what D = σ(f) says of π's steps
        improve π for the reward r, as PPO does

A discriminator D is trained to tell the two apart. With equally many steps of both, its f tends to
log(ρ_E / ρ_π), how much more often the expert takes a step than π does. This is the reward: π is
rewarded for what it does too rarely and penalised for what it does too often, until the two cannot
be told apart. Behaviour cloning matches the action in each recorded state; GAIL also matches the
states, so that few episodes suffice to recover. It needs the environment but no reward.

The gradient penalty keeps the slope of f near 1 between the two kinds of steps. Without it D soon
becomes certain, and a reward that is the same everywhere teaches nothing.

The learner is PPO, unchanged except for the rewards in its rollout. The log's `return` and the
evaluation use the environment's own reward.

The form of the reward has a bias where episodes end: with r = log D ≤ 0 ("hurry") every step costs,
so that ending early pays regardless of the expert; with r = -log(1 - D) ≥ 0 ("survival") every step
pays, so that never reaching the goal pays. f itself ("log_ratio", the default) has either sign and
is less biased, but what follows a termination still counts as 0. At a time limit, which is not a
termination, V is bootstrapped.

Source: Ho & Ermon 2016, arXiv:1606.03476, algorithm 1; the penalty and the bias: Kostrikov et al.
2019, arXiv:1809.02925, sections 4.1 and 4.2; f as reward: Fu et al. 2018, arXiv:1710.11248.
Differences: PPO instead of TRPO; no absorbing states are added to the recorded episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, cast

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from rlbook.agent import Metrics, Parts, State
from rlbook.algorithms.policy.ppo import PPO, PPOConfig, ppo_rows, ppo_update
from rlbook.checks import non_negative, positive, positive_int
from rlbook.data.rollout import Batch, Rollout
from rlbook.functional.adversarial import (
    discriminator_loss,
    gradient_penalty,
    hurry_reward,
    log_ratio_reward,
    survival_reward,
)
from rlbook.interaction.expert_actions import check_comparable
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.build import build_reward_network, plain_spec
from rlbook.networks.optimizer import (
    Group,
    LossOutput,
    Optimizer,
    adam,
    gradient_step,
    mean_metrics,
)
from rlbook.networks.policy import Policy, load_saved, saved_tensors
from rlbook.networks.reward_network import StepReward
from rlbook.seeding import rng_for, rng_state, set_rng_state


def gail_update(
    policy: Policy,
    optimizer: Optimizer,
    discriminator: StepReward,
    judge: Optimizer,
    rollout: Rollout,
    expert: Callable[[int], Tensor],
    config: GAILConfig,
    drawing: Generator,
    shuffling: Generator,
    *,
    rewards: Callable[[], Tensor] | None = None,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """One round: a discriminator step, the rewards that it assigns, and PPO's update on them.

    Args:
        policy, optimizer: π and its critic, changed in place.
        discriminator, judge: D and its optimiser, changed in place.
        rollout: T steps of N environments by π; its rewards become those that D pays.
        expert: draws the given number of the expert's steps, [B, X].
        config: hyper-parameters, each schedule at its value.
        drawing, shuffling: draw the minibatches of D and those of PPO.
        rewards: the rollout's rewards [T, N] as PPO is to see them; None: as they are.
        loss: PPO's; see `ppo_update`.
    """
    steps = policy.batch(rollout, "step")
    seen = discriminator.input(steps.obs, steps.action)
    metrics = discriminator_update(discriminator, judge, seen, expert, config, drawing)
    with torch.no_grad():
        f = discriminator(rollout.tensor("obs"), rollout.tensor("action"))  # [T, N]
        reward = REWARDS[config.reward](f)
    paid = zip(rollout.steps, reward.cpu().numpy(), strict=True)
    rollout.steps = [step._replace(reward=each) for step, each in paid]
    ppo_reward = rollout.tensor("reward") if rewards is None else rewards()
    batch, of_critic = ppo_rows(policy, rollout, ppo_reward, config)
    metrics = of_critic | metrics | {"learned_reward": float(reward.mean())}
    return metrics | ppo_update(policy, optimizer, batch, config, shuffling, loss)


def discriminator_update(
    discriminator: StepReward,
    judge: Optimizer,
    policy: Tensor,
    expert: Callable[[int], Tensor],
    config: GAILConfig,
    rng: Generator,
) -> Metrics:
    """M minibatches of the policy's steps [B, X] and as many of the expert's."""
    size, metrics = min(config.batch_size, len(policy)), []
    step_loss = partial(gail_discriminator_loss, discriminator, config=config)
    for _ in range(config.discriminator_steps):
        ours = torch.from_numpy(rng.integers(len(policy), size=size))
        share = torch.from_numpy(rng.random(size, dtype=np.float32))
        batch = DiscriminatorBatch(expert(size), policy[ours], share.to(policy.device))
        metrics.append(gradient_step(judge, step_loss, batch))
    return {name: mean for name, mean in mean_metrics(metrics).items() if name != "grad_norm"}


def gail_discriminator_loss(
    discriminator: StepReward, batch: DiscriminatorBatch, *, config: GAILConfig
) -> LossOutput:
    """The discriminator's loss: its classification loss plus the gradient penalty."""
    f = discriminator.score
    expert, policy = f(batch.expert), f(batch.policy)
    loss = discriminator_loss(expert, policy)
    accuracy = ((expert > 0).float().mean() + (policy < 0).float().mean()) / 2
    metrics = {"discriminator_loss": loss.detach(), "discriminator_accuracy": accuracy}
    if config.gradient_penalty > 0:
        penalty = gradient_penalty(f, batch.expert, batch.policy, batch.share)
        loss = loss + config.gradient_penalty * penalty
        metrics["gradient_penalty"] = penalty.detach()
    return LossOutput(loss, metrics)


@dataclass(frozen=True)
class DiscriminatorBatch:
    """Equally many expert and policy steps, as the discriminator's inputs."""

    expert: Tensor  # [B, X]
    policy: Tensor  # [B, X]
    share: Tensor  # [B], interpolation weight of the gradient penalty's points

    def __len__(self) -> int:
        return len(self.share)

    def __getitem__(self, rows: slice) -> DiscriminatorBatch:
        return DiscriminatorBatch(self.expert[rows], self.policy[rows], self.share[rows])


REWARDS = {"log_ratio": log_ratio_reward, "survival": survival_reward, "hurry": hurry_reward}


@dataclass(frozen=True)
class GAILConfig(PPOConfig):
    refused = {
        "recurrent": "D compares single steps, which do not contain a memory's state",
        "kl_coef": "the expert takes the place of a reference policy",
    }
    # reward computed from D: f, -log(1 - D) or log D; each has its own bias, see the docstring
    reward: Literal["log_ratio", "survival", "hurry"] = "log_ratio"
    # M, discriminator minibatches per rollout
    discriminator_steps: Annotated[int, positive_int] = 10
    # Adam's step size for the discriminator, > 0
    discriminator_rate: Annotated[float, positive] = 1e-3
    gradient_penalty: Annotated[float, non_negative] = 1.0  # λ, weight of the penalty; 0 for none
    # expert steps to record if no data set is given
    demonstrations: Annotated[int, positive_int] = 1_000


class GAIL(PPO):
    """Generative adversarial imitation learning; see the module docstring."""

    Config = GAILConfig
    uses = ("expert", "demonstrations", "model", "device")
    data_kinds = ("Episodes",)
    METRICS = {name: text for name, text in PPO.METRICS.items() if name != "reference_kl"} | {
        "discriminator_loss": "cross-entropy of D on both kinds of step, in nats; 2 ln 2 = 1.386 "
        "if it cannot tell them apart, which is the aim",
        "discriminator_accuracy": "fraction of steps that D classifies correctly; ½ if it cannot "
        "tell them apart",
        "gradient_penalty": "mean (‖∇f‖ - 1)² between the expert's steps and the policy's",
        "learned_reward": "mean reward that D computes for the rollout's steps, in nats",
    }

    def __init__(
        self, env: AdaptedVectorEnv, config: GAILConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        check_comparable(env)
        spec = plain_spec(parts.model, env.single_observation_space)
        super().__init__(env, config, seed, parts)
        self.config: GAILConfig = config
        rng = rng_for(seed, "discriminator")
        network = build_reward_network(env, rng, tuple(config.hidden_sizes), spec)
        assert isinstance(network, StepReward)
        self.discriminator = network.to(parts.device)
        self.judge = adam([Group([self.discriminator])], config.discriminator_rate)
        self.drawing = rng_for(seed, "comparisons")

    def prepare(self) -> tuple[Batch, Metrics]:
        return self.policy.batch(self.rollout_data), {}

    def update(self, batch: Batch) -> Metrics:
        """The discriminator's step on a rollout, and PPO's step on the rewards from it."""
        rate, settings = self.anneal(), cast(GAILConfig, self.settings)
        learning = self.policy, self.optimizer, self.discriminator, self.judge
        metrics = gail_update(
            *learning,
            self.rollout_data,
            self.expert_steps,
            settings,
            self.drawing,
            self.shuffling,
            rewards=self.rewards,
            loss=self.loss,
        )
        metrics |= {"learning_rate": rate}
        return metrics if settings.kl_target is None else metrics | self.penalty.adapt(len(batch))

    def expert_steps(self, size: int) -> Tensor:
        """Recorded steps, drawn with replacement: [B, X]."""
        assert self.parts.demonstrations is not None
        data = self.parts.demonstrations()
        rows = data[self.drawing.integers(len(data), size=size)].to(self.parts.device)
        return self.discriminator.input(rows.obs, rows.action)

    def state_dict(self) -> State:
        return super().state_dict() | {
            "discriminator": saved_tensors(self.discriminator),
            "judge": self.judge.state_dict(),
            "drawing": rng_state(self.drawing),
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        load_saved(self.discriminator, state["discriminator"])
        self.judge.load_state_dict(state["judge"])
        set_rng_state(self.drawing, state["drawing"])
