"""MBPO: train SAC mostly on short rollouts imagined by a learned model.

    act by π, store (s, a, r, s', terminated); the first actions are uniform
    now and then, fit an ensemble of networks to all stored steps, as in `world_model`
    at every step, G times
        draw some stored states, and from each go k steps in the model:
            a ~ π(·|s);   ŝ, r̂, terminated ← a member's prediction from s, a;   s ← ŝ
        a minibatch: a fraction ρ of these imagined steps, and 1 - ρ of stored ones
        one gradient step of SAC on it

This is Dyna with networks: the same update on real and on imagined steps. Real steps are expensive
and imagined ones cheap, so that G can be large without overfitting to a few real steps. Imagined
steps stay accurate because each rollout begins in a state that was really visited, and because k is
small: the model's errors compound with every imagined step.

With action masks, imagined states, whose masks are unknown, allow every action.

With ρ = 0 no model is trained and nothing is imagined: the algorithm is SAC, bit for bit.

Source: Janner et al. 2019, arXiv:1906.08253, algorithm 2 (MBPO); the idea: Sutton 1990,
doi:10.1016/B978-1-55860-141-3.50030-4. Differences: the members predict point
estimates, not distributions, and a termination if its probability exceeds ½; terminations and
rewards are learned too; k is constant; imagined steps are generated for one minibatch and not
stored, so that their actions always come from the current policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from rlbook import checks
from rlbook.agent import Metrics, Parts, State
from rlbook.algorithms.model_based.world_model import world_model_update
from rlbook.algorithms.policy.off_policy.replay_agent import Minibatch
from rlbook.algorithms.policy.off_policy.sac import SAC, SACConfig, SACNetworks, sac_update
from rlbook.checks import (
    check_idle,
    positive,
    positive_int,
    positive_ints,
    unit_interval,
    value_at,
)
from rlbook.data.replay import Transitions, concatenate
from rlbook.functional.schedules import Schedule
from rlbook.networks.dynamics import (
    MODEL_METRICS,
    Prediction,
    WorldModel,
    model_errors,
)
from rlbook.networks.optimizer import Group, LossOutput, Optimizer, adam
from rlbook.networks.policy import as_array
from rlbook.seeding import rng_for, rng_state, set_rng_state, torch_generator


def mbpo_update(
    networks: SACNetworks,
    critic_optimizer: Optimizer,
    actor_optimizer: Optimizer,
    batch: Minibatch,
    model: WorldModel,
    act: Callable[[Tensor], Tensor],
    starts: Callable[[int], Tensor],
    config: MBPOConfig,
    *,
    critic_loss: Callable[..., LossOutput] | None = None,
    actor_loss: Callable[..., LossOutput] | None = None,
) -> dict[str, Tensor]:
    """A gradient step of SAC on a minibatch with a fraction ρ of imagined steps.

    Args:
        networks, critic_optimizer, actor_optimizer, critic_loss, actor_loss: as for `sac_update`.
        batch: B stored rows; imagined ones take the place of the first.
        model: fitted to all stored steps, as in `world_model`.
        act: from states [B, O] to the policy's actions.
        starts: draws the given number of stored states, [B, O].
        config: hyper-parameters.
    """
    count = round(config.model_ratio * config.batch_size)
    if count:
        imagined = imagine(model, act, starts, count, config.horizon)
        stored = batch.rows.map_fields(lambda field: field[count:])
        batch = replace(batch, rows=concatenate(imagined, stored))
    losses = {"critic_loss": critic_loss, "actor_loss": actor_loss}
    return sac_update(networks, critic_optimizer, actor_optimizer, batch, config, **losses)


@torch.no_grad()
def imagine(
    model: WorldModel,
    act: Callable[[Tensor], Tensor],
    starts: Callable[[int], Tensor],
    count: int,
    horizon: int,
) -> Transitions:
    """`count` imagined steps, `horizon` in a row; after a termination from a new state."""
    width = model.members * math.ceil(count / (horizon * model.members))  # B, side by side
    first, *others = starts(horizon * width).split(width)
    steps = [imagined_step(model, act, first)]
    for fresh in others:  # [B, O]
        last = steps[-1]
        obs = torch.where(last.terminated[:, None], fresh, last.next_obs)
        steps.append(imagined_step(model, act, obs))
    return concatenate(*steps).map_fields(lambda field: field[:count])


def imagined_step(model: WorldModel, act: Callable[[Tensor], Tensor], obs: Tensor) -> Transitions:
    """What follows the policy's action in states [B, O]; B / K of them by each member."""
    action = act(obs)
    shares = (x.unflatten(0, (model.members, -1)) for x in (obs, model.encode_action(action)))
    predicted = Prediction(*(each.flatten(0, 1) for each in model(*shares)))  # from [K, B/K, ·]
    terminated = predicted.terminated > 0
    return Transitions(obs, action, predicted.reward, predicted.next_obs, terminated)


