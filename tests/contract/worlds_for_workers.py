"""Environments that other processes step: with a dictionary to see and numbers to tell, and some
that fail."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Signs(gymnasium.Env):
    """Reward 1 for the action that the sign names; ends by chance (one step in ten), which its own
    generator decides.

    Args:
        seconds: that a step sleeps.
        at: the step of an episode in which it fails; 0 for none.
        how: "raise", "own" (an exception of its own), "exit", "kill" or "bad" (a reward that is no
            number).
    """

    observation_space = spaces.Dict(
        {"sign": spaces.Discrete(3, start=1), "noise": spaces.Box(-1.0, 1.0, (2,), np.float64)}
    )
    action_space = spaces.Discrete(3)

    def __init__(self, seconds: float = 0.0, at: int = 0, how: str = "raise") -> None:
        self.seconds, self.at, self.how = seconds, at, how

    def _seen(self) -> dict[str, Any]:
        self.sign = int(self.np_random.integers(1, 4))
        return {"sign": self.sign, "noise": self.np_random.uniform(-1, 1, 2)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        self.steps += 1
        if self.steps == self.at:
            return self._fail()
        right = float(action == self.sign - 1)
        numbers = {"metrics": {"right": right, **({"late": 1.0} if self.steps > 5 else {})}}
        over = bool(self.np_random.random() < 0.1)
        return self._seen(), right, over, False, numbers

    def _fail(self) -> Any:
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "exit":
            sys.exit(7)
        if self.how == "own":
            raise Unsendable("north", "south")
        if self.how == "bad":
            return self._seen(), "much", False, False, {}
        raise ValueError("the sign fell down")


class Unsendable(Exception):
    """Cannot be made again from its text."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"neither {one} nor {other}")


gymnasium.register("Signs-v0", entry_point=Signs, max_episode_steps=15)
