"""Atari's games from the Arcade Learning Environment, so that they can be saved and restored within
an episode.

210 x 160 pixels in 128 colours, 60 frames a second. With probability 0.25 a frame repeats the
action of the frame before (`repeat_action_probability`). The emulator does not save which one that
was, so this chance is drawn here, from the environment's own generator; all else is ale-py's.

Source: Bellemare et al. 2013, arXiv:1207.4708; Machado et al. 2018, arXiv:1709.06009, section 5.
Needs `pip install "rlbook[atari]"`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle

from rlbook.seeding import set_rng_state

ale: Any = None
try:
    import ale_py as ale  # type: ignore[import-not-found,no-redef]
    from ale_py.env import AtariEnv  # type: ignore[import-not-found]
except ImportError:  # nothing is made of it then; see `rlbook.envs.extras`
    AtariEnv = gymnasium.Env


class StickyEmulator:
    """The emulator, in which a frame may repeat the action of the frame before.

    Args:
        emulator: ale-py's, which repeats nothing.
        env: its generator draws.
        probability: of a repetition, for each frame.
    """

    def __init__(self, emulator: Any, env: gymnasium.Env, probability: float) -> None:
        self.emulator, self.env, self.probability = emulator, env, probability
        self.last: tuple[Any, float] = ale.Action.NOOP, 1.0
        """The action of the last frame, and the joystick's position."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.emulator, name)

    def act(self, action: Any, strength: float = 1.0) -> float:
        """Advances one frame; returns its reward."""
        if self.probability == 0.0 or self.env.np_random.random() >= self.probability:
            self.last = action, strength
        return self.emulator.act(*self.last)

    def reset_game(self) -> None:
        """Starts a new game, with no previous action."""
        self.last = ale.Action.NOOP, 1.0
        self.emulator.reset_game()


class AtariGame(AtariEnv):  # type: ignore[misc]
    """A game, selected by `game`; the arguments are those of `ale_py.env.AtariEnv`. Optimal returns
    are unknown."""

    def __init__(self, game: str, *, repeat_action_probability: float = 0.25, **options: Any):
        super().__init__(game, repeat_action_probability=0.0, **options)
        EzPickle.__init__(
            self, game, repeat_action_probability=repeat_action_probability, **options
        )
        self.ale = StickyEmulator(self.ale, self, repeat_action_probability)

    def snapshot(self) -> dict[str, Any]:
        """All state needed to continue: the emulator's, the last action, and the generators."""
        action, strength = self.ale.last
        emulator = self.clone_state(include_rng=True).__getstate__()
        return {
            "emulator": np.frombuffer(emulator, dtype=np.uint8),
            "last": [int(action.value), float(strength)],
            "rng": self.np_random.bit_generator.state,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`. Raises ValueError if it is not a snapshot of such a game."""
        saved, (action, strength) = np.asarray(snapshot["emulator"]), snapshot["last"]
        try:
            self.restore_state(ale.ALEState(saved.astype(np.uint8).tobytes()))
        except (RuntimeError, SystemError, ValueError) as error:
            raise ValueError(f"the saved emulator cannot be restored ({error}).") from None
        self.ale.last = ale.Action(action), float(strength)
        set_rng_state(self.np_random, snapshot["rng"])
