"""A replay buffer: the last transitions, kept as they happened, drawn uniformly."""

from __future__ import annotations

from typing import NamedTuple

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


class ReplayBuffer:
    """A ring of `capacity` transitions. Successors are stored, not inferred from the next row, so no row lies across a reset.

    One row holds a whole transition, obs | next_obs | action | reward | terminated, so that a sample is one gather.

    Args:
        capacity: transitions.
        observation_size: O.
    """

    def __init__(self, capacity: int, observation_size: int) -> None:
        self.capacity, self.size, self.position = capacity, 0, 0
        self.observation_size = observation_size
        self.rows = torch.zeros(capacity, 2 * observation_size + 3)

    def add(self, step: Step) -> None:
        """Takes in one vector step: N transitions, N at most the capacity."""
        count, width = len(step.reward), self.observation_size
        rows = np.empty((count, 2 * width + 3), dtype=np.float32)
        rows[:, :width], rows[:, width : 2 * width] = step.obs, step.next_obs
        rows[:, -3], rows[:, -2], rows[:, -1] = step.action, step.reward, step.terminated
        first = min(count, self.capacity - self.position)
        self.rows[self.position : self.position + first] = torch.from_numpy(rows[:first])
        self.rows[: count - first] = torch.from_numpy(rows[first:])
        self.position = (self.position + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def sample(self, size: int, rng: np.random.Generator) -> Transitions:
        """`size` transitions, uniformly and with replacement."""
        return self.transitions(self.rows.index_select(0, torch.from_numpy(rng.integers(self.size, size=size))))

    def transitions(self, rows: Tensor) -> Transitions:
        """Rows [B, 2 O + 3] taken apart."""
        obs, next_obs, rest = rows.split([self.observation_size, self.observation_size, 3], dim=1)
        action, reward, terminated = rest.unbind(1)
        return Transitions(obs, action.long(), reward, next_obs, terminated.bool())

    def state_dict(self) -> State:
        return {"rows": self.rows[: self.size], "size": self.size, "position": self.position}

    def load_state_dict(self, state: State) -> None:
        self.size, self.position = state["size"], state["position"]
        self.rows[: self.size] = state["rows"]
