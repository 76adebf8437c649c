"""A gridworld with a wind that displaces the agent, on which SARSA learns even before the first
episode has ended."""

from __future__ import annotations

import numpy as np

from rlbook.envs.gridworlds.grids import Grid, shade
from rlbook.envs.gridworlds.layouts import ACTION_NAMES, FREE, GOAL, MOVES, START
from rlbook.envs.option_checks import check_choice, check_flag
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

ROWS, COLUMNS = 7, 10
START_STATE, GOAL_STATE = 3 * COLUMNS + 0, 3 * COLUMNS + 7
WIND = np.array([0, 0, 0, 1, 1, 1, 2, 2, 1, 0])
"""[columns]: the number of cells by which the wind displaces the agent upwards."""

KING = (*MOVES, (-1, -1), (-1, 1), (1, -1), (1, 1))
KING_NAMES = (*ACTION_NAMES, "up left", "up right", "down left", "down right")
MOVE_SETS = {"four": MOVES, "king": KING, "king+stay": (*KING, (0, 0))}
MOVE_NAMES = {"four": ACTION_NAMES, "king": KING_NAMES, "king+stay": (*KING_NAMES, "stay")}


class WindyGridWorld(TabularEnv):
    """
    ## Description
    An agent has to cross a grid from `S` to `G`. In the middle columns a wind blows from below: it
    carries the agent up by as many cells as the column it leaves has strength, on top of its move.
    The edges of the grid hold it.

    ```
    ..........
    ..........
    ..........
    S......G..
    ..........
    ..........
    ..........
    0001112210  strength of the wind
    ```

    ## Action Space
    | `moves` | space | what it is |
    |---|---|---|
    | `"four"` | `Discrete(4)` | 0 up, 1 down, 2 left, 3 right |
    | `"king"` | `Discrete(8)` | also 4 up left, 5 up right, 6 down left, 7 down right |
    | `"king+stay"` | `Discrete(9)` | also 8 stay, so that only the wind moves the agent |

    With `stochastic`, the wind in a column that has any is weaker by 1, as given, or stronger by 1,
    with probability 1/3 each.

    ## Observation Space
    `Discrete(70)`: the cell's number, `row * 10 + column`.

    ## Rewards
    -1 a step.

    ## Starting State
    Always `S`, state 30.

    ## Episode End
    Termination: the agent stands on `G`, state 37, after the wind. Truncation: after 1000 steps.

    ## Arguments
    - `moves`: `"four"`, `"king"` or `"king+stay"`.
    - `stochastic`: whether the wind varies.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    The shortest path takes 15 steps with `"four"`, 7 with `"king"` and 7 with `"king+stay"`: for γ =
    1, V*(S) is -15, -7 and -7. With `stochastic` it is -20.6283, -10.9646 and -10.9646: staying is
    of no use there either.

    Source: Sutton & Barto 2018, example 6.5, exercises 6.9 and 6.10. The agent is moved by its
    action and the wind together, and what would lie beyond the edge is cut off after that.

    ## Version History
    - v0: first version.
    """

    def __init__(
        self, moves: str = "four", stochastic: bool = False, render_mode: str | None = None
    ) -> None:
        check_choice("moves", moves, MOVE_SETS)
        check_flag("stochastic", stochastic)
        self.action_names = MOVE_NAMES[moves]
        super().__init__(
            windy_model(np.array(MOVE_SETS[moves]), stochastic),
            grid=windy_grid(),
            render_mode=render_mode,
        )


class WindyGridWorldVector(TabularVectorEnv):
    """N windy gridworlds in parallel; see `WindyGridWorld`."""

    single = WindyGridWorld


def windy_model(moves: np.ndarray, stochastic: bool) -> TabularMDP:
    """The model for these moves [A, 2], (row, column) each; a stochastic wind's outcomes are in the
    order weaker, nominal, stronger."""
    num_states, num_actions = ROWS * COLUMNS, len(moves)
    change = np.array([-1, 0, 1] if stochastic else [0])
    state, action, gust = (
        index.ravel() for index in np.indices((num_states, num_actions, len(change)))
    )
    calm = WIND[state % COLUMNS] == 0
    here = ~calm | (change[gust] == 0)  # where no wind blows, it does not vary
    state, action, gust, calm = state[here], action[here], gust[here], calm[here]
    down, right = moves[action].T
    row = np.clip(state // COLUMNS + down - WIND[state % COLUMNS] - change[gust], 0, ROWS - 1)
    successor = row * COLUMNS + np.clip(state % COLUMNS + right, 0, COLUMNS - 1)
    over = state == GOAL_STATE
    successor[over] = GOAL_STATE
    probability = np.where(calm, 1.0, 1.0 / len(change))
    entries = Entries(
        state, action, successor, probability, np.where(over, 0.0, -1.0), successor == GOAL_STATE
    )
    return from_entries(
        entries, num_states, num_actions, initial=np.arange(num_states) == START_STATE
    )


def windy_grid() -> Grid:
    """The map, with columns shaded bluer for stronger wind."""
    marks = np.full((ROWS, COLUMNS), FREE[0])
    marks.flat[START_STATE], marks.flat[GOAL_STATE] = START, GOAL
    ground = np.tile(shade(WIND / WIND.max()), (ROWS, 1, 1))
    return Grid(marks, ground, footer="".join(map(str, WIND)) + "  strength of the wind")
