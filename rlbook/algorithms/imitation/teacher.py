"""Teachers for distillation: the source of the action probabilities that a policy should match."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rlbook.agent import Agent
from rlbook.algorithms.policy.reference import check_spaces, reference_policy
from rlbook.data.rollout import Batch
from rlbook.functional.action_masks import masked_logits
from rlbook.networks.distributions import Categorical, sample_categorical
from rlbook.networks.policy import as_array


class Teacher(Protocol):
    """What a student needs from its teacher; a `Policy` has it."""

    def initial_state(self) -> Any: ...

    def act(
        self,
        obs: Any,
        rng: np.random.Generator | None,
        state: Any = None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]: ...

    def distributions(self, batch: Batch) -> Any: ...


class SoftActionValues:
    """The policy softmax(Q(s, ·) / τ) of a network that learned action values.

    Source: Rusu et al. 2015 (policy distillation), arXiv:1511.06295, section 3.
    """

    def __init__(self, network: nn.Module, temperature: float) -> None:
        self.network, self.temperature = network, temperature

    def initial_state(self) -> None:
        return None

    def distributions(self, batch: Batch) -> Categorical:
        values = self.network(batch.obs) / self.temperature
        return Categorical(masked_logits(values, batch.action_mask))

    def act(
        self,
        obs: NDArray[np.float32],
        rng: np.random.Generator | None,
        state: object = None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        assert rng is not None
        with torch.inference_mode():
            values = as_array(self.network(torch.from_numpy(obs)))
        if action_mask is not None:
            values = np.where(action_mask, values, -np.inf)
        return sample_categorical(values / self.temperature, rng.random(len(values)))


def teacher_of(teacher: Agent | None, learner: Agent, value_temperature: float) -> Teacher:
    """The teacher that the user named, never trained.

    Args:
        teacher: the agent of a run or of a model's folder.
        learner: the agent that is to become like it.
        value_temperature: τ, in reward units, where it has learned action values.

    Raises:
        ValueError: there is none.
        RequestError: it has no probabilities, or sees or does something else.
    """
    if teacher is None:
        raise ValueError("it needs a teacher (--teacher, teacher=…)")
    network = getattr(teacher, "q", None)
    if not isinstance(network, nn.Module):
        return reference_policy(teacher, learner, "teacher")
    check_spaces(teacher, learner, "teacher")
    return SoftActionValues(network, value_temperature)
