"""A corridor with a door at its end, which opens only to the key that lies somewhere on the way."""

import gymnasium
import numpy as np
from gymnasium import spaces

LEFT, RIGHT, PICK_UP = range(3)


class Corridor(gymnasium.Env):
    """`length` cells, the start on the left, the door on the right. A step costs 1, the open door
    pays 10.

    Observations: the cell, and whether the key has been picked up. Optimal return: 10 - (length -
    1) - 1, for the moves to the door and the one move that picks up the key.
    """

    def __init__(self, length=8, key=3, render_mode=None):
        self.length, self.key, self.render_mode = length, key, render_mode
        self.observation_space = spaces.MultiDiscrete([length, 2])
        self.action_space = spaces.Discrete(3)
        self.cell, self.has_key = 0, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # `self.np_random` is the only source of randomness
        self.cell, self.has_key = 0, False
        return self._observation(), {}

    def step(self, action):
        if action == PICK_UP:
            self.has_key |= self.cell == self.key
        else:
            self.cell = int(np.clip(self.cell + (1 if action == RIGHT else -1), 0, self.length - 1))
        terminated = self.cell == self.length - 1 and self.has_key
        return self._observation(), 9.0 if terminated else -1.0, terminated, False, {}

    def snapshot(self):
        return {"cell": self.cell, "has_key": self.has_key}

    def restore(self, snapshot):
        self.cell, self.has_key = snapshot["cell"], snapshot["has_key"]

    def _observation(self):
        return np.array([self.cell, self.has_key], dtype=np.int64)


gymnasium.register("Corridor-v0", entry_point=Corridor, max_episode_steps=200)
