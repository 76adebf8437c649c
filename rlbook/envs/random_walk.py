"""The random walk along a line: the prediction problem used to compare every method in the book."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlbook.envs.option_checks import check_integer, check_number
from rlbook.envs.rendering import AGENT, COLOURS, draw_cells
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

WIDTH = 40
"""The number of states per line when a walk is drawn."""


class RandomWalk(TabularEnv):
    """
    ## Description
    An agent walks along a line of `length` states, begins in the middle, and leaves at the left or
    the right end. The random walk of the book is what becomes of it when actions are chosen with
    equal probability: prediction is then a matter of evaluating that policy, and control remains
    possible.

    ```
    T..A..T
    ```

    ## Action Space
    `Discrete(2)`: 0 left, 1 right. With `step` above 1 a move goes 1, 2, ..., `step` states to that
    side, each with equal probability; what would lead beyond the end leads to the end.

    ## Observation Space
    `Discrete(length + 2)`: 0 is the left end, 1 to `length` the states from left to right,
    `length + 1` the right end.

    With `group` above 1 the states look alike in groups of that many, counted from the left: the
    agent sees 0, the number of the group from 1, or the right end after the last group. This is
    state aggregation. The states are then not observable, and planning needs them.

    ## Rewards
    `left_reward` for leaving on the left, `right_reward` for leaving on the right, 0 for any other
    step.

    ## Starting State
    The middle, state `(length + 1) // 2`.

    ## Episode End
    Termination: at either end. Truncation: after 10 000 steps.

    ## Arguments
    - `length`: number of states between the ends, at least 1.
    - `step`: longest move, in states, at least 1.
    - `left_reward`, `right_reward`: in reward units.
    - `group`: how many neighbouring states look alike, at least 1.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    For uniformly random actions, `step` 1 and γ = 1: V(s) = left + (right - left) · s / (length +
    1), which is 1/6, 2/6, 3/6, 4/6, 5/6 by default. The book's walk of 19 states is
    `length=19, left_reward=-1`, with V from -0.9 in steps of 0.1; its walk of 1000 is
    `length=1000, step=100, left_reward=-1` (`group=100` for the aggregation of figure 9.1), with
    V(1) = -0.921960, V(250) = -0.472702, V(500) = -0.000943 and V(1000) = 0.921960. V* for γ = 1 is
    the larger of the two rewards, or 0 for walking on forever if both are negative.

    Source: Sutton & Barto 2018, examples 6.2, 7.1 and 9.1.

    ## Version History
    - v0: first version.
    """

    action_names = ("left", "right")

    def __init__(
        self,
        length: int = 5,
        step: int = 1,
        left_reward: float = 0.0,
        right_reward: float = 1.0,
        group: int = 1,
        render_mode: str | None = None,
    ) -> None:
        for name, count in (("length", length), ("step", step), ("group", group)):
            check_integer(name, count)
        for name, reward in (("left_reward", left_reward), ("right_reward", right_reward)):
            check_number(name, reward)
        self.length = int(length)
        views = group_states(self.length, int(group)) if group > 1 else None
        model = random_walk_model(
            self.length,
            int(step),
            float(left_reward),
            float(right_reward),
            observable=views is None,
        )
        super().__init__(model, views=views, render_mode=render_mode)

    def draw_text(self, state: int) -> str:
        """The line of states, with its ends as `T` and the agent as `A`; long lines are wrapped."""
        cells = ["T", *"." * self.length, "T"]
        cells[state] = AGENT
        return "\n".join(
            "".join(cells[start : start + WIDTH]) for start in range(0, len(cells), WIDTH)
        )

    def draw_pixels(self, state: int) -> np.ndarray:
        """The same as an image [H, W, 3] uint8; cells beyond the right end are dark."""
        num_states = self.length + 2
        columns = min(num_states, WIDTH)
        colours = np.full((-(-num_states // columns) * columns, 3), COLOURS["#"], dtype=np.uint8)
        colours[:num_states] = COLOURS["."]
        colours[[0, num_states - 1]] = COLOURS["G"]
        return draw_cells(colours.reshape(-1, columns, 3), state, lines=True)


class RandomWalkVector(TabularVectorEnv):
    """N random walks in parallel; see `RandomWalk`."""

    single = RandomWalk


def random_walk_model(
    length: int, step: int, left_reward: float, right_reward: float, *, observable: bool = True
) -> TabularMDP:
    """The model; outcomes are ordered from the shortest to the longest move, and all moves that
    reach an end are one outcome."""
    end = length + 1
    inner = np.arange(1, end)
    # [length, 2]: longest move that stays on the line
    reach = np.minimum(step, np.stack([inner, end - inner], axis=1))
    count = reach.ravel()
    state, action = inner.repeat(2).repeat(count), np.tile([0, 1], length).repeat(count)
    distance = np.arange(len(state)) - (np.cumsum(count) - count).repeat(count) + 1
    successor = state + np.where(action == 1, distance, -distance)
    left, right = successor == 0, successor == end
    beyond = np.where(left | right, step - distance, 0)
    reward = left * left_reward + right * right_reward
    inside: tuple[Any, ...] = (state, action, successor, (1 + beyond) / step, reward, left | right)
    over: tuple[Any, ...] = (
        [0, 0, end, end],
        [0, 1, 0, 1],
        [0, 0, end, end],
        np.ones(4),
        np.zeros(4),
        np.ones(4, dtype=bool),
    )
    entries = Entries(*(np.concatenate(pair) for pair in zip(inside, over, strict=True)))
    initial = np.arange(length + 2) == (length + 1) // 2
    return from_entries(entries, length + 2, 2, initial=initial, observable=observable)


def group_states(length: int, group: int) -> np.ndarray:
    """The observation of each state, [length + 2] int, when neighbouring states are aggregated into
    groups."""
    views = np.zeros(length + 2, dtype=np.int64)
    views[1:-1] = 1 + np.arange(length) // group
    views[-1] = views[-2] + 1
    return views
