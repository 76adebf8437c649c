"""Soft actor-critic (SAC): learn from old steps how good actions are, and act as randomly as that
allows.

    act by π, store (s, a, r, s', terminated); the first actions are uniform
    at every step, on a random minibatch, with a ~ π(·|s) and a' ~ π(·|s') drawn anew
        y = r                                                     where terminated, else
        y = r + γ [ min_k Q⁻_k(s', a') - α log π(a'|s') ]
        minimise  Σ_k ½ mean (Q_k(s, a_stored) - y)²
        minimise  mean α log π(a|s) - min_k Q_k(s, a)             over the policy
        minimise  log α · (mean H(π) - H̄)                         over α
        Q⁻_k ← Q⁻_k + τ (Q_k - Q⁻_k)

The entropy of the policy is part of the return, so that it keeps trying whatever is about as good
as the best. The smaller of two critics is believed, because the policy looks for actions that a
critic overrates. The temperature α is itself learned: it rises where the entropy is below H̄.

Continuous actions are tanh of a normal vector. Discrete ones need not be drawn: the terms in a and
a' are then expectations over all of them, or over those that an action mask allows in s and in s'.

Source: Haarnoja et al. 2018, arXiv:1812.05905, algorithm 1, with log α in place of α in its loss;
discrete actions: Christodoulou 2019, arXiv:1910.07207. Differences: H̄ of A discrete actions is
0.3 log A, where Christodoulou has 0.98 log A, which leaves a policy nearly uniform for ever; the
noise of exploring may be held for several steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor, nn

from rlbook.agent import Parts
from rlbook.algorithms.policy.replay_agent import Minibatch, ReplayAgent, ReplayConfig
from rlbook.checks import at, finite, non_negative, positive
from rlbook.fast_forms import has_fast_form
from rlbook.functional.action_masks import masked_logits
from rlbook.functional.maximum_entropy import expected_soft_value, soft_value, temperature_loss
from rlbook.functional.returns import td_target
from rlbook.functional.value_losses import squared_value_loss
from rlbook.policies.critics import Critics, follow
from rlbook.policies.distributions import Categorical, SquashedGaussian, sample_categorical
from rlbook.policies.optimizer import Group, LossOutput, adam
from rlbook.policies.policy import as_array
from rlbook.policies.values import as_mask

TARGET_SHARE = 0.3
"""H̄ of discrete actions, as a share of the most there can be."""
LOG_STD = (-20.0, 2.0)
"""The range of log σ."""


@dataclass(frozen=True)
class SACConfig(ReplayConfig):
    # α, in reward units per nat; none: learned
    temperature: Annotated[float, non_negative] | None = None
    # H̄, in nats; none: -A for a box of A components, 0.3 log A for A discrete actions (with an
    # action mask, A is how many are allowed in the state)
    target_entropy: Annotated[float, finite] | None = None
    initial_temperature: Annotated[float, positive] = 1.0  # α at first, where it is learned


class Temperature(nn.Module):
    """α, as its logarithm."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor([math.log(alpha)]))


