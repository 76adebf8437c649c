"""The replay buffer of a deep Q-network: uniform or prioritised sampling, one-step or n-step
transitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from torch import Tensor

from rlbook.agent import State, Step
from rlbook.data.frame_store import FrameStore
from rlbook.data.n_step import NStepTransitions
from rlbook.data.prioritized_replay import Priorities
from rlbook.data.replay import ReplayBuffer, Transitions
from rlbook.functional.averages import Average, per_token
from rlbook.functional.rainbow import importance_weights


@dataclass(frozen=True)
class RainbowMinibatch:
    """B stored transitions, and the target network's outputs for their successors."""

    rows: Transitions
    next_q: Tensor  # [B, A], Q⁻(s', ·), in reward units; or [B, A, K], of atoms
    discount: Tensor | None = None  # [B], γᵐ of n-step targets; None: γ
    weight: Tensor | None = None  # [B], importance weights; None: all count alike
    places: NDArray[np.int64] | None = None  # [B], where in the buffer they are; None: of no use

    def __len__(self) -> int:
        return len(self.rows.reward)

    def __getitem__(self, part: slice) -> RainbowMinibatch:
        return RainbowMinibatch(
            Transitions(*(None if field is None else field[part] for field in self.rows)),  # type: ignore[arg-type]
            self.next_q[part],
            discount=None if self.discount is None else self.discount[part],
            weight=None if self.weight is None else self.weight[part],
            places=None if self.places is None else self.places[part],
        )

    @property
    def average(self) -> Average:
        """The mean over rows, weighted by their importance weights."""
        return per_token if self.weight is None else self.weight / len(self)


class RainbowReplay(ReplayBuffer):
    """A replay buffer with optional prioritised sampling and optional n-step transitions.

    Args:
        capacity, device, frames: as of a `ReplayBuffer`.
        observations: the space they are from.
        num_envs: environments that fill it.
        n_step: n; a row stands for up to n steps.
        gamma: γ, discount per environment step, in [0, 1].
        priority_exponent: ω of `Priorities`; None draws uniformly.
    """

    def __init__(
        self,
        capacity: int,
        observations: Box,
        device: torch.device | str = "cpu",
        *,
        frames: FrameStore | None = None,
        num_envs: int = 1,
        n_step: int = 1,
        gamma: float = 1.0,
        priority_exponent: float | None = None,
    ) -> None:
        super().__init__(capacity, math.prod(observations.shape), device, frames=frames)
        self.ahead = NStepTransitions(self, num_envs, n_step, gamma) if n_step > 1 else None
        self.priorities = None
        if priority_exponent is not None:
            self.priorities = Priorities(capacity, priority_exponent)

    def add(self, step: Step, memory: object = None) -> None:
        """Stores one vector step. `memory` is used only by a `SequenceReplay`."""
        super().add(step)
        if self.ahead is not None:
            ended = step.terminated | step.truncated
            self.ahead.ended[self.newest_indices(len(ended))] = ended
        if self.priorities is not None:
            self.priorities.add(self.newest_indices(len(step.reward)))

    def minibatches(
        self,
        count: int,
        size: int,
        successors: Callable[[Tensor], Tensor],
        rng: np.random.Generator,
        *,
        beta: float = 1.0,
        together: int = 64,
    ) -> Iterator[RainbowMinibatch]:
        """Samples `count` minibatches of `size` rows, with replacement.

        Args:
            count, size: how many.
            successors: next_obs [B, ...] → `next_q`.
            rng: draws the rows.
            beta: β of the importance weights.
            together: so many minibatches are drawn, and asked about, at once. Priorities stay
                current where it is 1.
        """
        for start in range(0, count, together):
            drawn = min(together, count - start) * size
            discount = weight = None
            if self.priorities is None:
                places = rng.integers(self.size, size=drawn)
            else:
                places, chance = self.priorities.draw(drawn, rng)
                weight = importance_weights(torch.from_numpy(chance), self.size, beta)
                weight = weight.float().to(self.device)
            if self.ahead is None:
                rows = self.rows_at(places)
            else:
                rows, discount = self.ahead.rows_at(places)
            with torch.no_grad():
                next_q = successors(rows.next_obs)
            batch = RainbowMinibatch(rows, next_q, discount, weight, places)
            if drawn == size:
                yield batch
            else:
                yield from (batch[first : first + size] for first in range(0, drawn, size))

    def state_dict(self) -> State:
        parts = {"ahead": self.ahead, "priorities": self.priorities}
        mine = {name: part.state_dict() for name, part in parts.items() if part is not None}
        return super().state_dict() | mine

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        if self.ahead is not None:
            self.ahead.load_state_dict(state["ahead"])
        if self.priorities is not None:
            self.priorities.load_state_dict(state["priorities"])
