"""The deep sea: a treasure that one path of 2ⁿ leads to, against a small cost at each step of it."""

from __future__ import annotations

import numpy as np

from rlbook.envs.option_checks import check_integer, is_integer
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

TREASURE, COST = 1.0, 0.01
"""Rewards: of the treasure, and the cost of a whole path to the right."""


class DeepSea(TabularEnv):
    """
    ## Description
    A diver sinks through `size` × `size` cells, one row a step, and at each step moves a column to
    the left or to the right. The treasure lies in the right-hand corner at the bottom: only the
    path that goes right at every step comes there, and going right costs a little. Which of the two
    actions goes right differs from cell to cell, as `seed` decides, so that no habit helps.

    ```
    S....
    .....
    .....
    .....
    ....G
    ```

    ## Action Space
    `Discrete(2)`: one goes left, the other right. At the edge the diver sinks straight down.

    ## Observation Space
    `Discrete(size * size + 1)`: the cell, `row * size + column`; the last one is the bottom, where
    the episode is over.

    ## Rewards
    -0.01 / `size` for going right, and +1 for going right in the right-hand corner at the bottom.

    ## Starting State
    The left-hand corner at the top, state 0.

    ## Episode End
    Termination: after `size` steps, at the bottom.

    ## Arguments
    - `size`: rows and columns, n, at least 1.
    - `seed`: draws which action goes right in each cell. None: action 1 everywhere.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    γ = 1. Always right earns 0.99 = 1 - 0.01, the best there is; the next best earns 0, always
    left. A uniformly random policy finds the treasure in 1 of 2ⁿ episodes, on average after 2ⁿ of
    them: with 10 rows 1,024, with 20 rows 1,048,576.

    Source: Osband et al. 2020, arXiv:1908.03568 (bsuite), appendix A.6, deep sea.

    ## Version History
    - v0: first version.
    """

    action_names = ("0", "1")

    def __init__(
        self, size: int = 10, seed: int | None = 0, render_mode: str | None = None
    ) -> None:
        check_integer("size", size)
        if seed is not None and not is_integer(seed, 0):
            raise ValueError(f"seed must be None or an integer of at least 0, got {seed!r}.")
        self.size = int(size)
        self.optimal_return = TREASURE - COST
        self.right = right_actions(self.size, seed)
        super().__init__(deep_sea_model(self.size, self.right), render_mode=render_mode)

    def draw_text(self, state: int) -> str:
        """The map, with the diver as `@`; at the bottom there is none."""
        cells = np.full(self.size**2, ".")
        cells[0], cells[-1] = "S", "G"
        if state < len(cells):
            cells[state] = "@"
        return "\n".join("".join(row) for row in cells.reshape(self.size, self.size))


class DeepSeaVector(TabularVectorEnv):
    """N deep seas in parallel; see `DeepSea`."""

    single = DeepSea


def right_actions(size: int, seed: int | None) -> np.ndarray:
    """The action that goes right in each cell, [size * size]; 1 everywhere if `seed` is None."""
    if seed is None:
        return np.ones(size**2, dtype=np.int64)
    return np.random.default_rng(seed).integers(2, size=size**2)


def deep_sea_model(size: int, right: np.ndarray) -> TabularMDP:
    """The model of all cells and the bottom; `right` [size * size] are the actions that go
    right."""
    bottom = size**2
    state, action = (index.ravel() for index in np.indices((bottom + 1, 2)))
    row, column = np.divmod(np.minimum(state, bottom - 1), size)
    goes_right = action == right[np.minimum(state, bottom - 1)]
    beside = np.clip(column + np.where(goes_right, 1, -1), 0, size - 1)
    over, last = state == bottom, row == size - 1
    successor = np.where(over | last, bottom, (row + 1) * size + beside)
    treasure = TREASURE * (last & (column == size - 1) & goes_right)
    reward = np.where(over, 0.0, treasure - COST / size * goes_right)
    entries = Entries(state, action, successor, np.ones(len(state)), reward, successor == bottom)
    return from_entries(entries, bottom + 1, 2, initial=np.arange(bottom + 1) == 0)
