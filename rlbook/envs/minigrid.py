"""MiniGrid's and BabyAI's environments, with observations suited to a network. Needs `pip install
"rlbook[minigrid]"`.

The agent sees the 7 x 7 cells before it, each as three numbers: which kind of thing, of which
colour, in which state. The text of the mission is left out, and so is the direction that the agent
looks in, since what it sees turns with it.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray


def is_raw(env: gymnasium.Env) -> bool:
    """Whether an environment's observations are MiniGrid's dictionary of image, direction and
    mission."""
    return (
        isinstance(env.observation_space, spaces.Dict) and "image" in env.observation_space.spaces
    )


class Symbols(gymnasium.ObservationWrapper, RecordConstructorArgs):
    """The three integers of each cell, unchanged: uint8 [7, 7, 3]. Equivalent to MiniGrid's
    `ImgObsWrapper`."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        assert isinstance(env.observation_space, spaces.Dict)
        self.observation_space = env.observation_space["image"]

    def observation(self, observation: dict[str, Any]) -> NDArray[np.uint8]:
        return observation["image"]


class Planes(gymnasium.ObservationWrapper, RecordConstructorArgs):
    """One-hot planes for objects, colours and states: [7, 7, 20]. The integers are categories, so
    their magnitudes mean nothing."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        assert isinstance(env.observation_space, spaces.Dict)
        from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX  # type: ignore[import-not-found]

        self.counts = tuple(map(len, (OBJECT_TO_IDX, COLOR_TO_IDX, STATE_TO_IDX)))
        shape = env.observation_space["image"].shape
        assert shape is not None
        self.observation_space = spaces.Box(0, 1, (*shape[:2], sum(self.counts)), np.bool_)  # type: ignore[call-overload]

    def observation(self, observation: dict[str, Any]) -> NDArray[np.bool_]:
        image = observation["image"]
        return np.concatenate(
            [np.eye(count, dtype=bool)[image[..., i]] for i, count in enumerate(self.counts)],
            axis=-1,
        )
