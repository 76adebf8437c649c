"""The maze's dynamics as arrays. `step`, planning and the vector form all read these, so they
cannot disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlbook.envs.gridworlds.layouts import (
    DEFAULT_LAYOUT,
    LARGEST_SIZE,
    MOVES,
    Layout,
    parse_layout,
    perfect_maze,
)
from rlbook.envs.option_checks import check_choice, check_probability, is_integer

NUM_ACTIONS = 4
PERPENDICULAR = np.array([[2, 3], [2, 3], [0, 1], [0, 1]])
"""[A, 2]: the directions of a slip: sideways, never backwards."""

OBSERVATIONS = ("index", "coordinates", "onehot", "local")


class RewardScheme(NamedTuple):
    """The reward of a move, in reward units."""

    step: float  # into a free cell
    bump: float  # into a wall or off the map
    goal: float  # into the goal


REWARDS = {
    "standard": RewardScheme(step=-1.0, bump=-5.0, goal=10.0),
    "shaped": RewardScheme(step=-0.1, bump=-0.1 - 1.0, goal=-0.1 + 10.0),
}
"""In "standard" the reward of a bump or the goal replaces the step's, in "shaped" it is added to
it."""


@dataclass(frozen=True)
class MazeTables:
    """The maze's dynamics for S states and A actions; with slip, the action is replaced before the
    look-up."""

    layout: Layout
    slip: float  # probability of moving sideways instead, in [0, 1]
    next_state: np.ndarray  # [S, A] int
    reward: np.ndarray  # [S, A] float, in reward units
    terminal: np.ndarray  # [S] bool; the goal, and the walls, which nothing reaches
    observation_space: spaces.Space
    # [S, ...] int, what each state looks like; None for "index" and "onehot"
    views: np.ndarray | None

    def observe(self, states: np.ndarray) -> np.ndarray:
        """The observations of states [N]: [N] or [N, ...], always a new array."""
        if self.views is not None:
            return self.views[states]
        if isinstance(self.observation_space, spaces.Discrete):
            return states.copy()
        onehot = np.zeros((len(states), self.layout.num_states), dtype=np.float32)
        onehot[np.arange(len(states)), states] = 1.0
        return onehot


def maze_tables(
    layout: str | None,
    size: int | None,
    seed: int | None,
    rewards: str,
    slip: float,
    observation: str,
) -> MazeTables:
    """Checks the maze's options and builds its tables; see `Maze` for their meaning.

    Raises:
        ValueError: one sentence that names the option, its value and what is allowed.
    """
    check_choice("rewards", rewards, REWARDS)
    check_choice("observation", observation, OBSERVATIONS)
    check_probability("slip", slip)
    chosen = _choose_layout(layout, size, seed)
    next_state, reward = _moves(chosen, REWARDS[rewards])
    terminal = chosen.walls.ravel().copy()
    terminal[chosen.goal] = True
    next_state[terminal] = np.flatnonzero(terminal)[:, None]
    reward[terminal] = 0.0
    space, views = _observation(chosen, observation)
    return MazeTables(chosen, float(slip), next_state, reward, terminal, space, views)


def apply_slip(
    action: int | NDArray[np.integer], uniform: float | NDArray[np.floating], slip: float
) -> np.ndarray:
    """The directions actually taken, [N] or a scalar: perpendicular to the action where `uniform`,
    drawn from [0, 1), is below `slip`."""
    sideways = PERPENDICULAR[action, np.asarray(uniform >= slip / 2, dtype=np.int64)]
    return np.where(uniform >= slip, action, sideways)


def _choose_layout(layout: str | None, size: int | None, seed: int | None) -> Layout:
    if size is None:
        if seed is not None:
            raise ValueError(
                f"seed={seed!r} chooses a random maze and needs size, the number of rooms along a"
                " side."
            )
        return parse_layout(DEFAULT_LAYOUT if layout is None else layout)
    if layout is not None:
        raise ValueError(f"size={size!r} asks for a random maze, so layout must be left out.")
    if not is_integer(size, 2, LARGEST_SIZE):
        raise ValueError(f"size must be an integer from 2 to {LARGEST_SIZE}, got {size!r}.")
    if seed is not None and not is_integer(seed, 0):
        raise ValueError(f"seed must be a non-negative integer, got {seed!r}.")
    return parse_layout(perfect_maze(int(size), int(seed or 0)))


def _moves(layout: Layout, pays: RewardScheme) -> tuple[np.ndarray, np.ndarray]:
    """next_state and reward [S, A], with the goal and the walls treated like any other cell."""
    row, column = np.divmod(np.arange(layout.num_states), layout.columns)
    next_state = np.empty((layout.num_states, NUM_ACTIONS), dtype=np.int64)
    reward = np.empty((layout.num_states, NUM_ACTIONS))
    walled = np.pad(layout.walls, 1, constant_values=True)
    for action, (down, right) in enumerate(MOVES):
        bump = walled[row + 1 + down, column + 1 + right]
        here = np.arange(layout.num_states)
        next_state[:, action] = np.where(bump, here, here + down * layout.columns + right)
        enters_goal = next_state[:, action] == layout.goal
        reward[:, action] = np.select([bump, enters_goal], [pays.bump, pays.goal], pays.step)
    return next_state, reward


def _observation(layout: Layout, kind: str) -> tuple[spaces.Space, np.ndarray | None]:
    """The observation space, and a table of each state's observation if that table is small."""
    if kind == "index":
        return spaces.Discrete(layout.num_states), None
    if kind == "onehot":
        return spaces.Box(0.0, 1.0, (layout.num_states,), np.float32), None
    if kind == "coordinates":
        coordinates = np.stack(np.divmod(np.arange(layout.num_states), layout.columns), axis=1)
        return spaces.MultiDiscrete([layout.rows, layout.columns]), coordinates
    return spaces.MultiDiscrete([3] * 9), _surroundings(layout)


def _surroundings(layout: Layout) -> np.ndarray:
    """The 3 × 3 neighbourhood of each state, row by row, [S, 9]: 0 free, 1 wall or outside, 2
    goal."""
    cells = layout.walls.astype(np.int64)
    cells.flat[layout.goal] = 2
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(cells, 1, constant_values=1), (3, 3))
    return windows.reshape(layout.num_states, 9).copy()
