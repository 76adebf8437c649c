"""A small environment with action masks, and its exact values.

Six rooms; from each some of three doors are open. A door that is closed cannot be taken: `step`
raises. Rooms 4 and 5 are the ends. Closed doors would pay best, so an agent that takes no notice of
the masks in its choices is stopped, and one that takes none in its targets learns other values.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.tabular_env import TabularEnv

OPEN = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)
LEADS_TO = np.array([[1, 2, 5], [0, 3, 2], [3, 0, 4], [0, 1, 5], [4, 4, 4], [5, 5, 5]])
PAYS = np.array(
    [[0.0, 1.0, 9.0], [9.0, -1.0, 0.5], [2.0, 9.0, 0.0], [9.0, 9.0, 3.0], [0.0] * 3, [0.0] * 3]
)
ENDS = (4, 5)
GAMMA = 0.5


class Doors(gymnasium.Env):
    """Starts in rooms 0 to 3 alike. Masks are int8, as gymnasium's Taxi has them; the last room's
    allows nothing.

    Args:
        shows: whether the info holds the masks.
    """

    def __init__(self, shows: bool = True) -> None:
        self.observation_space, self.action_space = spaces.Discrete(len(OPEN)), spaces.Discrete(3)
        self.shows, self.room = shows, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.room = int(self.np_random.integers(4))
        return self.room, self._info()

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if self.shows and not OPEN[self.room, action]:
            raise RuntimeError(f"door {action} of room {self.room} is closed")
        paid, self.room = float(PAYS[self.room, action]), int(LEADS_TO[self.room, action])
        return self.room, paid, self.room in ENDS, False, self._info()

    def _info(self) -> dict[str, Any]:
        return {"action_mask": OPEN[self.room].astype(np.int8)} if self.shows else {}


class DoorsTable(TabularEnv):
    """The same doors as a table whose masks are a method, as Taxi's are. A closed door ends the
    episode and pays best."""

    def __init__(self) -> None:
        transitions = np.eye(6)[LEADS_TO]
        transitions[~OPEN] = np.eye(6)[5]
        super().__init__(
            TabularMDP.from_arrays(
                transitions.reshape(18, 6),
                PAYS,
                terminal=np.arange(6) >= 4,
                initial=np.array([1, 1, 1, 1, 0, 0]) / 4,
            )
        )

    def action_mask(self, state: int) -> np.ndarray:
        """[3] int8."""
        return OPEN[state].astype(np.int8)


def exact_action_values(gamma: float = GAMMA) -> np.ndarray:
    """Q*(s, a) by value iteration over the open doors: [6, 3], -∞ for closed ones."""
    value = np.zeros(len(OPEN))
    for _ in range(200):  # 0.5^200 of the largest value is below float64's smallest step
        found = np.where(OPEN, PAYS + gamma * value[LEADS_TO], -np.inf)
        value = np.where(OPEN.any(axis=1), found.max(axis=1), 0.0)
    return found
