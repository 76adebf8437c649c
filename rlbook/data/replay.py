"""A replay buffer: the last transitions, kept as they happened, drawn uniformly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook.agent import State, Step
from rlbook.checks import check_memory


class Transitions(NamedTuple):
    """B transitions; each field has the type that it was given in."""

    obs: Tensor          # [B, ...]
    action: Tensor       # [B] int64, or [B, A]
    reward: Tensor       # [B]
    next_obs: Tensor     # [B, ...], the true successor
    terminated: Tensor   # [B] bool; a time limit is not a termination


class ReplayBuffer:
    """A ring of `capacity` transitions. Successors are stored, not inferred from the next row, so no row lies across a reset.

    Args:
        capacity: transitions.
        observation_size: numbers in an observation.
        bytes_each: of such a number; an image's has 1.
        device: where minibatches are to be; the transitions themselves stay in the machine's memory.

    Raises:
        ValueError: so many transitions need more memory than the machine has.
    """

    def __init__(
        self, capacity: int, observation_size: int, device: torch.device | str = "cpu", *, bytes_each: int = 4
    ) -> None:
        check_memory("buffer_size", capacity, bytes_each * 2 * observation_size + 8)   # two observations, action and reward
        self.capacity, self.size, self.position = capacity, 0, 0
        self.observation_size, self.device = observation_size, device
        self.rows: Transitions | None = None         # [capacity, ...] each; the first step says of which shapes and types

    def add(self, step: Step) -> None:
        """Takes in one vector step: N transitions, N at most the capacity.

        Raises:
            ValueError: the observations have another size than was said.
        """
        new = [torch.from_numpy(np.asarray(getattr(step, name))) for name in Transitions._fields]
        if new[0][0].numel() != self.observation_size:
            raise ValueError(f"an observation must have {self.observation_size} numbers, got {new[0][0].numel()}")
        if self.rows is None:
            self.rows = Transitions(*(field.new_zeros(self.capacity, *field.shape[1:]) for field in new))
        count = len(step.reward)
        first = min(count, self.capacity - self.position)
        for kept, field in zip(self.rows, new, strict=True):
            kept[self.position : self.position + first] = field[:first]
            kept[: count - first] = field[first:]
        self.position = (self.position + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def sample(self, size: int, rng: np.random.Generator) -> Transitions:
        """`size` transitions, uniformly and with replacement."""
        return self.rows_at(rng.integers(self.size, size=size))

    def rows_at(self, places: NDArray[np.int64]) -> Transitions:
        """The transitions at these places of the ring, each from 0 to `size` - 1."""
        assert self.rows is not None
        chosen = torch.from_numpy(places)
        return Transitions(*(field.index_select(0, chosen).to(self.device) for field in self.rows))

    def newest(self, count: int) -> NDArray[np.int64]:
        """The places of the last `count` transitions, the oldest first."""
        return (self.position - count + np.arange(count)) % self.capacity

    def state_dict(self) -> State:
        rows = None if self.rows is None else {name: field[: self.size] for name, field in self.rows._asdict().items()}
        return {"rows": rows, "size": self.size, "position": self.position}

    def load_state_dict(self, state: State) -> None:
        if not (0 <= state["size"] <= self.capacity and 0 <= state["position"] < self.capacity):
            raise ValueError(f"the buffer holds {self.capacity} transitions, not {state['size']} up to place {state['position']}")
        self.size, self.position = state["size"], state["position"]
        if state["rows"] is None:
            self.rows = None
            return
        saved = Transitions(**state["rows"])
        self.rows = Transitions(*(field.new_zeros(self.capacity, *field.shape[1:]) for field in saved))
        for kept, field in zip(self.rows, saved, strict=True):
            kept[: self.size] = field
