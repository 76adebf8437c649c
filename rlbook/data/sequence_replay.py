"""A replay buffer of sequences, for a Q-network with a memory.

    stored      o_{t-B} … o_{t-1} │ o_t … o_{t+L-1}      of one environment, one step after another
                burn-in: no loss  │ trained
    with        the recurrent state that the agent had at o_{t-B}

The trained parts of an episode begin at its steps 0, L - overlap, 2 (L - overlap), …, so that each
step is trained; a part that would go on beyond the end of the episode ends there, and the rest of
its L steps is masked.

Source: Kapturowski et al. 2019 (R2D2), OpenReview r1lyTjAqYX, section 2.3. Difference: the burn-in
lies before the trained steps, also where these begin an episode, which there resets the state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from torch import Tensor

from rlbook.agent import State, Step
from rlbook.checks import check_memory, saved_array
from rlbook.data.frame_store import FrameStore
from rlbook.data.replay import ReplayBuffer, Transitions
from rlbook.data.rollout import StateMemory
from rlbook.functional.rainbow import n_step_reward


@dataclass(frozen=True)
class Sequences:
    """The input of a recurrent network: B sequences of P = burn_in + L + 1 observations. The last
    valid one is the true successor of the last valid step."""

    obs: Tensor  # [B, P, ...]
    starts: Tensor  # [B, P] bool; True: an episode begins with this observation
    state: Tensor  # [B, Z], the recurrent state before the first observation
    burn_in: int  # observations at the beginning that only bring the state up to date

    def __len__(self) -> int:
        return len(self.obs)

    def __getitem__(self, part: slice) -> Sequences:
        return Sequences(self.obs[part], self.starts[part], self.state[part], self.burn_in)


@dataclass(frozen=True)
class SequenceMinibatch:
    """B stored sequences of L trained steps; step k acts on observation `burn_in + k`."""

    sequences: Sequences
    action: Tensor  # [B, L] int64
    reward: Tensor  # [B, L], of up to n steps, in reward units
    ahead: Tensor  # [B, L] int64; m, how many steps
    terminated: Tensor  # [B, L] bool; whether the episode terminated with one of them
    discount: Tensor  # [B, L], γᵐ
    mask: Tensor  # [B, L] bool; False after the end of the episode, or of what is stored
    weight: Tensor  # [B, L]; 0 where masked, else alike; their mean over all B rows is 1 / L
    next_q: Tensor  # [B, L + 1, A], Q⁻ after the burn-in, in reward units
    action_mask: Tensor | None = None  # [B, L + 1, A] bool, after the burn-in; None: all allowed

    def __len__(self) -> int:
        return len(self.reward)

    def __getitem__(self, part: slice) -> SequenceMinibatch:
        rows: dict[str, Any] = {
            name: None if field is None else field[part] for name, field in vars(self).items()
        }
        return SequenceMinibatch(**rows)

    @property
    def average(self) -> Tensor:
        """The mean over the steps that count."""
        return self.weight / len(self)


class SequenceReplay(ReplayBuffer):
    """A ring buffer that returns sequences of `length` steps, with the burn-in before them.

    Args:
        capacity, device, frames: as of a `ReplayBuffer`; the capacity counts steps.
        observations: the space they are from.
        num_envs: N; each vector step writes one row for each of them.
        length: L, steps of a sequence that are trained, at least 1.
        overlap: steps that a sequence shares with the next one of its episode, below `length`.
        burn_in: steps before them that bring the recurrent state up to date.
        state_size: Z, numbers of the recurrent state.
        n_step: n, steps of reward in a target; fewer at the end of a sequence.
        gamma: γ, discount per environment step, in [0, 1].

    Raises:
        ValueError: one sentence: the overlap is not below the length, or the capacity is too small
            for a sequence of each environment.
    """

    def __init__(
        self,
        capacity: int,
        observations: Box,
        device: torch.device | str = "cpu",
        *,
        frames: FrameStore | None = None,
        num_envs: int = 1,
        length: int = 20,
        overlap: int = 10,
        burn_in: int = 10,
        state_size: int,
        n_step: int = 1,
        gamma: float = 1.0,
    ) -> None:
        super().__init__(capacity, math.prod(observations.shape), device, frames=frames)
        if not 0 <= overlap < length:
            raise ValueError(f"overlap must be at least 0 and below {length}, got {overlap}")
        least = num_envs * (burn_in + length + 1)
        if capacity < least:
            raise ValueError(
                f"buffer_size must be at least {least} to hold a sequence of each of {num_envs}"
                f" environments, got {capacity}"
            )
        self.num_envs, self.length, self.period = num_envs, length, length - overlap
        self.burn_in, self.n_step, self.gamma = burn_in, n_step, gamma
        self.priorities = None
        # of each row: which step of its episode it is, and whether it is the last
        self.age, self.ended = np.zeros(capacity, np.int64), np.zeros(capacity, bool)
        # where in `states` the state before the burn-in of a sequence is that begins here; 0 for
        # one that begins an episode, -1 where none begins
        self.slot = np.full(capacity, -1, np.int64)
        slots = 1 + capacity // self.period + num_envs
        check_memory("buffer_size", slots, 4 * state_size)
        self.states = torch.from_numpy(np.zeros((slots, state_size), dtype=np.float32))
        self.next_slot = 1
        self.recent = torch.zeros(burn_in + 1, num_envs, state_size)  # the latest states
        self.next_age = np.zeros(num_envs, np.int64)

    def add(self, step: Step, memory: StateMemory | None = None) -> None:
        """Stores one vector step, and the recurrent state before its observation, which a
        `rlbook.networks.recurrent_memory.RecurrentMemory` still has."""
        super().add(step)
        assert memory is not None and memory.before is not None
        places, over = (
            self.newest_indices(self.num_envs),
            np.asarray(step.terminated | step.truncated),
        )
        self.age[places], self.ended[places] = self.next_age, over
        self.recent = torch.cat([self.recent[1:], memory.before.cpu()[None]])
        self.slot[places] = -1
        begins = self.next_age % self.period == 0
        self.slot[places[begins]] = 0
        for env in np.flatnonzero(begins & (self.next_age > 0)).tolist():
            self.slot[places[env]], self.states[self.next_slot] = (
                self.next_slot,
                self.recent[0, env],
            )
            self.next_slot = self.next_slot % (len(self.states) - 1) + 1
        self.next_age = np.where(over, 0, self.next_age + 1)

    def sequence_starts(self) -> NDArray[np.int64]:
        """The indices of the rows with which a sequence begins whose burn-in is still stored."""
        places = np.flatnonzero(self.slot[: self.size] >= 0)
        if self.size < self.capacity:
            return places
        older = (places - self.position) % self.capacity  # rows that were written before
        return places[older >= self.num_envs * np.minimum(self.burn_in, self.age[places])]

    def minibatches(
        self,
        count: int,
        size: int,
        successors: Callable[[Any], Tensor],
        rng: np.random.Generator,
        **options: object,
    ) -> Iterator[SequenceMinibatch]:
        """Samples `count` minibatches of `size` sequences, uniformly and with replacement.

        Args:
            count, size: how many.
            successors: the observations → `next_q`.
            rng: draws the sequences.
            options: of a `RainbowReplay`, which have no effect here.
        """
        for _ in range(count):
            places = self.sequence_starts()
            yield self.sequences_at(places[rng.integers(len(places), size=size)], successors)

    def sequences_at(
        self, places: NDArray[np.int64], successors: Callable[[Sequences], Tensor]
    ) -> SequenceMinibatch:
        """The sequences whose trained steps begin with these rows of the ring, [B]."""
        steps, every = np.arange(self.length), torch.arange(len(places))
        offsets = self.num_envs * np.arange(-self.burn_in, self.length)
        covered = (places[:, None] + offsets) % self.capacity  # [B, burn_in + L]
        # what is not stored yet is of no influence: masked, or before the start of an episode
        covered = np.where(covered < self.size, covered, places[:, None])
        trained = covered[:, self.burn_in :]
        left = (self.position - 1 - places) % self.capacity  # rows that were written later
        counts = self.num_envs * steps <= left[:, None]
        counts[:, 1:] &= ~np.logical_or.accumulate(self.ended[trained[:, :-1]], axis=1)
        mask, last = torch.from_numpy(counts), torch.from_numpy(counts.sum(axis=1)) - 1
        rows = self.rows_at(covered.ravel()).map_fields(
            lambda field: field.unflatten(0, covered.shape)
        )
        after = self.burn_in + last + 1  # where the successor of the last step goes
        obs = torch.cat([rows.obs, rows.next_obs[:, -1:]], dim=1)
        obs[every, after] = rows.next_obs[every, after - 1]
        starts = torch.from_numpy(np.pad(self.age[covered] == 0, ((0, 0), (0, 1))))
        starts &= torch.arange(starts.shape[1]) < after[:, None]
        state = self.states[torch.from_numpy(self.slot[places])]
        sequences = Sequences(obs, starts.to(obs.device), state.to(obs.device), self.burn_in)
        return SequenceMinibatch(
            sequences,
            *self._n_step(rows, mask),
            mask=mask.to(self.device),
            weight=(mask * (len(mask) / mask.sum())).to(self.device),
            next_q=_compute_without_gradient(successors, sequences),
            action_mask=self._masks(rows, after),
        )

    def _n_step(
        self, rows: Transitions, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """`action`, `reward`, `ahead`, `terminated` and `discount` of a minibatch."""
        action, reward, over = (
            field[:, self.burn_in :] for field in (rows.action, rows.reward, rows.terminated)
        )
        windows = [
            torch.nn.functional.pad(field, (0, self.n_step - 1)).unfold(1, self.n_step, 1)
            for field in (reward, mask.to(self.device))
        ]  # [B, L, n] each
        # copies: windows overlap, and those of a single sequence would in memory, too
        earned, counted = (window.flatten(0, 1).clone() for window in windows)
        counted[:, 0] = True  # of a masked step, too, which is of no influence
        total, discount = (
            found.unflatten(0, reward.shape) for found in n_step_reward(earned, counted, self.gamma)
        )
        ahead = counted.sum(-1).unflatten(0, reward.shape)
        final = (torch.arange(self.length, device=over.device) + ahead - 1).clamp(
            max=self.length - 1
        )
        return action, total, ahead, over.gather(1, final), discount

    def _masks(self, rows: Transitions, after: Tensor) -> Tensor | None:
        if rows.action_mask is None or rows.next_action_mask is None:
            return None
        every = torch.arange(len(after))
        allowed = torch.cat([rows.action_mask, rows.next_action_mask[:, -1:]], dim=1)
        allowed[every, after] = rows.next_action_mask[every, after - 1]
        return allowed[:, self.burn_in :]

    def state_dict(self) -> State:
        mine = ("age", "ended", "slot", "next_age")
        return super().state_dict() | {
            **{name: getattr(self, name).copy() for name in mine},
            "states": self.states,
            "recent": self.recent,
            "next_slot": self.next_slot,
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        slots = len(self.states)
        self.ended = saved_array("ends of episodes", state["ended"], bool, self.ended.shape)
        self.slot = saved_array(
            "slots", state["slot"], np.int64, self.slot.shape, low=-1, high=slots
        )
        for name in ("age", "next_age"):
            shape = getattr(self, name).shape
            setattr(self, name, saved_array("ages", state[name], np.int64, shape, low=0))
        for name in ("states", "recent"):
            kept, saved = getattr(self, name), state[name]
            if saved.shape != kept.shape or not saved.isfinite().all():
                raise ValueError(
                    f"the saved {name} must be finite numbers {list(kept.shape)}, got"
                    f" {list(saved.shape)}"
                )
            setattr(self, name, saved.to(kept).clone())
        self.next_slot = int(
            saved_array("slot", [state["next_slot"]], np.int64, low=1, high=slots)[0]
        )


def _compute_without_gradient(
    successors: Callable[[Sequences], Tensor], sequences: Sequences
) -> Tensor:
    with torch.no_grad():
        return successors(sequences)
