"""A world model: learn to predict the environment's next state and reward, and plan with it.

    act at random for a while; store (s, a, r, s', terminated)
    now and then, each member of an ensemble, on minibatches of its own
        minimises  ½ |Δ̂(s, a) - (s' - s)|² + ½ (r̂(s, a) - r)² - log P̂(terminated or not | s, a)
    in each state, by the cross-entropy method
        choose the plan a_0 … a_{H-1} with the largest mean over the members of
            J = Σ_h γ^h c_h r̂(ŝ_h, a_h),   ŝ_{h+1} = ŝ_h + Δ̂(ŝ_h, a_h),   ŝ_0 = s
        where c_h is the probability that the plan's first h steps did not terminate
        take a_0, and replan from the next state
    with action masks a_0 is an allowed action; the masks of imagined states are unknown

There is no policy network and no value function: the agent learns only to predict the next step.
Each step holds more information than its reward alone, so that few real steps are enough, but each
action costs a search. A plan is only as good as the model it was made with, and the model's errors
compound over a long plan, which is why the log has `rollout_error` besides `one_step_error`.

Source: Chua et al. 2018, arXiv:1805.12114, algorithm 1 (PETS). Differences: the members predict
point estimates, not distributions; every member evaluates every plan; terminations are learned too.
Each plan is initialised with the rest of the last one, as in Nagabandi et al. 2018,
arXiv:1708.02596.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Self

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from rlbook import checks
from rlbook.agent import Agent, Metrics, Parts, State, Step
from rlbook.algorithms.model_based.cross_entropy import Plans, cross_entropy_method
from rlbook.algorithms.model_based.plan_space import PlanSpace
from rlbook.algorithms.model_based.world_model_config import WorldModelConfig
from rlbook.checks import value_at
from rlbook.data.replay import ReplayBuffer, Transitions
from rlbook.networks.dynamics import MODEL_METRICS, WorldModel, model_errors
from rlbook.networks.optimizer import (
    Group,
    LossOutput,
    Optimizer,
    adam,
    gradient_step,
    mean_metrics,
)
from rlbook.seeding import rng_for, rng_state, set_rng_state, torch_generator


def world_model_update(
    model: WorldModel,
    optimizer: Optimizer,
    replay: ReplayBuffer,
    rng: np.random.Generator,
    *,
    batch_size: int,
    gradient_steps: int,
    max_grad_norm: float | None = None,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """`gradient_steps` minibatches of `batch_size` for each member, drawn from all stored steps.

    Returns:
        The means of the loss's metrics and of the gradient's norm.
    """
    rows = replay.rows_at(replay.newest_indices(replay.size))
    model.standardise(rows, model.encode_action(rows.action))
    step_loss = partial(loss or world_model_loss, model)
    metrics = [
        gradient_step(
            optimizer,
            step_loss,
            replay.rows_at(rng.integers(replay.size, size=model.members * batch_size)),
            max_grad_norm=max_grad_norm,
            split="nothing",  # the rows are the members', one after the other
        )
        for _ in range(gradient_steps)
    ]
    return mean_metrics(metrics)


def world_model_loss(model: WorldModel, batch: Transitions) -> LossOutput:
    """½ |Δ̂ - (s' - s)|² + ½ (r̂ - r)² - log P̂(terminated or not), the sum over the members.

    Args:
        model: differences and rewards are compared as it standardises them.
        batch: K · B transitions: the first B for the first member, and so on.
    """
    rows = batch.map_fields(lambda field: field.unflatten(0, (model.members, -1)))
    out = model.outputs(rows.obs.float(), model.encode_action(rows.action))  # [K, B, O + 2]
    error = out[..., :-1] - model.targets(rows)
    ending = F.binary_cross_entropy_with_logits(out[..., -1], rows.terminated.float())
    loss = 0.5 * error.square().sum(-1).mean() + ending
    return LossOutput(loss * model.members, {"model_loss": loss.detach()})


@torch.inference_mode()
def plan_in_model(
    model: WorldModel,
    obs: Tensor,
    plans: Plans,
    config: WorldModelConfig,
    rng: np.random.Generator,
) -> Plans:
    """Plans for observations [N, O] by the cross-entropy method, which begins with `plans`."""
    return cross_entropy_method(
        lambda drawn: imagined_return(model, obs, drawn, config.gamma),
        plans,
        rng,
        candidates=config.candidates,
        elites=config.elites,
        iterations=config.iterations,
    )


def imagined_return(model: WorldModel, obs: Tensor, plans: Tensor, gamma: float) -> Tensor:
    """J of plans [N, C, H, A] from observations [N, O], mean over the members: [N, C]."""
    count, candidates = plans.shape[:2]
    state = obs.repeat_interleave(candidates, dim=0)  # [N C, O]
    state = state.expand(model.members, -1, -1)  # [K, N C, O]
    total, going_on = torch.zeros((), device=obs.device), torch.ones((), device=obs.device)
    for actions in plans.flatten(0, 1).unbind(1):  # [N C, A]
        predicted = model(state, actions.expand(model.members, -1, -1))
        total = total + going_on * predicted.reward
        going_on = going_on * gamma * torch.sigmoid(-predicted.terminated)
        state = predicted.next_obs
    return total.mean(0).view(count, candidates)


class WorldModelAgent(Agent):
    """A learned model and a planner in it; see the module docstring."""

    budget = {"steps": 10_000}
    Config = WorldModelConfig
    batched = True
    searches = True
    observations = "vector"
    uses = ("device",)
    METRICS = MODEL_METRICS
    loss = staticmethod(world_model_loss)

    def __init__(
        self, env: VectorEnv, config: WorldModelConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: WorldModelConfig = config
        observations, space = env.single_observation_space, env.single_action_space
        self.num_envs, self.seed, self.device = env.num_envs, seed, parts.device
        self.plans = PlanSpace(space, config.horizon, parts.device)
        checks.check_buffer_size(config.buffer_size, env.num_envs)
        size, width = self.plans.action_size, math.prod(observations.shape or ())
        planned = config.members * env.num_envs * config.candidates
        checks.check_memory("candidates: the numbers of a search", planned, 16 * (width + size))
        generator = torch_generator(rng_for(seed, "initialisation"))
        model = WorldModel(width, size, config.members, tuple(config.hidden_sizes), generator)
        self.model = model.to(self.device)
        self.optimizer = adam([Group([self.model])], value_at(config.learning_rate, 0.0))
        self.replay = ReplayBuffer(config.buffer_size, width, self.device)
        self.exploration = rng_for(seed, "exploration")
        self.sampling = rng_for(seed, "minibatches")
        self.steps = self.unseen = 0
        self.begin()

    def begin(self) -> None:
        self.plan_left = self.plans.center(self.num_envs)

    def act(
        self,
        observation: NDArray[np.float32],
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64] | NDArray[np.float32]:
        self.check_batch(observation)
        obs = torch.from_numpy(observation).to(self.device)
        if not explore:
            rng, start = rng_for(self.seed, "planning"), self.plans.center(len(obs))
            plans = self.plans.plans_around(start, action_mask)
            return self.plans.first_action(plan_in_model(self.model, obs, plans, self.config, rng))
        if self.steps < self.config.learning_starts:
            return self.plans.random_action(len(obs), self.exploration, action_mask)
        if len(obs) != len(self.plan_left):  # an evaluation may play other numbers of episodes
            self.plan_left = self.plans.center(len(obs))
        plans = self.plans.plans_around(self.plan_left, action_mask)
        plans = plan_in_model(self.model, obs, plans, self.config, self.exploration)
        self.plan_left = self.plans.next_centre(plans)
        return self.plans.first_action(plans)

    def _exploring_copy(self) -> Self:
        """Without the plan that was made for the states in training."""
        twin = super()._exploring_copy()
        twin.begin()
        return twin

    def learn(self, step: Step) -> Metrics:
        self.replay.add(step)
        over = torch.from_numpy(np.asarray(step.terminated) | np.asarray(step.truncated))
        self.plan_left = torch.where(
            over.to(self.device)[:, None, None], self.plans.center(len(over)), self.plan_left
        )
        before, self.steps = self.steps, self.steps + len(step.reward)
        self.unseen = min(self.unseen + len(step.reward), self.replay.size)
        started, every = self.steps >= self.config.learning_starts, self.config.train_every
        first = before < self.config.learning_starts
        if not started or not (first or self.steps // every > before // every):
            return {}
        metrics, config = {}, self.config
        if not first:  # how far the model is off on the steps that it has not been trained on
            rows = self.replay.rows_at(self.replay.newest_indices(self.unseen))
            metrics = model_errors(self.model, rows, self.num_envs, config.horizon)
        self.unseen = 0
        self.optimizer.learning_rate = value_at(config.learning_rate, self.progress)
        return metrics | world_model_update(
            self.model,
            self.optimizer,
            self.replay,
            self.sampling,
            batch_size=config.batch_size,
            gradient_steps=config.gradient_steps,
            max_grad_norm=config.max_grad_norm,
            loss=self.loss,
        )

    def state_dict(self) -> State:
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "replay": self.replay.state_dict(),
            "plan_left": self.plan_left,
            "rngs": [rng_state(self.exploration), rng_state(self.sampling)],
            "steps": self.steps,
            "unseen": self.unseen,
        }

    def load_state_dict(self, state: State) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.replay.load_state_dict(state["replay"])
        self.plan_left.copy_(state["plan_left"])
        for rng, saved in zip((self.exploration, self.sampling), state["rngs"], strict=True):
            set_rng_state(rng, saved)
        self.steps = checks.saved_count("steps", state["steps"])
        self.unseen = checks.saved_count("unseen", state["unseen"])
