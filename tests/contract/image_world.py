"""A room that is seen as an image, with an optimum that can be counted."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SIDE = 4
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
STARTS = [(row, column) for row in range(SIDE) for column in range(SIDE)][:-1]
"""Every cell but the last, which is the goal."""


class ImageRoom(gymnasium.Env[np.ndarray, np.int64]):
    """4 x 4 cells of `pixels` x `pixels` bytes: the agent is white, the goal in the last corner grey, the floor black.

    A step costs 1 and moves by a cell, walls hold; the goal ends the episode, 20 steps cut it. From (r, c) the best return is
    -(6 - r - c), so the mean over the 15 starts is -(16 · 6 - 2 · 4 · 6) / 15 = -3.2.
    """

    def __init__(self, pixels: int = 3, channels_first: bool = False) -> None:
        self.pixels, self.channels_first = pixels, channels_first
        side = SIDE * pixels
        shape = (1, side, side) if channels_first else (side, side, 1)
        self.observation_space, self.action_space = spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell, self.time = STARTS[self.np_random.integers(len(STARTS))], 0
        return self.image(self.cell), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.cell, self.time = moved(self.cell, int(action)), self.time + 1
        terminated = self.cell not in STARTS
        return self.image(self.cell), -1.0, terminated, self.time == 20 and not terminated, {}

    def image(self, cell: tuple[int, int]) -> np.ndarray:
        room = np.zeros((SIDE, SIDE), dtype=np.uint8)
        room[-1, -1] = 128
        room[cell] = 255
        image = np.kron(room, np.ones((self.pixels, self.pixels), dtype=np.uint8))
        return image[None] if self.channels_first else image[..., None]


def moved(cell: tuple[int, int], action: int) -> tuple[int, int]:
    """The cell behind a move."""
    row, column = (min(max(x + d, 0), SIDE - 1) for x, d in zip(cell, MOVES[action], strict=True))
    return row, column


def detours(agent: Any, room: ImageRoom) -> int:
    """From how many of the 15 cells the greedy action does not lead nearer to the goal: 0 for an optimal policy."""
    actions = agent.act(np.stack([room.image(cell) for cell in STARTS]), explore=False)
    return sum(sum(moved(cell, int(action))) != sum(cell) + 1 for cell, action in zip(STARTS, actions, strict=True))


gymnasium.register("ImageRoom-v0", entry_point=ImageRoom)
