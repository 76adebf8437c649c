"""The T-maze: what the agent sees once at the beginning decides which way is right at the end, so
that only an agent with a memory can do better than chance."""

from __future__ import annotations

import numpy as np

from rlbook.envs.gridworlds.grids import MARKS
from rlbook.envs.option_checks import check_flag, check_integer
from rlbook.envs.rendering import draw_cells
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

FORWARD, UP, DOWN = range(3)
SIGN_UP, SIGN_DOWN, CORRIDOR, JUNCTION = range(4)
"""The agent's observations."""
RIGHT_ARM, WRONG_ARM, STANDING_STILL = 1.0, -1.0, -0.1
"""Rewards."""


class TMaze(TabularEnv):
    """
    ## Description
    An agent stands at the left end of a corridor, where a sign points up or down, as a coin
    decides. After `length` steps forward the corridor ends at a junction. The arm that the sign
    pointed to holds a prize, the other one a penalty. All places between look alike, and at the
    junction the sign cannot be seen any more.

    ```
           G
    S......+
           X
    ```

    ## Action Space
    `Discrete(3)`: 0 forward, 1 up, 2 down. Where there is a wall, the agent stands still.

    ## Observation Space
    `Discrete(4)`: 0 the start, with the sign up; 1 the start, with the sign down; 2 the corridor;
    3 the junction. With `observable`, `Discrete(2 * (length + 1) + 1)`: the state.

    ## Rewards
    +1 for the right arm, -1 for the wrong one, -0.1 for a step in which the agent stands still,
    otherwise 0.

    ## Starting State
    The left end; the sign points up or down with probability ½ each.

    ## Episode End
    Termination: the agent enters an arm. Truncation: after 1000 steps.

    ## Arguments
    - `length`: steps from the start to the junction, at least 1.
    - `observable`: whether the agent sees the state.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    γ = 1. With a memory the best policy earns 1. Without one, a policy sees the same at the
    junction whatever the sign was, so it takes the right arm with probability ½, and no policy
    earns more than 0. A stack of the last `length + 1` observations is as good as a memory; a
    shorter one is worth nothing.

    Source: Bakker 2001, *Reinforcement learning with long short-term memory*, NIPS 14; there the
    prize is 4, and the wrong arm costs 0.1.

    ## Version History
    - v0: first version.
    """

    action_names = ("forward", "up", "down")

    def __init__(
        self, length: int = 10, observable: bool = False, render_mode: str | None = None
    ) -> None:
        check_integer("length", length)
        check_flag("observable", observable)
        self.length = int(length)
        self.optimal_return = RIGHT_ARM
        self.state_views = t_maze_views(self.length)
        views = None if observable else self.state_views
        super().__init__(t_maze_model(self.length, observable), views, render_mode=render_mode)

    def _cells(self, state: int) -> tuple[np.ndarray, int]:
        """The map, [3, length + 1] of marks, and the cell of the agent; in an arm it is over."""
        sign, place = divmod(min(state, 2 * self.length + 1), self.length + 1)
        cells = np.full((3, self.length + 1), "#")
        cells[1] = "."
        cells[1, 0] = "S"
        cells[0, -1], cells[2, -1] = "Gx" if sign == 0 else "xG"
        return cells, self.length + 1 + place

    def draw_text(self, state: int) -> str:
        """The map as three lines, with the agent as `A`, the prize `G` and the penalty `x`."""
        cells, agent = self._cells(state)
        cells.flat[agent] = "A"
        return "\n".join("".join(row) for row in cells.tolist())

    def draw_pixels(self, state: int) -> np.ndarray:
        """The map as an image [H, W, 3] uint8."""
        cells, agent = self._cells(state)
        colours = [[MARKS[mark] for mark in row] for row in cells.tolist()]
        return draw_cells(np.array(colours, dtype=np.uint8), agent, lines=True)


class TMazeVector(TabularVectorEnv):
    """N mazes in parallel; see `TMaze`."""

    single = TMaze


def t_maze_views(length: int) -> np.ndarray:
    """What each state looks like, [S]; the last state is the end."""
    views = np.full(2 * (length + 1) + 1, CORRIDOR)
    views[[0, length + 1]] = SIGN_UP, SIGN_DOWN
    views[[length, 2 * length + 1, -1]] = JUNCTION
    return views


def t_maze_model(length: int, observable: bool) -> TabularMDP:
    """The model; state `sign * (length + 1) + place`, with the sign 0 for up, and one end."""
    places = length + 1
    end = 2 * places
    state, action = (index.ravel() for index in np.indices((end + 1, 3)))
    sign, place = state // places, state % places
    over = state == end
    at_junction = (place == length) & ~over
    arm = at_junction & (action != FORWARD)
    ahead = ~at_junction & (action == FORWARD) & ~over
    right = (action == DOWN) == (sign == 1)
    reward = np.where(
        arm, np.where(right, RIGHT_ARM, WRONG_ARM), np.where(ahead, 0.0, STANDING_STILL)
    )
    entries = Entries(
        state,
        action,
        np.where(arm, end, np.where(ahead, state + 1, state)),
        np.ones(len(state)),
        np.where(over, 0.0, reward),
        arm | over,
    )
    initial = np.zeros(end + 1)
    initial[[0, places]] = 0.5
    return from_entries(entries, end + 1, 3, initial=initial, observable=observable)
