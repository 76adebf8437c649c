"""What policy-gradient and preference agents share.

The acting policy, the rollout being filled, one optimiser, and a reference policy if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbook.agent import Data, FrozenPart, Parts, State, Step
from rlbook.algorithms.policy.options import AverageOptions, PolicyOptions, ScalingOptions
from rlbook.algorithms.policy.policy_prediction import PredictingAgent
from rlbook.algorithms.policy.reference import (
    Observations,
    codec_of,
    named_policy,
    reference_policy,
)
from rlbook.checks import check_idle, check_memory, value_at
from rlbook.data.reward_scale import RewardScale
from rlbook.data.rollout import Batch, Rollout
from rlbook.errors import RequestError
from rlbook.functional.schedules import Schedule
from rlbook.networks.build import build_policy, refuse_idle
from rlbook.networks.data_parallel import act_on_rows, log_prob_by_rows
from rlbook.networks.optimizer import Group, LossOutput, Optimizer, adam, gradient_step
from rlbook.networks.policy import (
    Policy,
    check_digest,
    digest,
    load_saved,
    module_tensors,
    saved_tensors,
)
from rlbook.networks.recurrent_memory import RecurrentMemory
from rlbook.seeding import rng_for, rng_state, set_rng_state


def refuse_average(policy: Policy, config: PolicyOptions) -> None:
    """Raises ValueError if it is set how a loss of episodes is averaged, but the rows are steps."""
    if policy.unit == "step" and isinstance(config, AverageOptions):
        check_idle(config, "average", "on rows that are steps")


class PolicyAgent(PredictingAgent):
    """Acts with `self.policy` and collects into `self.rollout_data`.

    A subclass says what a full rollout teaches.
    """

    batched = True
    observations = "policy"
    default_num_envs = 8
    uses = ("start", "model", "device")
    awaits_round = True
    critic: bool = False
    without_reference: str = "where kl_coef is 0; set kl_coef, or leave it out"

    def __init__(
        self, env: VectorEnv, config: PolicyOptions, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.group_size, self.codec = getattr(config, "group_size", 1), codec_of(env)
        if env.num_envs % self.group_size:
            refusal = f"group_size must divide num_envs {env.num_envs}, got {self.group_size}"
            raise ValueError(refusal)
        settings = config.policy_settings(critic=self.critic)
        rng = rng_for(seed, "initialisation")
        self.policy = build_policy(env, rng, settings, parts.model).to(parts.device)
        self.remembers = self.policy.unit == "sequence"
        refuse_idle(self.policy, config)
        if parts.start is not None:
            self.policy.start_from(named_policy(parts.start, self, "start"))
        self.reference = self.make_reference() if self.needs_reference(config) else None
        if parts.reference is not None and self.reference is None:
            raise RequestError(f"reference has no effect {self.without_reference}")
        rate = value_at(self.config.learning_rate, 0.0)
        self.optimizer = self.make_optimizer([self.parameter_group(self.policy)], rate)
        self.scheduled = any(isinstance(value, Schedule) for value in vars(config).values())
        self.exploration = rng_for(seed, "exploration")
        self.shuffling = rng_for(seed, "minibatches")
        self.rollout_data = Rollout(self.policy.stores, parts.device, self.policy.state_size)
        self.reward_scale = None
        if isinstance(config, ScalingOptions) and config.normalize_reward:
            self.reward_scale = RewardScale(env.num_envs, self.config.gamma)
        self._log_prob = np.zeros(0, dtype=np.float32)
        self.sampler = None if parts.sampler is None else parts.sampler.bind_env(env)
        self._acting, self._evaluating = self._acting_state(), self._evaluation_state()

    def check_rollout(self, env: VectorEnv, steps: int) -> None:
        """Raises ValueError if a rollout of this many steps does not fit into memory."""
        if self.rollout == "steps":  # each keeps what was seen before it and after
            size = 8 * math.prod(env.single_observation_space.shape or ())
            check_memory("rollout_steps", steps, env.num_envs * (size + 16))

    def make_optimizer(self, groups: Sequence[Group], rate: float) -> Optimizer:
        """The optimiser of the gradient steps; `rate` is the initial learning rate."""
        return adam(groups, rate, eps=self.config.adam_eps, warmup_steps=self.warmup_steps)

    def parameter_group(self, network: nn.Module) -> Group:
        """All weights of a network as one parameter group, with the configured weight decay."""
        return Group([network], weight_decay=getattr(self.config, "weight_decay", 0.0))

    @property
    def warmup_steps(self) -> int:
        """The number of gradient steps over which the learning rate rises from 0."""
        return getattr(self.config, "warmup_steps", 0)

    @staticmethod
    def needs_reference(config: PolicyOptions) -> bool:
        """Whether the policy is compared with a reference: a named one, or its initial weights."""
        return False

    def make_reference(self) -> Policy:
        """The reference policy: the named one, or a copy of the current policy."""
        if self.parts.reference is None:
            return self.policy.reference()
        return reference_policy(self.parts.reference, self).to(self.parts.device)

    def act(
        self,
        observation: Observations,
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
        memory: RecurrentMemory | None = None,
    ) -> NDArray[Any]:
        self.check_batch(observation)
        if not explore:
            return self.policy.act(observation, None, memory or self._evaluating, action_mask)[0]
        action, self._log_prob = act_on_rows(
            self.policy, observation, self.exploration, memory or self._acting, action_mask
        )
        return action

    @property
    def can_checkpoint(self) -> bool:
        """Between rounds, because then a language model's KV cache is not needed."""
        large = self._acting is not None and not isinstance(self._acting, RecurrentMemory)
        return not large or not self.rollout_data.steps

    def check_data(self, data: Data) -> None:
        super().check_data(data)
        if "Episodes" in self.data_kinds:
            refuse_average(self.policy, self.config)

    def begin(self) -> None:
        self._acting = self._acting_state()

    def rewards(self) -> Tensor:
        """The rollout's rewards [T, N], scaled where `normalize_reward` asks for it.

        Once a rollout: the scale takes them in.
        """
        data = self.rollout_data
        reward = data.tensor("reward")
        if self.reward_scale is None:
            return reward
        ended = data.tensor("terminated") | data.tensor("truncated")
        return self.reward_scale(reward, ended, data.tensor("valid"))

    def round_over(self, step: Step) -> bool:
        """Whether the last environment of this round has just ended (`rollout = "episodes"`)."""
        return not (step.valid & ~(step.terminated | step.truncated)).any()

    @torch.no_grad()
    def reference_log_prob(self, batch: Batch) -> Tensor | None:
        """log π_ref(a|s), shaped like `batch.mask`, in nats; None where no reference is kept."""
        return None if self.reference is None else log_prob_by_rows(self.reference, batch)

    def anneal(self) -> float:
        """Sets the learning rate for this point of training, and returns that of the next step,
        which is lower during a warm-up."""
        left = 1.0 - self.progress if self.config.anneal_learning_rate else 1.0
        self.optimizer.learning_rate = self.settings.learning_rate * left
        return self.optimizer.step_size

    @property
    def settings(self) -> Any:
        """The config with its schedules at this point of training."""
        return self.config.resolve(self.progress) if self.scheduled else self.config

    def state_dict(self) -> State:
        return {
            "policy": saved_tensors(self.policy),
            "optimizer": self.optimizer.state_dict(),
            "reference": None if self.reference is None else self.reference_state(self.reference),
            "rngs": [rng_state(self.exploration), rng_state(self.shuffling)],
            "rollout": self.rollout_data.state_dict(),
            "acting": None if self._acting is None else self._acting.state_dict(),
            "reward_scale": None if self.reward_scale is None else self.reward_scale.state_dict(),
        }

    def reference_state(self, reference: Policy) -> State | str:
        """The reference in a checkpoint: its weights, which never change and are stored once, or
        their digest if they come from a named folder."""
        weights = module_tensors(reference)
        named = self.parts.reference is not None or self.policy.named
        return digest(weights) if named and weights else FrozenPart(weights)

    def load_state_dict(self, state: State) -> None:
        load_saved(self.policy, state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.reference is not None and isinstance(state["reference"], str):
            check_digest(
                "the reference's weights", module_tensors(self.reference), state["reference"]
            )
        elif self.reference is not None:
            load_saved(self.reference, state["reference"])
        for rng, kept in zip((self.exploration, self.shuffling), state["rngs"], strict=True):
            set_rng_state(rng, kept)
        self.rollout_data.load_state_dict(state["rollout"])
        self._acting, self._evaluating = self._acting_state(), self._evaluation_state()
        if self._acting is not None:
            self._acting.load_state_dict(state["acting"])
        if self.reward_scale is not None:
            self.reward_scale.load_state_dict(state["reward_scale"])


def weighted_step(
    optimizer: Optimizer,
    loss: Callable[[Batch], LossOutput],
    batch: Batch,
    config: Any,
) -> dict[str, Tensor]:
    """One gradient step in which `average` sets the weight of each element.

    Returns:
        The diagnostics of the loss, and "grad_norm".
    """
    return gradient_step(
        optimizer,
        loss,
        batch.weigh(config.averaging()),
        micro_batch_size=config.micro_batch_size,
        max_grad_norm=config.max_grad_norm,
    )
