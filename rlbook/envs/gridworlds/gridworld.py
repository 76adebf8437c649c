"""The two gridworlds with which Sutton and Barto introduce value functions: 4 × 4 with two terminal
corners, and 5 × 5 with two teleports."""

from __future__ import annotations

import numpy as np

from rlbook.envs.gridworlds.grids import Grid, parse_grid
from rlbook.envs.gridworlds.layouts import ACTION_NAMES, MOVES
from rlbook.envs.option_checks import check_choice
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

LAYOUTS = {"4x4": "T... .... .... ...T", "5x5": ".a.b. ..... ...y. ..... .x..."}
TELEPORTS = (("a", "x", 10.0), ("b", "y", 5.0))
"""From, to, and the reward."""


class GridWorld(TabularEnv):
    """
    ## Description
    An agent moves on a small open grid, one cell a step; off the grid there is no way, and it stays
    where it is. `"4x4"` is example 4.1 of Sutton & Barto 2018, where it has to leave by one of two
    corners, `T`. `"5x5"` is example 3.5, which goes on forever: from cell `a` every action leads
    to `x`, from `b` to `y`, and both pay.

    ```
    "4x4"   T...      "5x5"   .a.b.
            ....              .....
            ....              ...y.
            ...T              .....
                              .x...
    ```

    ## Action Space
    `Discrete(4)`: 0 up, 1 down, 2 left, 3 right.

    ## Observation Space
    `Discrete(16)` or `Discrete(25)`: the cell's number, `row * columns + column`.

    ## Rewards
    `"4x4"`: -1 a step. `"5x5"`: +10 for any action in `a`, +5 for any in `b`, -1 for a step against
    the edge, which leads nowhere, and 0 for any other.

    ## Starting State
    Any cell with equal probability, the corners `T` excepted.

    ## Episode End
    Termination: in `"4x4"`, entering one of the corners `T`; in `"5x5"`, never. Truncation: after
    100 steps.

    ## Arguments
    - `layout`: `"4x4"` or `"5x5"`.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    `"4x4"`, γ = 1: V* is minus the number of steps to the nearer corner, and -2 on average over the
    starts. Uniformly random moves have the values (figure 4.1)

    ```
      0 -14 -20 -22
    -14 -18 -20 -20
    -20 -20 -18 -14
    -22 -20 -14   0
    ```

    `"5x5"`, γ = 0.9: the first rows of V for uniformly random moves (figure 3.2) and of V* (figure
    3.5) are

    ```
     3.3090  8.7893  4.4276  5.3224  1.4922
    21.9775 24.4194 21.9775 19.4194 17.4775
    ```

    ## Version History
    - v0: first version.
    """

    action_names = ACTION_NAMES

    def __init__(self, layout: str = "4x4", render_mode: str | None = None) -> None:
        check_choice("layout", layout, LAYOUTS)
        marks = parse_grid(LAYOUTS[layout])
        super().__init__(
            gridworld_model(marks, step=-1.0 if layout == "4x4" else 0.0),
            grid=Grid(marks),
            render_mode=render_mode,
        )


class GridWorldVector(TabularVectorEnv):
    """N gridworlds in parallel; see `GridWorld`."""

    single = GridWorld


def gridworld_model(marks: np.ndarray, step: float) -> TabularMDP:
    """The model of a gridworld with terminal cells `T` and teleports.

    Args:
        marks: [rows, columns] of one character each.
        step: what a step pays, in reward units; against the edge it pays -1.
    """
    rows, columns = marks.shape
    cells = marks.ravel()
    state, action = (index.ravel() for index in np.indices((marks.size, len(MOVES))))
    down, right = np.array(MOVES)[action].T
    row, column = state // columns + down, state % columns + right
    successor = np.clip(row, 0, rows - 1) * columns + np.clip(column, 0, columns - 1)
    reward = np.where(successor == state, -1.0, step)
    for origin, destination, paid in TELEPORTS:
        away = cells[state] == origin
        if away.any():
            successor[away], reward[away] = np.flatnonzero(cells == destination)[0], paid
    over = cells == "T"
    successor[over[state]], reward[over[state]] = state[over[state]], 0.0
    entries = Entries(state, action, successor, np.ones(len(state)), reward, over[successor])
    return from_entries(entries, marks.size, len(MOVES), initial=~over / np.count_nonzero(~over))
