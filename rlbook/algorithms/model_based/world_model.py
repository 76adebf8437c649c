"""A world model: learn what the environment does next, and plan in what was learned.

    act at random for a while; store (s, a, r, s', terminated)
    now and then, each member of an ensemble, on minibatches of its own
        minimises  ½ |Δ̂(s, a) - (s' - s)|² + ½ (r̂(s, a) - r)² - log P̂(terminated or not | s, a)
    in each state, by the cross-entropy method
        choose the plan a_0 … a_{H-1} with the largest mean over the members of
            J = Σ_h γ^h c_h r̂(ŝ_h, a_h),   ŝ_{h+1} = ŝ_h + Δ̂(ŝ_h, a_h),   ŝ_0 = s
        where c_h is the probability that the plan's first h steps did not terminate
        take a_0, and plan anew from where it leads
    with an action mask a_0 is an allowed action; the masks of imagined states are not known

There is no policy network and no value: what is learned is only what happens next. That is more to
learn from in each step than one reward, so that few real steps are enough; each action costs a
search instead. A plan is as good as the model that it was made in, and a long one adds up the
model's errors, which is why `rollout_error` stands in the log beside `one_step_error`.

Source: Chua et al. 2018, arXiv:1805.12114, algorithm 1 (PETS). Differences: the members predict a
number and no distribution; every member runs every plan; a termination is learned too. Each plan
starts from the rest of the last one, as in Nagabandi et al. 2018, arXiv:1708.02596.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from rlbook import checks
from rlbook.agent import Agent, Metrics, Parts, State, Step
from rlbook.algorithms.model_based.cross_entropy import (
    CategoricalPlans,
    GaussianPlans,
    Plans,
    cross_entropy_method,
)
from rlbook.checks import at, bound, positive, positive_int, positive_ints, unit_interval
from rlbook.data.replay import ReplayBuffer
from rlbook.functional.schedules import Schedule
from rlbook.hyperparameters import Hyperparameters
from rlbook.interaction.action_masks import nth_allowed
from rlbook.networks.dynamics import MODEL_METRICS, WorldModel, fit_model, model_errors
from rlbook.networks.optimizer import Group, adam
from rlbook.networks.policy import as_array
from rlbook.seeding import rng_for, rng_state, set_rng_state, torch_generator


@dataclass(frozen=True)
class WorldModelConfig(Hyperparameters):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    members: Annotated[int, positive_int] = 3  # K, networks of the ensemble
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)  # units of each hidden layer
    learning_rate: Annotated[float | Schedule, positive] = 1e-3  # Adam's step size, > 0
    batch_size: Annotated[int, positive_int] = 256  # transitions of a minibatch, for each member
    buffer_size: Annotated[int, positive_int] = 100_000  # transitions kept
    # environment steps with random actions, before the first training
    learning_starts: Annotated[int, positive_int] = 200
    # environment steps between trainings of the model
    train_every: Annotated[int, positive_int] = 200
    gradient_steps: Annotated[int, positive_int] = 400  # gradient steps of a training
    max_grad_norm: Annotated[float, bound] = 100.0  # the gradient's L2 norm is clipped to this
    horizon: Annotated[int, positive_int] = 15  # H, steps of a plan
    candidates: Annotated[int, positive_int] = 60  # C, plans drawn in each iteration
    # E, plans that the next ones are drawn like; at most C
    elites: Annotated[int, positive_int] = 6
    # iterations of the cross-entropy method for each action
    iterations: Annotated[int, positive_int] = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elites > self.candidates:
            raise ValueError(
                f"elites must be at most candidates {self.candidates}, got {self.elites}"
            )


class WorldModelAgent(Agent):
    """A learned model and a planner in it; see the module docstring."""

    budget = {"steps": 10_000}
    Config = WorldModelConfig
    batched = True
    observations = "vector"
    uses = ("device",)
    METRICS = MODEL_METRICS

    def __init__(
        self, env: VectorEnv, config: WorldModelConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: WorldModelConfig = config
        observations, space = env.single_observation_space, env.single_action_space
        self.num_envs, self.seed, self.device = env.num_envs, seed, parts.device
        self.discrete = isinstance(space, Discrete)
        if isinstance(space, Discrete):
            size = int(space.n)
        else:
            assert isinstance(space, Box)
            if not space.is_bounded():
                raise ValueError(f"plans are drawn from a bounded box of actions, got {space}")
            self.low, self.high = (
                torch.from_numpy(bound).to(self.device) for bound in (space.low, space.high)
            )
            size = math.prod(space.shape)
        if env.num_envs > config.buffer_size:
            raise ValueError(
                f"buffer_size must be at least num_envs {env.num_envs}, got {config.buffer_size}"
            )
        self.action_size, width = size, math.prod(observations.shape or ())
        planned = config.members * env.num_envs * config.candidates
        checks.check_memory("candidates: the numbers of a search", planned, 16 * (width + size))
        generator = torch_generator(rng_for(seed, "initialisation"))
        model = WorldModel(width, size, config.members, tuple(config.hidden_sizes), generator)
        self.model = model.to(self.device)
        self.optimizer = adam([Group([self.model])], at(config.learning_rate, 0.0))
        self.replay = ReplayBuffer(config.buffer_size, width, self.device)
        self.exploration = rng_for(seed, "exploration")
        self.sampling = rng_for(seed, "minibatches")
        self.steps = 0
        self.unseen = 0
        self.begin()

    def begin(self) -> None:
        self.plan_left = self.no_plan(self.num_envs)

    def no_plan(self, count: int) -> Tensor:
        """The centre of the plans where nothing is known: [N, H, A]."""
        shape = (count, self.config.horizon, self.action_size)
        if self.discrete:
            return torch.full(shape, 1.0 / self.action_size, device=self.device)
        return ((self.low + self.high) / 2).expand(shape).clone()

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
            rng, start = rng_for(self.seed, "planning"), self.no_plan(len(obs))
            return self.first_action(self.search(obs, start, rng, action_mask).most_likely())
        if self.steps < self.config.learning_starts:
            return self.random_action(len(obs), action_mask)
        plans = self.search(obs, self.plan_left, self.exploration, action_mask)
        centre = plans.probability if isinstance(plans, CategoricalPlans) else plans.most_likely()
        self.plan_left = torch.cat([centre[:, 1:], self.no_plan(len(obs))[:, :1]], dim=1)
        return self.first_action(plans.most_likely())

    def random_action(
        self, count: int, action_mask: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64] | NDArray[np.float32]:
        if self.discrete:
            most = self.action_size if action_mask is None else action_mask.sum(axis=1)
            return nth_allowed(action_mask, self.exploration.integers(most, size=count))
        low, high = as_array(self.low), as_array(self.high)
        uniform = self.exploration.random((count, self.action_size), np.float32)
        return low + (high - low) * uniform

    def first_action(self, plan: Tensor) -> NDArray[np.int64] | NDArray[np.float32]:
        return as_array(plan[:, 0].argmax(-1) if self.discrete else plan[:, 0])

    @torch.inference_mode()
    def search(
        self,
        obs: Tensor,
        centre: Tensor,
        rng: np.random.Generator,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> Plans:
        """Plans for observations [N, O], looked for around `centre` [N, H, A]."""
        config, allowed = self.config, None
        if action_mask is not None:  # of the states that come after, nobody knows it
            allowed = torch.ones(centre.shape, dtype=torch.bool, device=self.device)
            allowed[:, 0] = torch.from_numpy(action_mask)
        if self.discrete:
            plans: Plans = CategoricalPlans((centre + self.no_plan(len(obs))) / 2, allowed=allowed)
        else:
            std = ((self.high - self.low) / 2).expand(centre.shape)
            plans = GaussianPlans(centre, std, self.low, self.high)
        return cross_entropy_method(
            lambda drawn: self.imagined_return(obs, drawn),
            plans,
            rng,
            candidates=config.candidates,
            elites=config.elites,
            iterations=config.iterations,
        )

    def imagined_return(self, obs: Tensor, plans: Tensor) -> Tensor:
        """J of plans [N, C, H, A] from observations [N, O], mean over the members: [N, C]."""
        count, candidates = plans.shape[:2]
        state = obs.repeat_interleave(candidates, dim=0)  # [N C, O]
        state = state.expand(self.config.members, -1, -1)  # [K, N C, O]
        total, going_on = torch.zeros((), device=obs.device), torch.ones((), device=obs.device)
        for actions in plans.flatten(0, 1).unbind(1):  # [N C, A]
            predicted = self.model(state, actions.expand(self.config.members, -1, -1))
            total = total + going_on * predicted.reward
            going_on = going_on * self.config.gamma * torch.sigmoid(-predicted.terminated)
            state = predicted.next_obs
        return total.mean(0).view(count, candidates)

    def learn(self, step: Step) -> Metrics:
        self.replay.add(step)
        over = torch.from_numpy(np.asarray(step.terminated) | np.asarray(step.truncated))
        self.plan_left = torch.where(
            over.to(self.device)[:, None, None], self.no_plan(len(over)), self.plan_left
        )
        before, self.steps = self.steps, self.steps + len(step.reward)
        self.unseen = min(self.unseen + len(step.reward), self.replay.size)
        started, every = self.steps >= self.config.learning_starts, self.config.train_every
        first = before < self.config.learning_starts
        if not started or not (first or self.steps // every > before // every):
            return {}
        metrics = {} if first else self.errors()
        self.unseen = 0
        return metrics | self.train()

    def errors(self) -> Metrics:
        """How far the model is off on the steps that it has not been trained on."""
        rows = self.replay.rows_at(self.replay.newest(self.unseen))
        return model_errors(self.model, rows, self.num_envs, self.config.horizon)

    def train(self) -> Metrics:
        """`gradient_steps` minibatches for each member; returns the mean of the diagnostics."""
        config = self.config
        self.optimizer.learning_rate = at(config.learning_rate, self.progress)
        return fit_model(
            self.model,
            self.optimizer,
            self.replay,
            self.sampling,
            batch_size=config.batch_size,
            gradient_steps=config.gradient_steps,
            max_grad_norm=config.max_grad_norm,
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
