"""Catch: a ball falls through pixels, and a paddle of one pixel must be below it in the end."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlbook.envs.gridworlds.layouts import WALL
from rlbook.envs.option_checks import check_flag
from rlbook.envs.rendering import COLOURS, FREE_COLOUR, draw_cells
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

ROWS, COLUMNS = 10, 5
NUM_STATES = ROWS * COLUMNS * COLUMNS
WHITE = 255
"""The value of a pixel of the ball or the paddle."""
STATE_SHAPE = (ROWS, COLUMNS, COLUMNS)
"""A state's row of the ball, column of the ball and column of the paddle, in the order of its
index."""


class Catch(TabularEnv):
    """
    ## Description
    A ball falls from the top of 10 x 5 pixels, one row a step, and a paddle of one pixel moves
    along the bottom. The episode ends after nine steps, when the ball has come down: the paddle is
    below it, or not.

    ```
    ..O..
    .....
      ⋮
    ...#.
    ```

    ## Action Space
    `Discrete(3)`: 0 left, 1 stay, 2 right. At a wall the paddle stays.

    ## Observation Space
    `Box(0, 255, (10, 5, 1), uint8)`: the pixels, 255 at the ball and at the paddle, elsewhere 0.
    With `pixels=False`, `Discrete(250)`: the state.

    ## Rewards
    +1 with the last step if the ball is caught, -1 if not; otherwise 0.

    ## Starting State
    The ball at the top, in each of the five columns with probability 1/5; the paddle in the middle.

    ## Episode End
    Termination: the ball has come down. It always takes nine steps.

    ## Arguments
    - `pixels`: whether the agent sees pixels.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    250 states, of which 25 are the end. The optimal return is 1: the ball is two columns away at
    most, and there are nine steps. A single frame shows the state, so a stack adds nothing. A
    paddle that moves at random is where the ball comes down with probability 1/5, a return of -3/5.

    Source: Osband et al. 2020, arXiv:1908.03568 (bsuite), "catch", after Mnih et al. 2014,
    arXiv:1406.6247. Difference: bytes instead of floats, so that it is an image.

    ## Version History
    - v0: first version.
    """

    action_names = ("left", "stay", "right")
    optimal_return = 1.0

    def __init__(self, pixels: bool = True, render_mode: str | None = None) -> None:
        check_flag("pixels", pixels)
        super().__init__(catch_model(observable=not pixels), render_mode=render_mode)
        self.frames = catch_frames() if pixels else None
        if pixels:
            self.observation_space = spaces.Box(0, WHITE, (ROWS, COLUMNS, 1), np.uint8)  # type: ignore[assignment]

    def _observe(self) -> object:
        if self.frames is None:
            return super()._observe()
        if self.render_mode == "human":
            self.render()
        return self.frames[self._state].copy()

    def draw_text(self, state: int) -> str:
        """Ten lines, with the ball as `O` and the paddle as `#`."""
        row, ball, paddle = (int(index) for index in np.unravel_index(state, STATE_SHAPE))
        cells = np.full((ROWS, COLUMNS), ".")
        cells[-1, paddle] = "#"
        cells[row, ball] = "O"
        return "\n".join("".join(line) for line in cells.tolist())

    def draw_pixels(self, state: int) -> np.ndarray:
        """An image [H, W, 3] uint8: the ball as a disc, the paddle as a dark cell."""
        row, ball, paddle = (int(index) for index in np.unravel_index(state, STATE_SHAPE))
        colours = np.full((ROWS, COLUMNS, 3), FREE_COLOUR, dtype=np.uint8)
        colours[-1, paddle] = COLOURS[WALL]
        return draw_cells(colours, row * COLUMNS + ball, lines=True)


class CatchVector(TabularVectorEnv):
    """N games in parallel; see `Catch`."""

    single = Catch
    env: Catch

    def _observe(self) -> np.ndarray:
        frames = self.env.frames
        if frames is None:
            return super()._observe()
        if self.render_mode == "human":
            self.render()
        return frames[self._state]


def catch_frames() -> np.ndarray:
    """The pixels of every state, [S, 10, 5, 1] uint8."""
    row, ball, paddle = np.unravel_index(np.arange(NUM_STATES), STATE_SHAPE)
    frames = np.zeros((NUM_STATES, ROWS, COLUMNS, 1), dtype=np.uint8)
    states = np.arange(NUM_STATES)
    frames[states, row, ball] = frames[states, -1, paddle] = WHITE
    return frames


def catch_model(*, observable: bool) -> TabularMDP:
    """The model: the paddle moves, the ball falls, and the positions at the bottom decide the
    reward."""
    state, action = (index.ravel() for index in np.indices((NUM_STATES, 3)))
    row, ball, paddle = np.unravel_index(state, STATE_SHAPE)
    over = row == ROWS - 1
    moved = np.clip(paddle + action - 1, 0, COLUMNS - 1)
    falls = np.ravel_multi_index((np.minimum(row + 1, ROWS - 1), ball, moved), STATE_SHAPE)
    lands = row == ROWS - 2
    entries = Entries(
        state,
        action,
        np.where(over, state, falls),
        np.ones(len(state)),
        np.where(lands, np.where(ball == moved, 1.0, -1.0), 0.0),
        lands | over,
    )
    initial = np.zeros(STATE_SHAPE)
    initial[0, :, COLUMNS // 2] = 1 / COLUMNS
    return from_entries(entries, NUM_STATES, 3, initial=initial.reshape(-1), observable=observable)
