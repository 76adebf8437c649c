"""A replay buffer: stores the latest transitions and samples them uniformly."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook.agent import State, Step
from rlbook.checks import check_memory, saved_array
from rlbook.data.frame_store import FrameStore
from rlbook.data.rollout import to_device


class Transitions(NamedTuple):
    """B transitions; each field keeps the dtype that it was stored with."""

    obs: Tensor  # [B, ...]
    action: Tensor  # [B] int64, or [B, A]
    reward: Tensor  # [B]
    next_obs: Tensor  # [B, ...], the true successor
    terminated: Tensor  # [B] bool; a time limit is not a termination
    action_mask: Tensor | None = None  # [B, A] bool, the actions allowed at obs; None: all
    next_action_mask: Tensor | None = None  # [B, A] bool, those at next_obs

    def map_fields(self, change: Callable[[Tensor], Tensor]) -> Transitions:
        """Applies a function to every field; masks that are None stay None."""
        return Transitions(*(None if field is None else change(field) for field in self))  # type: ignore[arg-type]


NUMBERS, FRAMES = {"obs": "obs_frames", "next_obs": "next_obs_frames"}, "frames"
"""The names of the frame numbers, and of the frames, in a saved state."""
OF_THE_END = ("next_obs", "terminated", "next_action_mask")
"""The fields of an n-step transition that come from its last step; the others are the first
one's."""


