"""Soft actor-critic (SAC): off-policy, with twin critics, maximising return plus the policy's
entropy.

    act by π, store (s, a, r, s', terminated); the first actions are uniform
    at every step, on a random minibatch, with fresh a ~ π(·|s) and a' ~ π(·|s')
        y = r                                                     where terminated, else
        y = r + γ [ min_k Q⁻_k(s', a') - α log π(a'|s') ]
        minimise  Σ_k ½ mean (Q_k(s, a_stored) - y)²
        minimise  mean α log π(a|s) - min_k Q_k(s, a)             over the policy
        minimise  log α · (mean H(π) - H̄)                         over α
        Q⁻_k ← Q⁻_k + τ (Q_k - Q⁻_k)

The entropy of the policy is part of the return, so that it keeps exploring actions that are nearly
as good as the best. The target uses the smaller of two critics, because the policy seeks actions
that a critic overestimates. The temperature α is learned too: it rises if the entropy is below H̄.

Continuous actions are tanh of a normal vector. Discrete ones need no sampling: the terms in a and
a' are expectations over all of them, or over those that an action mask allows in s and in s'.

Source: Haarnoja et al. 2018, arXiv:1812.05905, algorithm 1, with log α instead of α in its loss;
discrete actions: Christodoulou 2019, arXiv:1910.07207. Differences: H̄ of A discrete actions is
0.3 log A, not Christodoulou's 0.98 log A, which keeps the policy nearly uniform forever; the
exploration noise may be held for several steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor, nn

from rlbook.agent import Parts
from rlbook.algorithms.policy.off_policy.replay_agent import Minibatch, ReplayAgent
from rlbook.algorithms.policy.off_policy.replay_config import ReplayConfig
from rlbook.checks import finite, non_negative, positive
from rlbook.fast_forms import has_fast_form
from rlbook.functional.action_masks import masked_logits
from rlbook.functional.maximum_entropy import expected_soft_value, soft_value, temperature_loss
from rlbook.functional.returns import td_target
from rlbook.functional.value_losses import squared_value_loss
from rlbook.networks.cnn import FeedForward
from rlbook.networks.critics import Critics
from rlbook.networks.distributions import Categorical, SquashedGaussian, sample_categorical
from rlbook.networks.optimizer import LossOutput, Optimizer
from rlbook.networks.policy import as_array
from rlbook.networks.target_network import polyak_update
from rlbook.networks.values import as_mask

TARGET_SHARE = 0.3  # H̄ of discrete actions, as a fraction of the maximum entropy
LOG_STD = (-20.0, 2.0)  # the range of log σ


@has_fast_form
def sac_update(
    networks: SACNetworks,
    critic_optimizer: Optimizer,
    actor_optimizer: Optimizer,
    batch: Minibatch,
    config: SACConfig,
    *,
    critic_loss: Callable[..., LossOutput] | None = None,
    actor_loss: Callable[..., LossOutput] | None = None,
) -> dict[str, Tensor]:
    """A gradient step on the critics' loss, one on the policy's, and one update of the target
    networks.

    Args:
        networks, critic_optimizer, actor_optimizer: changed in place.
        batch: B rows.
        config: hyper-parameters.
        critic_loss, actor_loss: of the rows; None is `sac_critic_loss` and `sac_actor_loss`.
    """
    critics = (critic_loss or sac_critic_loss)(networks, batch, config=config)
    critic_optimizer.step(critics.loss)
    actor = (actor_loss or sac_actor_loss)(networks, batch, config=config)
    actor_optimizer.step(actor.loss)
    polyak_update(networks.target, networks.critics, config.tau)
    return critics.metrics | actor.metrics


def sac_critic_loss(networks: SACNetworks, batch: Minibatch, *, config: SACConfig) -> LossOutput:
    """The error of both critics against their target; lower is better."""
    rows, next_mask = batch.rows, batch.rows.next_action_mask
    with torch.no_grad():
        next_value, _ = value_and_entropy(
            networks, networks.target, rows.next_obs, batch.next_noise, next_mask
        )
    target = td_target(rows.reward, rows.terminated, next_value, config.gamma)  # [B]
    q = networks.critics(rows.obs, rows.action)  # [2, B]
    loss = torch.stack([squared_value_loss(each, target) for each in q]).sum()
    return LossOutput(loss, {"critic_loss": loss.detach(), "q": q.detach().mean()})


def sac_actor_loss(networks: SACNetworks, batch: Minibatch, *, config: SACConfig) -> LossOutput:
    """Minus the policy's soft value, plus the loss of the temperature; lower is better."""
    rows, temperature = batch.rows, networks.temperature
    value, entropy = value_and_entropy(
        networks, networks.critics, rows.obs, batch.noise, rows.action_mask
    )
    loss = -value.mean()
    metrics = {"policy_loss": loss.detach(), "entropy": entropy.detach().mean()}
    if config.temperature is None:
        target = temperature.target_entropy(rows.action_mask)
        loss = loss + temperature_loss(temperature.log_alpha[0], entropy, target)
    metrics["temperature"] = torch.as_tensor(temperature.alpha).reshape(()).to(loss)
    return LossOutput(loss, metrics)


