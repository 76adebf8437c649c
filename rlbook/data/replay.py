"""A replay buffer: the last transitions, kept as they happened, drawn uniformly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlbook.agent import State, Step


class Transitions(NamedTuple):
    """B transitions."""

    obs: Tensor          # [B, O]
    action: Tensor       # [B] int64
    reward: Tensor       # [B]
    next_obs: Tensor     # [B, O], the true successor
    terminated: Tensor   # [B] bool; a time limit is not a termination


class Replay:
    """A ring of `capacity` transitions. Successors are stored, not inferred from the next row, so no row lies across a reset.

    Args:
        capacity: transitions.
        observation_size: O.
    """

    def __init__(self, capacity: int, observation_size: int) -> None:
        self.capacity, self.size, self.position = capacity, 0, 0
        self.fields = Transitions(
            torch.zeros(capacity, observation_size), torch.zeros(capacity, dtype=torch.int64), torch.zeros(capacity),
            torch.zeros(capacity, observation_size), torch.zeros(capacity, dtype=torch.bool),
        )  # fmt: skip

    def add(self, step: Step) -> None:
        """Takes in one vector step: N transitions, N at most the capacity."""
        count = len(step.reward)
        values = (step.obs, step.action, step.reward, step.next_obs, step.terminated)
        first = min(count, self.capacity - self.position)
        for field, value in zip(self.fields, values, strict=True):
            value = torch.as_tensor(np.ascontiguousarray(value))
            field[self.position : self.position + first] = value[:first]
            field[: count - first] = value[first:]
        self.position = (self.position + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def sample(self, size: int, rng: np.random.Generator) -> Transitions:
        """`size` transitions, uniformly and with replacement."""
        rows = torch.from_numpy(rng.integers(self.size, size=size))
        return Transitions(*(field.index_select(0, rows) for field in self.fields))

    def state_dict(self) -> State:
        fields: dict[str, Any] = {name: field[: self.size] for name, field in self.fields._asdict().items()}
        return fields | {"size": self.size, "position": self.position}

    def load_state_dict(self, state: State) -> None:
        self.size, self.position = state["size"], state["position"]
        for name, field in self.fields._asdict().items():
            field[: self.size] = state[name]