class ReplayBuffer:
    """A ring buffer of `capacity` transitions. Next observations are stored explicitly, not taken
    from the next row, so no transition spans a reset. Of images the rows hold the numbers of their
    frames, which lie in a `FrameStore`.

    Args:
        capacity: transitions.
        observation_size: numbers in an observation.
        device: where minibatches are to be; the transitions themselves stay in the machine's
            memory.
        frames: an empty store for observations that are images; None: these are vectors.

    Raises:
        ValueError: so many transitions need more memory than the machine has.
    """

    def __init__(
        self,
        capacity: int,
        observation_size: int,
        device: torch.device | str = "cpu",
        *,
        frames: FrameStore | None = None,
    ) -> None:
        if frames is None:  # two observations, action and reward
            check_memory("buffer_size", capacity, 8 * observation_size + 8)
        else:
            frames.check_room("buffer_size", capacity)
        self.capacity, self.size, self.position = capacity, 0, 0
        self.observation_size, self.device, self.frames = observation_size, device, frames
        # [capacity, ...] each; the first step says of which shapes and types
        self.rows: Transitions | None = None

    def add(self, step: Step) -> None:
        """Stores one vector step: N transitions, N at most the capacity.

        Raises:
            ValueError: the observations have another size than was said.
        """
        if np.size(step.obs[0]) != self.observation_size:
            raise ValueError(
                f"an observation must have {self.observation_size} numbers, got"
                f" {np.size(step.obs[0])}"
            )
        blocks = 0
        if self.frames is not None:
            blocks = len(self.frames.blocks)
            obs, next_obs = self.frames.add(step.obs, step.next_obs)
            step = step._replace(obs=obs, next_obs=next_obs)
        fields = (getattr(step, name) for name in Transitions._fields)
        new = Transitions(
            *(None if field is None else torch.from_numpy(np.asarray(field)) for field in fields)  # type: ignore[arg-type]
        )
        like = new.next_action_mask
        if like is None and self.rows is not None:
            like = self.rows.next_action_mask
        if like is not None:  # from the first mask on, every row has both
            new = _with_masks(new, like)
        if self.rows is None:
            self.rows = self._empty(new)
        elif like is not None and self.rows.action_mask is None:
            check_memory("buffer_size", self.capacity, 2 * like[0].numel())
            self.rows = _with_masks(self.rows, like)
        count = len(step.reward)
        first = min(count, self.capacity - self.position)
        for kept, field in zip(self.rows, new, strict=True):
            if kept is not None and field is not None:
                kept[self.position : self.position + first] = field[:first]
                if first < count:
                    kept[: count - first] = field[first:]
        self.position = (self.position + count) % self.capacity
        self.size = min(self.size + count, self.capacity)
        if self.frames is not None and len(self.frames.blocks) > blocks:
            self.frames.drop_before(int(self.rows.obs[: self.size].min()))

    def _empty(self, fields: Transitions) -> Transitions:
        """Zeros in NumPy's memory: unlike torch's, they take none before they are written to."""
        return fields.map_fields(
            lambda field: torch.from_numpy(
                np.zeros((self.capacity, *field.shape[1:]), dtype=field.numpy().dtype)
            )
        )

    def rows_at(
        self, places: NDArray[np.int64], last: NDArray[np.int64] | None = None
    ) -> Transitions:
        """The transitions at these indices of the ring, each from 0 to `size` - 1; of steps in a
        row, `last` are the indices that they end with."""
        assert self.rows is not None
        first = torch.from_numpy(places)
        end = first if last is None else torch.from_numpy(last)
        chosen = {
            name: field.index_select(0, end if name in OF_THE_END else first)
            for name, field in self.rows._asdict().items()
            if field is not None
        }
        if self.frames is not None:
            for name in ("obs", "next_obs"):
                chosen[name] = self.frames.observations(chosen[name])
        return Transitions(
            **{name: to_device(field, self.device) for name, field in chosen.items()}
        )

    def newest_indices(self, count: int) -> NDArray[np.int64]:
        """The indices of the latest `count` transitions, the oldest first."""
        return (self.position - count + np.arange(count)) % self.capacity

    def state_dict(self) -> State:
        rows = None
        if self.rows is not None:
            rows = {
                name: field[: self.size]
                for name, field in self.rows._asdict().items()
                if field is not None
            }
            if self.frames is not None:
                rows |= {NUMBERS[name]: rows.pop(name) for name in NUMBERS}
                rows[FRAMES] = self.frames.state_dict()
        return {"rows": rows, "size": self.size, "position": self.position}

    def load_state_dict(self, state: State) -> None:
        if not (0 <= state["size"] <= self.capacity and 0 <= state["position"] < self.capacity):
            raise ValueError(
                f"the buffer holds {self.capacity} transitions, not {state['size']} up to place"
                f" {state['position']}"
            )
        self.size, self.position = state["size"], state["position"]
        if state["rows"] is None:
            self.rows = None
            return
        saved = self._saved_rows(state["rows"])
        for mask in (saved.action_mask, saved.next_action_mask):
            if mask is not None and not (
                mask.dtype == torch.bool and mask.dim() == 2 and mask.any(1).all()
            ):
                raise ValueError(
                    "the saved action masks must be bool [B, A] and allow an action in every row"
                )
        self.rows = self._empty(saved)
        for kept, field in zip(self.rows, saved, strict=True):
            if kept is not None and field is not None:
                kept[: self.size] = field

    def _saved_rows(self, rows: State) -> Transitions:
        """The rows of a state, those of images with the numbers of their frames; checkpoints from
        before `FrameStore` contain the images themselves."""
        if self.frames is None:
            return Transitions(**rows)
        rows = dict(rows)
        if FRAMES in rows:
            self.frames.load_state_dict(rows.pop(FRAMES))
            numbers = {name: rows.pop(key).numpy() for name, key in NUMBERS.items()}
        else:
            numbers = self._numbers_of(rows)
        shape = (self.size, self.frames.stack)
        for name, found in numbers.items():
            numbers[name] = saved_array(NUMBERS[name], found, np.int64, shape)
            self.frames.check_numbers(numbers[name])
            rows[name] = torch.from_numpy(numbers[name])
        return Transitions(**rows)

    def _numbers_of(self, rows: State) -> dict[str, NDArray[np.int64]]:
        """Stores images [size, ...] of saved rows, in the order in which they were added."""
        assert self.frames is not None
        ages, many = self.newest_indices(self.size), len(self.frames.numbers)
        if odd := self.size % many:  # the oldest step lost its first rows; others stand in for them
            ages = np.concatenate([ages[odd:many], ages])
        numbers = {name: np.zeros((self.size, self.frames.stack), np.int64) for name in NUMBERS}
        for places in ages.reshape(-1, many):
            each = self.frames.add(*(rows[name][places].numpy() for name in NUMBERS))
            for name, found in zip(NUMBERS, each, strict=True):
                numbers[name][places] = found
        return numbers


def concatenate(*parts: Transitions) -> Transitions:
    """Concatenates several batches of transitions; if only some have action masks, the others get
    masks that allow everything."""
    like = next(
        (rows.next_action_mask for rows in parts if rows.next_action_mask is not None), None
    )
    if like is not None:
        parts = tuple(_with_masks(rows, like) for rows in parts)
    columns = zip(*parts, strict=True)
    return Transitions(*(None if fields[0] is None else torch.cat(fields) for fields in columns))  # type: ignore[arg-type]


def _with_masks(rows: Transitions, like: Tensor) -> Transitions:
    """The rows with masks [B, A]; rows stored without one allow everything. `like`: [..., A]."""
    every = [
        like.new_ones(len(rows.reward), like.shape[1]) if mask is None else mask
        for mask in (rows.action_mask, rows.next_action_mask)
    ]
    return rows._replace(action_mask=every[0], next_action_mask=every[1])
