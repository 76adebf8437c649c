"""Observations that are images, for a replay buffer: each frame is stored once, and an observation is
put together when it is drawn."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from rlbook.agent import FrozenPart, State
from rlbook.checks import check_disk, check_memory, saved_array, saved_count
from rlbook.interaction.spaces import is_image

BLOCK_BYTES = 2**24  # of a block of frames at most, unless one frame has more
LEAST_BLOCK = 1_024  # frames of a block, where these are small
ROW_BYTES = 16  # of a transition's action, reward and flags
BLOCKS = 16  # that a buffer has at least, so that little is kept beyond what is still needed


class FrameStore:
    """Frames in the order in which they were seen, and observations as the numbers of their frames.

    With S = 4 frames to an observation, one step after the other in an episode:

        s  of step t      frames 0 1 2 3
        s' of step t      frames   1 2 3 4        one new frame
        s  of step t+1    frames   1 2 3 4        none: it is the s' before
        s' of step t+1    frames     2 3 4 5      one new frame

    An episode of T steps has T + 1 frames, its true last one among them, whether it ended or was
    cut. The first frame of an episode, which the environment repeats to fill the stack, is stored
    once as well. Where an observation does not continue the one before it, or is not a stack,
    its frames are stored again: what comes back is always what was given, byte for byte.

    Frames lie in blocks. A full block never changes, so a checkpoint that holds it need not be
    written again; a block that no stored transition shows any more is dropped.

    Args:
        shape: of an observation; a stack along its first axis.
        dtype: of its numbers: uint8 or bool.
        num_envs: N, environments that fill the store.
        stack: S, frames of an observation; 1 where the observation is the frame.
        capacity: transitions that are kept at a time.
        folder: where the blocks are files, mapped into memory; None keeps them in memory. A file
            has no name, so it is gone with the process, however that ends.
        block: frames of a block; None chooses.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        *,
        num_envs: int,
        stack: int = 1,
        capacity: int,
        folder: Path | None = None,
        block: int | None = None,
    ) -> None:
        self.stack, self.dtype, self.folder = stack, np.dtype(dtype), folder
        self.frame_shape = (shape[0] // stack, *shape[1:])
        self.frame_bytes = math.prod(self.frame_shape) * self.dtype.itemsize
        most = max(1, BLOCK_BYTES // self.frame_bytes)
        self.block = block or min(max(capacity // BLOCKS, LEAST_BLOCK), most)
        self.blocks: list[NDArray] = []  # [block, ...] each; the last one is being filled
        self.dropped = self.count = 0  # blocks that were dropped; frames that were ever stored
        self.shown: NDArray | None = None  # [N, S, ...], the latest next observations
        self.numbers = np.zeros((num_envs, stack), dtype=np.int64)  # [N, S], of their frames
        self._frozen: dict[int, FrozenPart] = {}  # full blocks as checkpoints hold them

    def check_room(self, name: str, capacity: int) -> None:
        """Raises ValueError where so many transitions do not fit into memory, or on the disk."""
        row = 2 * self.stack * self.numbers.itemsize + ROW_BYTES
        if self.folder is None:
            hint = "; replay_folder keeps the frames on a disk"
            check_memory(name, capacity, self.frame_bytes + row, hint)
        else:
            check_memory(name, capacity, row)
            check_disk(name, capacity, self.frame_bytes, self.folder)

    def note(self, capacity: int) -> str:
        """How much memory so many transitions need, in a sentence; empty below 0.1 GB."""
        size = capacity * self.frame_bytes / 1e9
        where = "memory" if self.folder is None else f"the disk of {self.folder}"
        if size < 0.1:
            return ""
        return (
            f"replay buffer: up to {size:.2f} GB of {where} for {capacity:,} frames, and one frame"
            " more for each episode"
        )

    def add(self, obs: NDArray, next_obs: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Stores the new frames of one step of N environments: [N, ...] twice → the numbers of their
        frames [N, S] twice."""
        before, after = (
            np.asarray(shown).reshape(len(self.numbers), self.stack, *self.frame_shape)
            for shown in (obs, next_obs)
        )
        first = np.empty_like(self.numbers)
        for env, numbers in enumerate(self.numbers):
            if self.shown is None or not np.array_equal(self.shown[env], before[env]):  # a reset
                numbers[:] = self._store_all(before[env])
            first[env] = numbers
            if np.array_equal(before[env, 1:], after[env, :-1]):
                numbers[:-1] = numbers[1:]
                numbers[-1] = self._store(after[env, -1])
            else:  # no stack
                numbers[:] = self._store_all(after[env])
        self.shown = after.copy()
        return first, self.numbers.copy()

    def _store_all(self, frames: NDArray) -> list[int]:
        """The numbers of all frames [S, ...] of an observation; one that repeats the frame before it
        is not stored again."""
        numbers = [self._store(frames[0])]
        for frame, last in zip(frames[1:], frames, strict=False):
            repeats = np.array_equal(frame, last)
            numbers.append(numbers[-1] if repeats else self._store(frame))
        return numbers

    def _store(self, frame: NDArray) -> int:
        """The number of a new frame."""
        place = self.count % self.block
        if place == 0:
            self.blocks.append(self._new_block())
        self.blocks[-1][place] = frame
        self.count += 1
        return self.count - 1

    def _new_block(self) -> NDArray:
        shape = (self.block, *self.frame_shape)
        if self.folder is None:
            return np.empty(shape, self.dtype)
        size = self.block * self.frame_bytes
        with tempfile.TemporaryFile(dir=self.folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk says so here, not at a write
            return np.frombuffer(mmap.mmap(file.fileno(), size), self.dtype).reshape(shape)

    def drop_before(self, number: int) -> None:
        """Drops the blocks all of whose frames come before frame `number`."""
        unused = number // self.block - self.dropped
        for index in range(self.dropped, self.dropped + unused):
            self._frozen.pop(index, None)
        del self.blocks[:unused]
        self.dropped += unused

    def check_numbers(self, numbers: NDArray[np.int64]) -> None:
        """Raises ValueError where saved numbers are not those of frames that are kept."""
        low = self.dropped * self.block
        if numbers.size and not low <= numbers.min() <= numbers.max() < self.count:
            raise ValueError(
                f"the saved frames are numbered from {low} to {self.count - 1}, but an "
                f"observation refers to {numbers.min() if numbers.min() < low else numbers.max()}"
            )

    def observations(self, numbers: Tensor) -> Tensor:
        """The observations with these frames: [B, S] → [B, ...]."""
        shape = (len(numbers), self.stack * self.frame_shape[0], *self.frame_shape[1:])
        frames = np.empty((numbers.numel(), *self.frame_shape), self.dtype)
        block, place = np.divmod(numbers.numpy().reshape(-1), self.block)
        for row, at, where in zip(
            frames, (block - self.dropped).tolist(), place.tolist(), strict=True
        ):
            row[...] = self.blocks[at][where]
        return torch.from_numpy(frames.reshape(shape))

    def state_dict(self) -> State:
        """The full blocks as parts that never change, so that a run's folder holds each of them
        once for all its checkpoints."""
        full, rest = divmod(self.count - self.dropped * self.block, self.block)
        for index, frames in enumerate(self.blocks[:full], self.dropped):
            self._frozen.setdefault(index, FrozenPart({"frames": frames}))
        none = np.empty((0, *self.frame_shape), self.dtype)
        return {
            "block": self.block,
            "full": [self._frozen[self.dropped + index] for index in range(full)],
            "last": self.blocks[-1][:rest] if rest else none,
            "count": self.count,
            "numbers": self.numbers.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`; full blocks in memory are taken over without a copy.

        Raises:
            ValueError: these are not frames of this shape, or their numbers do not fit.
        """
        self.block, self.count = (saved_count(name, state[name]) for name in ("block", "count"))
        full, rest = state["full"], state["last"]
        self.dropped = self.count // max(self.block, 1) - len(full)
        if self.block == 0 or self.dropped < 0 or len(rest) != self.count % self.block:
            raise ValueError(f"the saved frames must be {self.count} in blocks of {self.block}")
        for frames in (*(part["frames"] for part in full), rest):
            if frames.dtype != self.dtype or frames.shape[1:] != self.frame_shape:
                shape = " x ".join(map(str, self.frame_shape))
                raise ValueError(f"the saved frames are not {shape} of {self.dtype}")
        if any(len(part["frames"]) != self.block for part in full):
            raise ValueError(f"a saved block of frames does not have {self.block}")
        self.blocks, self._frozen = [], {}
        for index, part in enumerate(full, self.dropped):
            self.blocks.append(part["frames"] if self.folder is None else self._new_block())
            if self.folder is not None:  # what was read must not stay in memory
                self.blocks[-1][:] = part["frames"]
                part = FrozenPart({"frames": self.blocks[-1]})
            self._frozen[index] = part
        if len(rest):
            self.blocks.append(self._new_block())
            self.blocks[-1][: len(rest)] = rest
        self.numbers = saved_array("frames", state["numbers"], np.int64, self.numbers.shape, low=0)
        self.shown = None
        if self.count:
            self.check_numbers(self.numbers)
            shown = self.observations(torch.from_numpy(self.numbers)).numpy()
            self.shown = shown.reshape(*self.numbers.shape, *self.frame_shape)


def frame_store(env: VectorEnv, capacity: int, folder: Path | None = None) -> FrameStore | None:
    """An empty store for the observations of a vector environment; None if they are not images.

    Args:
        env: has `frame_stack`, the frames of an observation, where it stacks any.
        capacity, folder: as of a `FrameStore`.

    Raises:
        ValueError: a folder for observations that are not images.
    """
    space = env.single_observation_space
    if not is_image(space):
        if folder is not None:
            raise ValueError(
                f"replay_folder is for observations that are images, got {str(space)[:80]}"
            )
        return None
    assert space.shape is not None and space.dtype is not None
    stack = getattr(env.unwrapped, "frame_stack", 1)
    return FrameStore(
        space.shape,
        space.dtype,
        num_envs=env.num_envs,
        stack=stack if space.shape[0] % stack == 0 else 1,
        capacity=capacity,
        folder=folder,
    )
