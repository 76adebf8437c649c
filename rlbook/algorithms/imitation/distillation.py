"""Distillation: match a teacher's action probabilities, not only its choices.

    repeat
        play N episodes: with probability λ the student's, else the teacher's
        p, q ← the teacher's and the student's π(·|s) in each visited state s
        a ← the teacher's action in s, or argmax p if the student played
        for minibatches of the episodes
            minimise  α T² mean D(p_T, q_T)  -  β mean log q(a|s)

p_T and q_T are the two distributions at temperature T. A teacher's choice is one action per state;
its distribution also tells how good the other actions are, and is a less noisy target. D is the
forward KL(p ‖ q), which is mass-covering, the reverse KL(q ‖ p), which is mode-seeking, or a
Jensen-Shannon divergence in between.

    α = 0, β = 1, λ = 0       hard labels: cloning of what the teacher plays
    α = 1, β = 0, λ = 0       soft labels
    α = 1, β = 0, λ = 1       on-policy distillation: DAgger with a teacher that has probabilities

λ = 0 trains on states that the teacher visits; λ = 1 on those that the student's own mistakes lead
to (GKD). It also learns from recorded episodes (`--data`): a is then the recorded action, and no
episodes are played. On a token environment the states are texts. The teacher (`--teacher`) is a run
on the same environment or, for texts, a model's folder; a run that learned action values teaches
softmax(Q / τ).

Source: soft labels, T and T²: Hinton et al. 2015, arXiv:1503.02531, section 2. λ and D: Agarwal et
al. 2023 (GKD), arXiv:2306.13649, algorithm 1 (T² is not in it, and λ chooses for a round here, not
for a minibatch). Agents: Rusu et al. 2015, arXiv:1511.06295.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.agent import Data, Metrics, Parts, State, Step
from rlbook.algorithms.imitation.teacher import SoftActionValues, Teacher, teacher_of
from rlbook.algorithms.policy.options import AdamOptions, AverageOptions, PolicyOptions
from rlbook.algorithms.policy.policy_agent import PolicyAgent, weighted_step
from rlbook.algorithms.policy.reference import Observations
from rlbook.checks import check_idle, non_negative, positive, positive_int, unit_interval, value_at
from rlbook.data.rollout import Batch, minibatches
from rlbook.functional.averages import weighted_sum
from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.functional.post_training.distillation_losses import soft_label_loss
from rlbook.functional.schedules import Schedule
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.data_parallel import act_on_rows
from rlbook.networks.distributions import Categorical
from rlbook.networks.optimizer import LossOutput, Optimizer, mean_metrics
from rlbook.networks.policy import Policy


def distillation_update(
    policy: Policy,
    teacher: Teacher,
    optimizer: Optimizer,
    batch: Batch,
    config: DistillationConfig,
    rng: Generator,
    *,
    labelled: bool,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """One or more passes over the episodes of a round; returns the mean diagnostics.

    Args:
        policy: the student; it and the optimiser are changed in place.
        teacher: says how probable each action is.
        batch: the episodes [N, T].
        config: hyper-parameters.
        rng: shuffles the episodes.
        labelled: whether the actions are the teacher's.
        loss: of some of the episodes; None is `distillation_loss`.
    """
    step_loss = partial(
        loss or distillation_loss, policy, config=config, teacher=teacher, labelled=labelled
    )
    metrics = []
    for _ in range(config.epochs):
        for minibatch in minibatches(batch, config.batch_size, rng):
            metrics.append(weighted_step(optimizer, step_loss, minibatch, config))
    return mean_metrics(metrics)


def distillation_loss(
    policy: Policy, batch: Batch, *, config: DistillationConfig, teacher: Teacher, labelled: bool
) -> LossOutput:
    """These rows' share of α T² D - β log q(a|s); lower is better.

    Args:
        policy: the student, q.
        batch: steps [B], or episodes [B, T].
        config: hyper-parameters.
        teacher: p.
        labelled: whether a is the recorded action, or else the teacher's most likely one.
    """
    student, mask = policy.distributions(batch), batch.mask
    assert batch.weight is not None and isinstance(student, Categorical)
    with torch.no_grad():
        target = teacher.distributions(batch)
    soft = soft_label_loss(
        student.logits,
        target.logits,
        temperature=config.soft_temperature,
        kind=config.divergence,
        mixture=config.mixture,
        **batch.share,
    )
    label = batch.action.where(mask, 0) if labelled else target.mode()
    hard = negative_log_likelihood_loss(student.log_prob(label), **batch.share)
    total = config.soft_coef * soft + config.hard_coef * hard
    agreed = (student.mode() == target.mode()).to(soft.dtype)
    metrics = {
        "loss": total.detach(),
        "teacher_divergence": soft.detach() / config.soft_temperature**2,
        "hard_loss": hard.detach(),
        "agreement": weighted_sum(agreed, **batch.share),
    }
    return LossOutput(total, metrics)


@dataclass(frozen=True)
class DistillationConfig(PolicyOptions, AdamOptions, AverageOptions):
    # D: KL(teacher ‖ student), KL(student ‖ teacher), or a Jensen-Shannon divergence
    divergence: Literal["forward", "reverse", "jsd"] = "forward"
    # the teacher's weight in the mixture of jsd, in [0, 1]; 0 is forward, 1 is reverse
    mixture: Annotated[float, unit_interval] = 0.5
    idle_unless = {"mixture": ("divergence", "jsd")}
    soft_coef: Annotated[float, non_negative] = 1.0  # α, weight of the divergence
    # β, weight of -log q(a|s) of the teacher's or the recorded action
    hard_coef: Annotated[float, non_negative] = 0.0
    # T, divides both logits in the divergence; above 1, unlikely actions count more
    soft_temperature: Annotated[float, positive] = 1.0
    # λ, probability that the student plays a round instead of the teacher, in [0, 1]
    student_share: Annotated[float | Schedule, unit_interval] = 0.5
    # τ of a teacher that learned action values, in reward units, > 0
    value_temperature: Annotated[float, positive] = 0.01
    # minibatch size in episodes; of recorded data, in steps or whole texts
    batch_size: Annotated[int, positive_int] = 64
    epochs: Annotated[int, positive_int] = 1  # passes over a round of episodes

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.soft_coef and not self.hard_coef:
            raise ValueError("soft_coef and hard_coef are both 0, so nothing would be learned")


class Distillation(PolicyAgent):
    """Learns a teacher's probabilities; see the module docstring."""

    Config = DistillationConfig
    uses = ("teacher", *PolicyAgent.uses)
    data_kinds = ("Episodes",)
    idle_on_data = ("epochs", "student_share")
    actions = "discrete"
    rollout = "episodes"
    loss = staticmethod(distillation_loss)
    default_num_envs = 32
    METRICS = {
        "loss": "the minimised loss, α T² D plus β times the hard loss, in nats",
        "teacher_divergence": "mean D between teacher and student at temperature T, in nats; 0 if "
        "they are equal",
        "hard_loss": "-log q of the teacher's or the recorded action, in nats",
        "agreement": "fraction of states in which both have the same most likely action, in [0, 1]",
        "group_return": "mean undiscounted return of the round, by student or teacher, in reward "
        "units",
        "student_played": "1 if the student played the round, 0 if the teacher did",
        "grad_norm": "L2 norm of the gradient before clipping",
        "learning_rate": "Adam's step size in this update",
    }

    def __init__(
        self,
        env: AdaptedVectorEnv,
        config: DistillationConfig,
        seed: int = 0,
        parts: Parts = Parts(),
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: DistillationConfig = config
        self.teacher = teacher_of(parts.teacher, self, config.value_temperature)
        if not isinstance(self.teacher, SoftActionValues):
            check_idle(config, "value_temperature", "where the teacher has a policy")
        self.guided, self._guiding = False, self.teacher.initial_state()

    def begin(self) -> None:
        super().begin()
        self._guiding = self.teacher.initial_state()
        teaches = self.exploration.random() >= value_at(self.config.student_share, self.progress)
        self.guided = teaches and self.progress < 1.0  # a finished one plays alone

    def act(
        self,
        observation: Observations,
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[Any]:
        self.check_batch(observation)
        if not (explore and self.guided):
            return super().act(observation, explore=explore, action_mask=action_mask)
        action, self._log_prob = act_on_rows(
            self.teacher, observation, self.exploration, self._guiding, action_mask
        )
        return action

    def learn(self, step: Step) -> Metrics:
        self.rollout_data.add(step, self._log_prob)
        if not self.round_over(step):
            return {}
        batch = self.policy.batch(self.rollout_data, "episode")  # [N, T]
        earned = float(self.rollout_data.tensor("reward").sum(0).mean())
        played: Metrics = {"group_return": earned, "student_played": float(not self.guided)}
        metrics = self.update(batch)
        self.rollout_data.clear()
        return metrics | played

    def fit(self, data: Data) -> Iterator[Metrics]:
        """One gradient step for each minibatch of recorded episodes."""
        self.check_data(data)
        for batch in data.minibatches(self.config.batch_size):
            rate, options = self.anneal(), {"teacher": self.teacher, "labelled": True}
            step_loss = partial(self.loss, self.policy, config=self.config, **options)
            batch = batch.to(self.parts.device)
            step = weighted_step(self.optimizer, step_loss, batch, self.config)
            yield mean_metrics([step]) | {"learning_rate": rate}

    def update(self, batch: Batch) -> Metrics:
        """Gradient steps on a round; returns the mean diagnostics."""
        rate, models = self.anneal(), (self.policy, self.teacher, self.optimizer)
        options: dict[str, Any] = {"labelled": self.guided, "loss": self.loss}
        found = distillation_update(*models, batch, self.settings, self.shuffling, **options)
        return found | {"learning_rate": rate}

    def state_dict(self) -> State:
        guiding = None if self._guiding is None else self._guiding.state_dict()
        return super().state_dict() | {"guided": self.guided, "guiding": guiding}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.guided, self._guiding = state["guided"], self.teacher.initial_state()
        if self._guiding is not None:
            self._guiding.load_state_dict(state["guiding"])
