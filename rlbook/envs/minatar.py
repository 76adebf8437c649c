"""MinAtar's games, unchanged except that they can be saved and restored within an episode.

Five games on 10 x 10 cells, shown as boolean planes [10, 10, C], one for each kind of thing. With
probability 0.1 an action is the one before it once more. Source: Young and Tian 2019,
arXiv:1903.03176. Needs `pip install "rlbook[minatar]"`.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium

try:
    from minatar.gym import BaseEnv  # type: ignore[import-not-found]
except ImportError:  # nothing is made of it then; see `rlbook.envs.extras`
    BaseEnv = gymnasium.Env

CONSTANT = ("random", "channels", "action_map")
"""The attributes of a game that never change, or are saved separately."""


class Game(BaseEnv):  # type: ignore[misc]
    """A MinAtar game, selected by `game`. Returns of the random policy are small; the optimal
    returns are unknown."""

    def snapshot(self) -> dict[str, Any]:
        """All state needed to continue: the board, the previous action and the generator."""
        board = {
            name: copy.deepcopy(value)
            for name, value in vars(self.game.env).items()
            if name not in CONSTANT
        }
        _, keys, position, has_gauss, gauss = self.game.random.get_state()
        generator = {"keys": keys, "position": position, "has_gauss": has_gauss, "gauss": gauss}
        return {"board": board, "last_action": self.game.last_action, "generator": generator}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`. Raises ValueError if it is not a snapshot of this game."""
        board, generator = snapshot["board"], snapshot["generator"]
        if board.keys() != {name for name in vars(self.game.env) if name not in CONSTANT}:
            raise ValueError("a snapshot's board must be one of the same game.")
        vars(self.game.env).update(copy.deepcopy(board))
        self.game.last_action = snapshot["last_action"]
        self.game.random.set_state(
            ("MT19937", *(generator[name] for name in ("keys", "position", "has_gauss", "gauss")))
        )
        self.game.env.random = self.game.random