def value_and_entropy(
    networks: SACNetworks,
    critics: Critics,
    obs: Tensor,
    noise: Tensor,
    action_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """V(s) by the lower critic, in reward units, and the policy's entropy, in nats: [B] each."""
    alpha = networks.temperature.alpha
    pi = sac_policy(networks.actor, obs, action_mask, discrete=critics.discrete)
    if isinstance(pi, Categorical):
        q = critics(obs).amin(0)  # [B, A]
        return expected_soft_value(q, pi.log_probs, alpha), pi.entropy()
    action, log_prob = pi.transform(noise)
    return soft_value(critics(obs, action).amin(0), log_prob, alpha), -log_prob


def sac_policy(
    actor: FeedForward, obs: Tensor, action_mask: Tensor | None = None, *, discrete: bool
) -> Categorical | SquashedGaussian:
    """π(·|s) for states [B, O]; with discrete actions restricted to those that a mask [B, A]
    allows."""
    output = actor(obs)
    if discrete:
        return Categorical(masked_logits(output, action_mask))
    mean, log_std = output.chunk(2, -1)
    return SquashedGaussian(mean, log_std.clamp(*LOG_STD))


@dataclass(frozen=True)
class SACConfig(ReplayConfig):
    # α, weight of the entropy, in reward units per nat; none: learned
    temperature: Annotated[float, non_negative] | None = None
    # H̄, target of the entropy, in nats; none: -A for a box of A components, 0.3 log A for A
    # discrete actions (with an action mask, A is the number allowed in the state)
    target_entropy: Annotated[float, finite] | None = None
    initial_temperature: Annotated[float, positive] = 1.0  # initial α, if α is learned
    idle_unless = dict.fromkeys(("target_entropy", "initial_temperature"), ("temperature", None))


class Temperature(nn.Module):
    """α, stored as its logarithm, and the target entropy H̄.

    Args:
        config: says what is given, and what is learned.
        num_actions: A discrete actions, or components of an action.
        discrete: which of the two.
    """

    def __init__(self, config: SACConfig, num_actions: int, *, discrete: bool) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor([math.log(config.initial_temperature)]))
        self.config, self.num_actions, self.discrete = config, num_actions, discrete

    @property
    def alpha(self) -> float | Tensor:
        """α without gradient, in reward units per nat."""
        fixed = self.config.temperature
        return self.log_alpha.detach().exp() if fixed is None else fixed

    def target_entropy(self, action_mask: Tensor | None = None) -> float | Tensor:
        """H̄ for some states, the mean over masks [B, A], in nats."""
        if self.config.target_entropy is not None:
            return self.config.target_entropy
        if not self.discrete:
            return -float(self.num_actions)
        if action_mask is None:
            return TARGET_SHARE * math.log(self.num_actions)
        return TARGET_SHARE * action_mask.sum(-1).to(self.log_alpha.dtype).log().mean()


class SACNetworks(NamedTuple):
    """The networks and optimisers that `sac_update` changes."""

    actor: FeedForward
    critics: Critics
    target: Critics
    temperature: Temperature


class SAC(ReplayAgent):
    """Soft actor-critic; see the module docstring."""

    budget = {"steps": 50_000}
    Config = SACConfig
    actions = "scaled"
    critic_loss = staticmethod(sac_critic_loss)
    actor_loss = staticmethod(sac_actor_loss)
    METRICS = {
        "critic_loss": "Σ_k ½ mean (Q_k - y)² of the last minibatch, in squared reward units",
        "q": "mean Q(s, a) over that minibatch and the critics, in reward units, entropy included",
        "policy_loss": "mean α log π - min Q over it, in reward units; its negative estimates V(s)",
        "entropy": "mean entropy of π(·|s) over it, in nats (for continuous actions, estimated "
        "from one sample)",
        "temperature": "entropy temperature α, in reward units per nat",
    }

    def __init__(
        self, env: VectorEnv, config: SACConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        discrete = hasattr(env.single_action_space, "n")
        super().__init__(env, config, seed, parts, critics=2, outputs=1 if discrete else 2)
        self.config: SACConfig = config
        temperature = Temperature(config, self.num_actions, discrete=discrete)
        self.temperature = temperature.to(parts.device)
        self.critic_optimizer = self.make_optimizer(self.critics)
        self.actor_optimizer = self.make_optimizer(self.actor, self.temperature)
        networks = SACNetworks(self.actor, self.critics, self.target, self.temperature)
        self.trained_networks = networks

    @torch.inference_mode()
    def choose(
        self,
        observation: NDArray[np.float32],
        uniform: NDArray[np.float64] | None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> np.ndarray:
        allowed = as_mask(action_mask, self.parts.device)
        pi = sac_policy(self.actor, torch.from_numpy(observation), allowed, discrete=self.discrete)
        if uniform is None:
            return as_array(pi.mode())
        if isinstance(pi, Categorical):
            return sample_categorical(as_array(pi.logits), uniform[:, 0])[0]
        noise = torch.from_numpy(ndtri(uniform)).to(pi.mean)
        return as_array(pi.transform(noise)[0])

    def train_on(self, batch: Minibatch) -> dict[str, Tensor]:
        optimizers = self.critic_optimizer, self.actor_optimizer
        losses = {"critic_loss": self.critic_loss, "actor_loss": self.actor_loss}
        return sac_update(self.trained_networks, *optimizers, batch, self.config, **losses)

    def networks(self) -> dict[str, nn.Module]:
        return self.trained_networks._asdict()
