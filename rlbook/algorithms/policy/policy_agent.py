"""What the policy-gradient and preference agents share: a policy that acts, a rollout that fills, one optimiser, a reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlbook.agent import Agent, Parts, State, Step
from rlbook.checks import at
from rlbook.data.rollout import Batch, Rollout
from rlbook.fast_forms import has_fast_form
from rlbook.functional import averages
from rlbook.functional.policy_losses import clipped_surrogate_loss
from rlbook.policies.build import PolicySettings, build_policy, refuse_idle
from rlbook.policies.optimizer import Group, adam
from rlbook.policies.policy import Policy, load_saved, saved
from rlbook.seeding import rng_for, rng_state, set_rng_state

surrogate_loss = has_fast_form("rlbook.fast.losses:clipped_surrogate_loss")(clipped_surrogate_loss)
"""`rlbook.functional.policy_losses.clipped_surrogate_loss`; the equations themselves know of no fast forms."""

AVERAGES = ("token", "sequence", "constant")


def for_sequence_tasks(**settings: Any) -> dict[str, dict[str, Any]]:
    """A preset for the tasks of the small language model: the same settings, judged on all held-out prompts."""
    return {name: settings | {"eval_episodes": 512} for name in ("Addition-v0", "Reverse-v0")}


class PolicyAgent(Agent):
    """Acts with `self.policy`, collects into `self.rollout_data`; a subclass says what a full rollout teaches."""

    batched = True
    observations = "policy"
    default_num_envs = 8
    uses = ("model", "device")
    critic: bool = False

    def __init__(self, env: Any, config: Any, seed: int = 0, parts: Parts = Parts()) -> None:
        super().__init__(env, config, seed, parts)
        self.group_size = getattr(config, "group_size", 1)
        if env.num_envs % self.group_size:
            raise ValueError(f"group_size must divide num_envs {env.num_envs}, got {self.group_size}")
        settings = PolicySettings(
            critic=self.critic, temperature=config.temperature, hidden_sizes=tuple(config.hidden_sizes),
            shared=not getattr(config, "separate_networks", True), orthogonal=getattr(config, "orthogonal_init", True),
            normalize_observation=getattr(config, "normalize_observation", False),
        )  # fmt: skip
        self.policy = build_policy(env, rng_for(seed, "initialisation"), settings, parts.model).to(parts.device)
        refuse_idle(self.policy, config)
        self.reference = self.make_reference() if self.needs_reference(config) else None
        self.optimizer = adam([Group([self.policy])], at(config.learning_rate, 0.0), eps=config.adam_eps)
        self.exploration, self.shuffling = rng_for(seed, "exploration"), rng_for(seed, "minibatches")
        self.rollout_data = Rollout(self.policy.stores, parts.device)
        self._log_prob = np.zeros(0, dtype=np.float32)
        self._acting, self._judging = self.policy.initial_state(), self.policy.initial_state()

    @staticmethod
    def needs_reference(config: Any) -> bool:
        """Whether the first policy is kept."""
        return getattr(config, "kl_coef", 0.0) != 0.0

    def make_reference(self) -> Policy:
        """The policy of this moment, to compare later ones with."""
        return self.policy.reference()

    def act(self, observation: Any, *, explore: bool = True) -> np.ndarray:
        if not explore:
            return self.policy.act(observation, None, self._judging)[0]
        action, self._log_prob = self.policy.act(observation, self.exploration, self._acting)
        return action

    def begin(self) -> None:
        self._acting = self.policy.initial_state()

    def round_over(self, step: Step) -> bool:
        """Whether the last environment of this round has just ended (`rollout = "episodes"`)."""
        return not (step.valid & ~(step.terminated | step.truncated)).any()

    @torch.no_grad()
    def reference_log_prob(self, batch: Batch) -> Tensor | None:
        """log π_ref(a|s), shaped like `batch.mask`, in nats; None where no reference is kept."""
        return None if self.reference is None else self.reference.evaluate(batch, entropy=False)[0]

    def average(self) -> averages.Average:
        """How this agent's losses become one number."""
        if self.config.average == "constant":
            return averages.constant(self.config.average_divisor)
        return averages.per_sequence if self.config.average == "sequence" else averages.per_token

    def anneal(self) -> float:
        """Sets and returns the learning rate for this point of training."""
        left = 1.0 - self.progress if self.config.anneal_learning_rate else 1.0
        self.optimizer.learning_rate = self.now("learning_rate") * left
        return self.optimizer.learning_rate

    def now(self, name: str) -> float:
        """The value at this point of training of a hyper-parameter that may be a schedule."""
        return at(getattr(self.config, name), self.progress)

    def state_dict(self) -> State:
        return {
            "policy": saved(self.policy),
            "optimizer": self.optimizer.state_dict(),
            "reference": None if self.reference is None else saved(self.reference),
            "rngs": [rng_state(self.exploration), rng_state(self.shuffling)],
            "rollout": self.rollout_data.state_dict(),
            "acting": None if self._acting is None else self._acting.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        load_saved(self.policy, state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.reference is not None:
            load_saved(self.reference, state["reference"])
        for rng, kept in zip((self.exploration, self.shuffling), state["rngs"], strict=True):
            set_rng_state(rng, kept)
        self.rollout_data.load_state_dict(state["rollout"])
        self._acting, self._judging = self.policy.initial_state(), self.policy.initial_state()
        if self._acting is not None:
            self._acting.load_state_dict(state["acting"])
