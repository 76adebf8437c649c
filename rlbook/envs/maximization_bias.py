"""Two states that show maximisation bias: the largest of many noisy estimates is too high on
average."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlbook.envs.rendering import COLOURS, draw_cells
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

START, NOISY, END = range(3)
MEAN, STD = -0.1, 1.0
"""The reward of any action in B: mean and standard deviation, in reward units."""


class MaximizationBias(TabularEnv):
    """
    ## Description
    From A an agent goes right, where the episode ends, or left to B, where each of many actions
    ends it and pays a noisy reward, on average less than nothing. An agent that takes the largest of
    B's estimates for its value, as Q-learning does, goes left too often.

    ```
    [B]  A   T
    ```

    ## Action Space
    `Discrete(actions)`. In A the lower half of the actions goes left, the upper half right, so that
    a random action goes left half of the time, as in the book, where A has one action to either
    side. In B all do the same.

    ## Observation Space
    `Discrete(3)`: 0 is A, 1 is B, 2 the end.

    ## Rewards
    0 for leaving A, and N(-0.1, 1) for any action in B.

    ## Starting State
    Always A.

    ## Episode End
    Termination: on the right of A, or after an action in B: an episode has at most 2 steps. There
    is no truncation.

    ## Arguments
    - `actions`: number of actions, even, at least 2.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    Always right: for γ = 1, V*(A) = 0 and V*(B) = -0.1; an ε-greedy agent with ε = 0.1 that knows
    it goes left in 5 % of its episodes. Uniformly random actions have V(A) = -0.05.

    Source: Sutton & Barto 2018, example 6.7. The book has 1 + 1 actions in A and leaves their
    number in B open.

    ## Version History
    - v0: first version.
    """

    def __init__(self, actions: int = 10, render_mode: str | None = None) -> None:
        if (
            isinstance(actions, bool)
            or not isinstance(actions, int | np.integer)
            or actions < 2
            or actions % 2
        ):
            raise ValueError(f"actions must be an even integer of at least 2, got {actions!r}.")
        super().__init__(maximization_bias_model(int(actions)), render_mode=render_mode)

    def draw_text(self, state: int) -> str:
        """The three states in a row, with the agent's in brackets."""
        return "".join(
            f"[{name}]" if place == state else f" {name} "
            for place, name in ((NOISY, "B"), (START, "A"), (END, "T"))
        )

    def draw_pixels(self, state: int) -> np.ndarray:
        """B, A and the end side by side, as an image [H, W, 3] uint8."""
        ground: Any = [[COLOURS["S"], COLOURS["."], COLOURS["G"]]]
        return draw_cells(np.array(ground, dtype=np.uint8), [1, 0, 2][state], lines=True)


class MaximizationBiasVector(TabularVectorEnv):
    """N copies in parallel; see `MaximizationBias`."""

    single = MaximizationBias


def maximization_bias_model(actions: int) -> TabularMDP:
    """The model; the reward of B's actions is noisy."""
    state, action = (index.ravel() for index in np.indices((3, actions)))
    left = (state == START) & (action < actions // 2)
    noisy = state == NOISY
    entries = Entries(
        state,
        action,
        np.where(left, NOISY, END),
        np.ones(len(state)),
        np.where(noisy, MEAN, 0.0),
        ~left,
        np.where(noisy, STD, 0.0),
    )
    return from_entries(entries, 3, actions, initial=[1.0, 0.0, 0.0])
