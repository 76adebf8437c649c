"""The short corridor: three states that look alike, so that the best policy is stochastic, with
unequal probabilities."""

from __future__ import annotations

import math

import numpy as np

from rlbook.envs.gridworlds.grids import Grid, parse_grid, shade
from rlbook.envs.option_checks import check_flag
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

LEFT, RIGHT = 0, 1
GOAL_STATE = 3
REVERSED = 1
"""The state in which the actions are swapped."""


class ShortCorridor(TabularEnv):
    """
    ## Description
    An agent has to walk from the left end of a corridor to `G`, three steps to the right. In the
    second place its actions are exchanged: left goes right and right goes left. All places look
    alike, so it cannot know where it is, and any policy that always does the same never arrives.

    ```
    S..G
    ```

    ## Action Space
    `Discrete(2)`: 0 left, 1 right, the other way round in the second place. Left of the start there
    is a wall: the agent stays.

    ## Observation Space
    `Discrete(1)`: always 0. With `observable`, `Discrete(4)`: the place, 0 to 3.

    ## Rewards
    -1 a step.

    ## Starting State
    The left end, state 0.

    ## Episode End
    Termination: the agent reaches `G`, state 3. Truncation: after 1000 steps.

    ## Arguments
    - `observable`: whether the agent sees where it is.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    γ = 1. A policy that goes right with probability p has the value (2p - 4) / (p (1 - p)). The
    best p is 2 - √2 = 0.585786, its value -(6 + 4√2) = -11.656854. Always acting greedily but with
    ε = 0.1, it is -44.2105 with right as the greedy action and -82.1053 with left. With
    `observable`, right, left, right is best, and V*(start) = -3.

    Source: Sutton & Barto 2018, example 13.1.

    ## Version History
    - v0: first version.
    """

    action_names = ("left", "right")

    def __init__(self, observable: bool = False, render_mode: str | None = None) -> None:
        check_flag("observable", observable)
        self.optimal_return = -3.0 if observable else -(6.0 + 4.0 * math.sqrt(2.0))
        views = None if observable else np.zeros(GOAL_STATE + 1, dtype=np.int64)
        super().__init__(
            short_corridor_model(observable), views, short_corridor_grid(), render_mode
        )


class ShortCorridorVector(TabularVectorEnv):
    """N corridors in parallel; see `ShortCorridor`."""

    single = ShortCorridor


def short_corridor_model(observable: bool) -> TabularMDP:
    """The model over places; `observable` says whether the agent can tell them apart."""
    state, action = (index.ravel() for index in np.indices((GOAL_STATE + 1, 2)))
    right = (action == RIGHT) != (state == REVERSED)
    over = state == GOAL_STATE
    successor = np.where(over, state, np.maximum(state + np.where(right, 1, -1), 0))
    entries = Entries(
        state,
        action,
        successor,
        np.ones(len(state)),
        np.where(over, 0.0, -1.0),
        successor == GOAL_STATE,
    )
    return from_entries(
        entries, GOAL_STATE + 1, 2, initial=np.arange(GOAL_STATE + 1) == 0, observable=observable
    )


def short_corridor_grid() -> Grid:
    """The map, with the state of the swapped actions in blue."""
    marks = parse_grid("S..G")
    return Grid(
        marks, shade((np.arange(marks.size) == REVERSED).astype(float).reshape(marks.shape))
    )
