"""The maze: a small gridworld that illustrates every idea of the first half of the book. For many
environments in parallel see `maze_vector`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from rlbook.envs.gridworlds.maze_tables import NUM_ACTIONS, apply_slip, maze_tables
from rlbook.envs.option_checks import MODES, check_render_mode
from rlbook.envs.rendering import draw_pixels, draw_text
from rlbook.envs.tabular.snapshots import check_state
from rlbook.seeding import set_rng_state

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP


class Maze(gymnasium.Env):
    """
    ## Description
    An agent walks through a maze, one cell a step, from the start to the goal. Walking into a wall
    or off the map is a bump: it stays where it is, and it hurts.

    ```
    S..#G
    .#.#.
    .#...
    ...#.
    .#...
    ```

    ## Action Space
    `Discrete(4)`: 0 up, 1 down, 2 left, 3 right. With `slip`, a move goes sideways instead with
    that probability, to either side with half of it, never backwards.

    ## Observation Space
    A state is a cell's number, `row * columns + column`; walls are counted too, though nothing
    reaches them.

    | `observation` | space | what it is |
    |---|---|---|
    | `"index"` | `Discrete(25)` | the state |
    | `"coordinates"` | `MultiDiscrete([5, 5])` | row and column |
    | `"onehot"` | `Box(0, 1, (25,), float32)` | 1 at the state, 0 elsewhere |
    | `"local"` | `MultiDiscrete([3] * 9)` | the 3 × 3 cells around the agent, row by row: 0 free, 1 wall or outside, 2 goal |

    With `"local"` the maze is only partly observable: different cells can look alike.

    ## Rewards
    | `rewards` | a step | a bump | entering the goal |
    |---|---|---|---|
    | `"standard"` | -1 | -5 | +10 |
    | `"shaped"` | -0.1 | -1.1 = -0.1 - 1 | +9.9 = -0.1 + 10 |

    ## Starting State
    Always the start, `(0, 0)` in the map above.

    ## Episode End
    Termination: the agent enters the goal. Truncation: after 100 steps, counted by gymnasium's
    `TimeLimit` when the environment is made by its id (`max_episode_steps` changes it), and by the
    vector form itself.

    ## Arguments
    - `layout`: a map as text, one line a row: `#` wall, `S` start, `G` goal, `.` or a space free.
      Any size.
    - `size`, `seed`: instead of a layout, a random perfect maze of `size` × `size` rooms, drawn
      with `seed` (0 if left out).
    - `rewards`: `"standard"` or `"shaped"`.
    - `slip`: probability of moving sideways, in [0, 1].
    - `observation`: `"index"`, `"coordinates"`, `"onehot"` or `"local"`.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step; no window is opened).

    ## Known answer
    In the map above 19 states are reachable and the only shortest path has 8 moves: right, right,
    down, down, right, right, up, up. The optimal return is 3.0 = 7 · (-1) + 10 with standard
    rewards and 9.2 = 8 · (-0.1) + 10 with shaped ones. V*(start) is 2.5271882698 and 8.5481004233
    for γ = 0.99. Uniformly random moves need 262.68354 steps on average.

    ## Version History
    - v0: first version.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": list(MODES),
        "render_fps": 8,
    }

    def __init__(
        self,
        layout: str | None = None,
        size: int | None = None,
        seed: int | None = None,
        rewards: str = "standard",
        slip: float = 0.0,
        observation: str = "index",
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode)
        self.render_mode = render_mode
        self.tables = maze_tables(layout, size, seed, rewards, slip, observation)
        self.observation_space = self.tables.observation_space
        self.action_space = spaces.Discrete(NUM_ACTIONS)
        self._next_state = self.tables.next_state.tolist()
        self._reward = self.tables.reward.tolist()
        self._terminal = self.tables.terminal.tolist()
        self._state = self.tables.layout.start

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = self.tables.layout.start
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not 0 <= action < NUM_ACTIONS:
            raise ValueError(f"action must be 0, 1, 2 or 3, got {action!r}.")
        if self.tables.slip and not self._terminal[self._state]:
            action = int(apply_slip(action, self.np_random.random(), self.tables.slip))
        reward = self._reward[self._state][action]
        self._state = self._next_state[self._state][action]
        return self._observe(), reward, self._terminal[self._state], False, {}

    def render(self) -> Any:
        layout = self.tables.layout
        if self.render_mode == "rgb_array":
            return draw_pixels(layout, self._state)
        if self.render_mode == "ansi":
            return draw_text(layout, self._state)
        if self.render_mode == "human":
            print(draw_text(layout, self._state), end="\n\n")
        return None

    def snapshot(self) -> dict[str, Any]:
        """All state needed to continue: the state, and the generator that decides on slips."""
        return {"state": self._state, "rng": self.np_random.bit_generator.state}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self._state = check_state(snapshot["state"], self.tables.layout.num_states)
        set_rng_state(self.np_random, snapshot["rng"])

    def model(self) -> TabularMDP:
        """The same dynamics as a finite model, for planning."""
        from rlbook.envs.gridworlds.maze_model import maze_model

        return maze_model(self.tables)

    def _observe(self) -> Any:
        if self.render_mode == "human":
            self.render()
        if isinstance(self.observation_space, spaces.Discrete):
            return self._state
        return self.tables.observe(np.array([self._state]))[0]
