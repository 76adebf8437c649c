"""Co-distillation: two students learn from data, and from each other's probabilities.

    for each minibatch of recorded actions, cut into two halves
        p_1, p_2 ← both students' action probabilities in all its states
        student 1 minimises  β (-mean log q_1(a|s), first half)   +  α T² mean KL(p_2 ‖ q_1)
        student 2 minimises  β (-mean log q_2(a|s), second half)  +  α T² mean KL(p_1 ‖ q_2)

Distillation without a separate teacher: each student teaches the other. What one has learned from
its half of the labels reaches the other as probabilities on the whole minibatch; where the two
disagree, both become less certain. Both students have the same size, and only the first one acts.
The KL is between the two distributions at temperature T.

Recorded actions come from a data set (`--data`) or an expert, as in behaviour cloning. The labels
are split so that two students with the same initial weights (the shipped language model) diverge.

Source: Zhang et al. 2018 (deep mutual learning), arXiv:1706.00384, eq. 3 to 6; different data for
the two: Anil et al. 2018 (codistillation), arXiv:1804.03235, algorithm 1. Difference: they teach
each other from the start, and both steps use the probabilities from before either step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from rlbook.agent import Metrics, Parts, State
from rlbook.algorithms.imitation.behavior_cloning import BehaviorCloning, BehaviorCloningConfig
from rlbook.checks import non_negative, positive, value_at
from rlbook.data.rollout import Batch
from rlbook.functional.averages import Weighting, weighted_sum
from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.functional.post_training.distillation_losses import soft_label_loss
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.build import build_policy
from rlbook.networks.distributions import Categorical
from rlbook.networks.optimizer import LossOutput, Optimizer, gradient_step, mean_metrics
from rlbook.networks.policy import Policy, load_saved, saved_tensors
from rlbook.seeding import rng_for


def co_distillation_update(
    students: Sequence[tuple[Policy, Optimizer]],
    batch: Batch,
    config: CoDistillationConfig,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """One gradient step of both students; returns the mean diagnostics.

    Args:
        students: two policies with their optimisers, changed in place.
        batch: recorded actions, steps [B] or texts [B, T].
        config: hyper-parameters.
        loss: of one student; None is `co_distillation_loss`.
    """
    with torch.no_grad():
        thoughts = [logits_of(student, batch) for student, _ in students]
    first = torch.arange(len(batch), device=batch.mask.device) < (len(batch) + 1) // 2  # [B]
    metrics = []
    for (student, optimizer), half, peer in zip(
        students, (first, ~first), thoughts[::-1], strict=True
    ):
        own = batch.mask & (half if batch.mask.dim() == 1 else half[:, None])  # [B] or [B, T]
        rows = StudentRows.from_batch(batch, own, peer, config.averaging())
        step_loss = partial(loss or co_distillation_loss, student, config=config)
        metrics.append(
            gradient_step(optimizer, step_loss, rows, max_grad_norm=config.max_grad_norm)
        )
    return mean_metrics(metrics)


def co_distillation_loss(
    policy: Policy, rows: StudentRows, *, config: CoDistillationConfig
) -> LossOutput:
    """These rows' share of a student's loss: cross-entropy with the labels of its own half, and the
    divergence from the other student; lower is better.

    Args:
        policy: the student.
        rows: recorded actions, [B] or [B, T].
        config: hyper-parameters.
    """
    batch, peer, temperature = rows.batch, rows.peer, config.soft_temperature
    mask, average = batch.mask, rows.weight
    logits = logits_of(policy, batch)
    log_prob = Categorical(logits).log_prob(batch.action.where(mask, 0))
    hard = negative_log_likelihood_loss(log_prob, mask=rows.own, average=rows.own_weight)
    soft = soft_label_loss(logits, peer, temperature=temperature, mask=mask, average=average)
    total = config.hard_coef * hard + config.soft_coef * soft
    agreed = (logits.argmax(-1) == peer.argmax(-1)).to(soft.dtype)
    metrics = {
        "loss": total.detach(),
        "hard_loss": hard.detach(),
        "peer_divergence": soft.detach() / temperature**2,
        "agreement": weighted_sum(agreed, mask, average),
    }
    return LossOutput(total, metrics)


@dataclass
class StudentRows:
    """Recorded actions, and what one of the two students should learn from them."""

    batch: Batch  # [B] or [B, T]
    own: Tensor  # same shape, bool; True marks the student's half
    peer: Tensor  # same shape and one axis more, the other student's logits
    weight: Tensor  # same shape, each element's share in the mean over all
    own_weight: Tensor  # same shape, in the mean over its half
    adds_up: ClassVar[bool] = True

    @staticmethod
    def from_batch(batch: Batch, own: Tensor, peer: Tensor, average: Weighting) -> StudentRows:
        each, half = (average(mask.to(peer.dtype)) for mask in (batch.mask, own))
        return StudentRows(batch, own, peer, each, half)

    def __len__(self) -> int:
        return len(self.batch)

    def __getitem__(self, rows: slice) -> StudentRows:
        parts = (self.own, self.peer, self.weight, self.own_weight)
        return StudentRows(self.batch[rows], *(part[rows] for part in parts))


def logits_of(policy: Policy, batch: Batch) -> Tensor:
    """The logits of all actions, shaped like `batch.mask` and one axis more."""
    found = policy.distributions(batch)
    assert isinstance(found, Categorical)
    return found.logits


@dataclass(frozen=True)
class CoDistillationConfig(BehaviorCloningConfig):
    # α, weight of the divergence from the other student
    soft_coef: Annotated[float, non_negative] = 1.0
    hard_coef: Annotated[float, positive] = 1.0  # β, weight of -log q of the recorded action, > 0
    # T, divides both students' logits in the divergence
    soft_temperature: Annotated[float, positive] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("packing", "micro_batch_size"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} has no effect with two students; leave it out")


class CoDistillation(BehaviorCloning):
    """Two students that teach each other; see the module docstring."""

    Config = CoDistillationConfig
    actions = "discrete"
    loss = staticmethod(co_distillation_loss)
    METRICS = {
        "loss": "the minimised loss, averaged over the two students, in nats",
        "hard_loss": "-log q of the recorded action in the student's own half, in nats",
        "peer_divergence": "mean KL from the other student at temperature T, in nats",
        "agreement": "fraction of states in which both have the same most likely action, in [0, 1]",
        "grad_norm": "L2 norm of the gradient before clipping",
        "learning_rate": "Adam's step size in this update",
    }

    def __init__(
        self,
        env: AdaptedVectorEnv,
        config: CoDistillationConfig,
        seed: int = 0,
        parts: Parts = Parts(),
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: CoDistillationConfig = config
        settings = config.policy_settings(critic=False)
        peer = build_policy(env, rng_for(seed, "peer"), settings, parts.model)
        self.peer = peer.to(parts.device)
        self.peer_optimizer = self.make_optimizer(
            [self.parameter_group(peer)], value_at(config.learning_rate, 0.0)
        )

    def update(self, batch: Batch) -> Metrics:
        """One gradient step of both students."""
        rate = self.anneal()
        self.peer_optimizer.learning_rate = self.optimizer.learning_rate
        students = (self.policy, self.optimizer), (self.peer, self.peer_optimizer)
        found = co_distillation_update(students, batch, self.settings, self.loss)
        return found | {"learning_rate": rate}

    def state_dict(self) -> State:
        peer = {
            "peer": saved_tensors(self.peer),
            "peer_optimizer": self.peer_optimizer.state_dict(),
        }
        return super().state_dict() | peer

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        load_saved(self.peer, state["peer"])
        self.peer_optimizer.load_state_dict(state["peer_optimizer"])