MODEL_SETTINGS = (
    *("model_hidden_sizes", "model_learning_rate", "model_batch_size", "model_every"),
    "model_steps",
)


@dataclass(frozen=True)
class MBPOConfig(SACConfig):
    # ρ, fraction of imagined steps in a minibatch; 0 is plain SAC
    model_ratio: Annotated[float, unit_interval] = 0.95
    horizon: Annotated[int, positive_int] = 1  # k, steps per imagined rollout
    gradient_steps: int = 4  # G, gradient steps per update
    members: Annotated[int, positive_int] = 3  # K, networks of the ensemble
    # units in each hidden layer of a member
    model_hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)
    # Adam's step size for the model, > 0
    model_learning_rate: Annotated[float | Schedule, positive] = 1e-3
    # transitions per minibatch of the model, for each member
    model_batch_size: Annotated[int, positive_int] = 256
    # environment steps between model updates
    model_every: Annotated[int, positive_int] = 200
    model_steps: Annotated[int, positive_int] = 400  # gradient steps per model update

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model_ratio == 0.0:
            for name in ("horizon", "members", *MODEL_SETTINGS):
                check_idle(self, name, "where model_ratio is 0")


class MBPO(SAC):
    """SAC on imagined steps; see the module docstring."""

    budget = {"steps": 10_000}
    Config = MBPOConfig
    observations = "vector"  # which the model predicts
    uses = ("model", "device")
    splits = False  # the imagined rows are drawn within a gradient step
    METRICS = SAC.METRICS | MODEL_METRICS

    def __init__(
        self, env: VectorEnv, config: MBPOConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: MBPOConfig = config
        self.num_envs = env.num_envs
        self.imagination = rng_for(seed, "model")
        model = WorldModel(
            self.replay.observation_size,
            self.num_actions,
            config.members,
            tuple(config.model_hidden_sizes),
            torch_generator(self.imagination),
        )
        self.model = model.to(parts.device)
        self.model_optimizer = adam(
            [Group([self.model])], value_at(config.model_learning_rate, 0.0)
        )
        self.fitted_at = 0
        """Environment steps before the model's last update; 0 before the first one."""

    def update(self) -> Metrics:
        """SAC's update, with a model that is at most `model_every` steps old."""
        unseen, metrics = self.steps - self.fitted_at, {}
        due = not self.fitted_at or unseen >= self.config.model_every
        if due and self.config.model_ratio > 0:
            metrics = self.renew_model(unseen)
        return metrics | super().update()

    def renew_model(self, unseen: int) -> Metrics:
        """Trains the model; returns its errors on the steps added since the last update, and its
        loss."""
        config, metrics = self.config, {}
        if self.fitted_at:
            rows = self.replay.rows_at(self.replay.newest_indices(min(unseen, self.replay.size)))
            metrics = model_errors(self.model, rows, self.num_envs, config.horizon)
        self.fitted_at = self.steps
        self.model_optimizer.learning_rate = value_at(config.model_learning_rate, self.progress)
        return metrics | world_model_update(
            self.model,
            self.model_optimizer,
            self.replay,
            self.imagination,
            batch_size=config.model_batch_size,
            gradient_steps=config.model_steps,
        )

    def train_on(self, batch: Minibatch) -> dict[str, Tensor]:
        return mbpo_update(
            self.trained_networks,
            self.critic_optimizer,
            self.actor_optimizer,
            batch,
            self.model,
            self.imagined_action,
            self.stored_states,
            self.config,
            critic_loss=self.critic_loss,
            actor_loss=self.actor_loss,
        )

    def stored_states(self, count: int) -> Tensor:
        """Stored states, sampled with replacement: [B, O]."""
        places = self.imagination.integers(self.replay.size, size=count)
        return self.replay.rows_at(places).obs

    def imagined_action(self, obs: Tensor) -> Tensor:
        """The policy's sampled actions in imagined states [B, O]: [B] or [B, A]."""
        noise = self.imagination.random((len(obs), *self.held.shape[1:]))
        return torch.from_numpy(self.choose(as_array(obs), noise)).to(obs.device)

    def state_dict(self) -> State:
        return super().state_dict() | {
            "model": dict(self.model.state_dict()),
            "fitted_at": self.fitted_at,
            "model_optimizer": self.model_optimizer.state_dict(),
            "imagination": rng_state(self.imagination),
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.model.load_state_dict(state["model"])
        self.model_optimizer.load_state_dict(state["model_optimizer"])
        set_rng_state(self.imagination, state["imagination"])
        self.fitted_at = checks.saved_count("fitted_at", state["fitted_at"])