class SAC(ReplayAgent):
    """Soft actor-critic; see the module docstring."""

    budget = {"steps": 50_000}
    Config = SACConfig
    actions = "scaled"
    METRICS = {
        "critic_loss": "Σ_k ½ mean (Q_k - y)² of the last minibatch, in squared reward units",
        "q": "mean of the critics' Q(s, a) there, in reward units, entropies included",
        "policy_loss": "mean α log π - min Q there, in reward units; its negative estimates V(s)",
        "entropy": "mean entropy of π(·|s) there (estimated from one action where they are "
        "continuous), in nats",
        "temperature": "α, in reward units per nat",
    }

    def __init__(
        self, env: VectorEnv, config: SACConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        discrete = hasattr(env.single_action_space, "n")
        super().__init__(env, config, seed, parts, critics=2, outputs=1 if discrete else 2)
        self.config: SACConfig = config
        self.temperature = Temperature(config.initial_temperature).to(parts.device)
        rate = at(config.learning_rate, 0.0)
        self.critic_optimizer = adam([Group([self.critics])], rate)
        self.actor_optimizer = adam([Group([self.actor, self.temperature])], rate)
        self.target_entropy = config.target_entropy
        if self.target_entropy is None:
            most = math.log(self.num_actions)
            self.target_entropy = TARGET_SHARE * most if discrete else -float(self.num_actions)

    def target_entropy_of(self, action_mask: Tensor | None) -> float | Tensor:
        """H̄ of some states, the mean over masks [B, A], in nats."""
        assert self.target_entropy is not None
        if action_mask is None or self.config.target_entropy is not None:
            return self.target_entropy
        allowed = action_mask.sum(-1).to(self.temperature.log_alpha.dtype)
        return TARGET_SHARE * allowed.log().mean()

    @property
    def alpha(self) -> float | Tensor:
        """α without gradient, in reward units per nat."""
        fixed = self.config.temperature
        return self.temperature.log_alpha.detach().exp() if fixed is None else fixed

    def policy(
        self, obs: Tensor, action_mask: Tensor | None = None
    ) -> Categorical | SquashedGaussian:
        """π(·|s) of states [B, O]; of discrete actions over those that a mask [B, A] allows."""
        output = self.actor(obs)
        if self.discrete:
            return Categorical(masked_logits(output, action_mask))
        mean, log_std = output.chunk(2, -1)
        return SquashedGaussian(mean, log_std.clamp(*LOG_STD))

    @torch.inference_mode()
    def choose(
        self, observation: NDArray[np.float32], uniform: NDArray[np.float64] | None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> np.ndarray:  # fmt: skip
        allowed = as_mask(action_mask, self.parts.device)
        pi = self.policy(torch.from_numpy(observation), allowed)
        if uniform is None:
            return as_array(pi.mode())
        if isinstance(pi, Categorical):
            return sample_categorical(as_array(pi.logits), uniform[:, 0])[0]
        noise = torch.from_numpy(ndtri(uniform)).to(pi.before.mean)
        return as_array(pi.transform(noise)[0])

    @has_fast_form
    def train_on(self, batch: Minibatch) -> dict[str, Tensor]:
        """A step down the critics' loss, one down the policy's, and the target network behind."""
        critics = self.critic_loss(batch)
        self.critic_optimizer.step(critics.loss)
        actor = self.actor_loss(batch)
        self.actor_optimizer.step(actor.loss)
        follow(self.target, self.critics, self.config.tau)
        return critics.metrics | actor.metrics

    def critic_loss(self, batch: Minibatch) -> LossOutput:
        """How far both critics are from their target."""
        rows = batch.rows
        with torch.no_grad():
            next_value, _ = self.soft_value(
                self.target, rows.next_obs, batch.next_noise, rows.next_action_mask
            )
        target = td_target(rows.reward, rows.terminated, next_value, self.config.gamma)    # [B]
        q = self.q_of(rows)                                                            # [2, B]
        loss = torch.stack([squared_value_loss(each, target) for each in q]).sum()
        return LossOutput(loss, {"critic_loss": loss.detach(), "q": q.detach().mean()})

    def actor_loss(self, batch: Minibatch) -> LossOutput:
        """Minus the value of the policy, and what sets the temperature."""
        rows = batch.rows
        value, entropy = self.soft_value(self.critics, rows.obs, batch.noise, rows.action_mask)
        loss, alpha = -value.mean(), self.temperature.log_alpha[0]
        metrics = {"policy_loss": loss.detach(), "entropy": entropy.detach().mean()}
        if self.config.temperature is None:
            target = self.target_entropy_of(rows.action_mask)
            loss = loss + temperature_loss(alpha, entropy, target)
        metrics["temperature"] = torch.as_tensor(self.alpha).reshape(()).to(loss)
        return LossOutput(loss, metrics)

    def soft_value(
        self, critics: Critics, obs: Tensor, noise: Tensor, action_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """V(s) by the lower critic, in reward units, and the entropy, in nats: [B] each."""
        pi = self.policy(obs, action_mask)
        if isinstance(pi, Categorical):
            q = critics(obs).amin(0)                                                   # [B, A]
            return expected_soft_value(q, pi.log_probs, self.alpha), pi.entropy()
        action, log_prob = pi.transform(noise)
        return soft_value(critics(obs, action).amin(0), log_prob, self.alpha), -log_prob

    def networks(self) -> dict[str, nn.Module]:
        return super().networks() | {"temperature": self.temperature}
