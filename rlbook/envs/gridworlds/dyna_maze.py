"""The Dyna maze, and two variants of it that change during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbook.envs.gridworlds.grids import Grid, parse_grid
from rlbook.envs.gridworlds.layouts import ACTION_NAMES, GOAL, MOVES, START, WALL
from rlbook.envs.option_checks import check_choice, check_flag, check_integer
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.snapshots import check_array, saved_steps
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

OPEN, SOUTH = ("........G", *[".........", "........."]), (".........", "...S.....")
FIXED = ".......#G ..#....#. S.#....#. ..#...... .....#... ........."
RIGHT_GAP, LEFT_GAP, BOTH_GAPS = (
    " ".join([*OPEN, wall, *SOUTH]) for wall in ("########.", ".########", ".#######.")
)
IntOrArray = TypeVar("IntOrArray", int, NDArray[np.integer])

MAPS = {"fixed": (FIXED,), "blocking": (RIGHT_GAP, LEFT_GAP), "shortcut": (LEFT_GAP, BOTH_GAPS)}
"""The maps of each variant, one after the other."""
CHANGES = {"blocking": 1_000, "shortcut": 3_000}
"""Environment steps until the change in Sutton and Barto's figures."""


class DynaMaze(TabularEnv):
    """
    ## Description
    An agent walks from `S` to `G`, one cell a step; a move into a wall or off the map leaves it
    where it is. In two of the three variants the walls change after a while: in `"blocking"` the
    way is closed and a longer one opens, in `"shortcut"` a shorter one opens and the old one
    remains, which an agent that has stopped exploring never finds out.

    ```
    "fixed"      "blocking"   and then     "shortcut"   and then
    .......#G    ........G    ........G    ........G    ........G
    ..#....#.    .........    .........    .........    .........
    S.#....#.    .........    .........    .........    .........
    ..#......    ########.    .########    .########    .#######.
    .....#...    .........    .........    .........    .........
    .........    ...S.....    ...S.....    ...S.....    ...S.....
    ```

    ## Action Space
    `Discrete(4)`: 0 up, 1 down, 2 left, 3 right.

    ## Observation Space
    `Discrete(54)`: the cell's number, `row * 9 + column`; walls are counted too. The map is not
    seen.

    ## Rewards
    +1 for entering `G`, otherwise 0.

    ## Starting State
    Always `S`: state 18 in `"fixed"`, 48 in the others.

    ## Episode End
    Termination: the agent enters `G`, state 8. Truncation: after 10000 steps.

    ## Arguments
    - `variant`: `"fixed"`, `"blocking"` or `"shortcut"`.
    - `change_at`: the walls change after this many steps of the environment's whole life, all
      episodes together; `steps` counts them, and a reset, seeded or not, does not set it back. Left
      out: 1000 in `"blocking"`, 3000 in `"shortcut"`. An agent that stands where a wall comes up
      can walk on. In the vector form each environment has its own life.
    - `changed`: begin with the second map and stay there. Evaluation does.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    A maze that is going to change is not a single model: `changes` says so, `model()` refuses, and
    `phases` lists one model for each map.

    ## Known answer
    The shortest path has 14 steps in `"fixed"`; it has 10 and then 16 in `"blocking"`, 16 and then
    10 in `"shortcut"`. So for γ = 0.95, V*(S) is 0.95¹³ = 0.513342, 0.95⁹ = 0.630249 or 0.95¹⁵ =
    0.463291.

    Source: Sutton & Barto 2018, figures 8.2, 8.4 and 8.5.

    ## Version History
    - v0: first version.
    """

    action_names = ACTION_NAMES

    def __init__(
        self,
        variant: str = "fixed",
        change_at: int | None = None,
        changed: bool = False,
        render_mode: str | None = None,
    ) -> None:
        check_options(variant, change_at, changed)
        self.changes = variant != "fixed" and not changed
        """Whether the walls will change, or already have, in the environment's lifetime."""
        self.change_at = (change_at or CHANGES[variant]) if self.changes else None
        self.steps = 0
        """Environment steps so far, over all episodes."""
        maps = MAPS[variant] if self.changes else MAPS[variant][-1:]
        self._grids = [Grid(parse_grid(text)) for text in maps]
        self._models = [dyna_maze_model(grid.marks) for grid in self._grids]
        model, views = _stack_models(self._models) if self.changes else (self._models[0], None)
        super().__init__(model, views, self._grids[0], render_mode)
        self.evaluation_kwargs = {"changed": True} if self.changes else {}

    @property
    def phases(self) -> list[tuple[int | None, TabularMDP]]:
        """(until step, model): the maze's models, and the step of its lifetime until which each is
        in effect; None for the last."""
        ends = [self.change_at, None] if self.changes else [None]
        return list(zip(ends, self._models, strict=True))

    def model(self) -> TabularMDP:
        """The model of a maze that does not change. Raises ValueError if it does."""
        if self.changes:
            raise ValueError(
                f"DynaMaze changes after {self.change_at} steps, so it is not a single model: use"
                " phases, or changed=True."
            )
        return self._model

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        result = super().reset(seed=seed, options=options)
        self._enter_phase()
        return result

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        result = super().step(action)
        self.steps += 1
        if self.steps == self.change_at:
            self._enter_phase()
        return result

    def snapshot(self) -> dict[str, Any]:
        """All state needed to continue: the state, the age and the generator."""
        return super().snapshot() | {"steps": self.steps}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        super().restore(snapshot)
        self.steps = saved_steps("steps", snapshot["steps"])
        self._enter_phase()

    def phase_at(self, steps: IntOrArray) -> IntOrArray:
        """The index of the map after `steps` steps of a lifetime; a number, or an array for an
        array."""
        return (steps >= self.change_at) * 1 if self.change_at is not None else steps * 0

    def _enter_phase(self) -> None:
        """Moves the agent to the map for the current age, in the same cell."""
        phase = self.phase_at(self.steps)
        cells = self._grids[0].marks.size
        self._state = phase * cells + self._state % cells
        self.grid, self.grid_walls = self._grids[phase], self._grids[phase].walls

    def draw_text(self, state: int) -> str:
        phase, cell = divmod(state, self._grids[0].marks.size)
        return self._grids[phase].draw_text(cell)

    def draw_pixels(self, state: int) -> np.ndarray:
        phase, cell = divmod(state, self._grids[0].marks.size)
        return self._grids[phase].draw_pixels(cell)


class DynaMazeVector(TabularVectorEnv):
    """N mazes in parallel, each with its own age; see `DynaMaze`."""

    single = DynaMaze
    env: DynaMaze

    def __init__(
        self, num_envs: int = 1, max_episode_steps: int | None = None, **options: Any
    ) -> None:
        super().__init__(num_envs, max_episode_steps, **options)
        self.evaluation_kwargs = self.env.evaluation_kwargs
        self.ages = np.zeros(num_envs, dtype=np.int64)
        """[N]: environment steps of each environment so far, over all episodes."""

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        result = super().reset(seed=seed, options=options)
        self._enter_phases()
        return result

    def step(
        self, actions: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        alive = ~(self._terminated | self._truncated)
        result = super().step(actions)
        self.ages += alive
        self._enter_phases()
        return result

    def snapshot(self) -> dict[str, Any]:
        """All state needed to continue; see `TabularVectorEnv.snapshot`."""
        return super().snapshot() | {"ages": self.ages.copy()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        super().restore(snapshot)
        self.ages = check_array("ages", snapshot["ages"], self.ages, low=0)

    def _enter_phases(self) -> None:
        cells = self.env._grids[0].marks.size
        self._state = self.env.phase_at(self.ages) * cells + self._state % cells


def check_options(variant: object, change_at: object, changed: object) -> None:
    """Raises ValueError unless these options of `DynaMaze` are valid together."""
    check_choice("variant", variant, MAPS)
    check_flag("changed", changed)
    if change_at is not None:
        check_integer("change_at", change_at)
    if variant == "fixed" and (changed or change_at is not None):
        raise ValueError(
            "variant='fixed' never changes, so change_at and changed must be left out."
        )


def dyna_maze_model(marks: np.ndarray) -> TabularMDP:
    """The model of a map [rows, columns]. No transition enters a wall, but transitions lead out of
    one."""
    rows, columns = marks.shape
    cells = marks.ravel()
    state, action = (index.ravel() for index in np.indices((marks.size, len(MOVES))))
    down, right = np.array(MOVES)[action].T
    row, column = (
        np.clip(state // columns + down, 0, rows - 1),
        np.clip(state % columns + right, 0, columns - 1),
    )
    ahead = row * columns + column
    over = cells[state] == GOAL
    successor = np.where((cells[ahead] == WALL) | over, state, ahead)
    ends = cells[successor] == GOAL
    entries = Entries(
        state, action, successor, np.ones(len(state)), (ends & ~over).astype(float), ends
    )
    return from_entries(entries, marks.size, len(MOVES), initial=cells == START)


def _stack_models(models: list[TabularMDP]) -> tuple[TabularMDP, np.ndarray]:
    """One model of all maps, P · S states without transitions between maps, and the cell [P · S]
    that each state shows."""
    cells, num_actions = models[0].rewards.shape
    parts = [model.outcomes for model in models]
    row = np.arange(len(models) * cells * num_actions)
    successor = np.concatenate([part.successor + phase * cells for phase, part in enumerate(parts)])
    reward, ends = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("reward", "ends")
    )
    entries = Entries(
        row // num_actions, row % num_actions, successor, np.ones(len(row)), reward, ends
    )
    initial = np.concatenate([models[0].initial, *(np.zeros(cells) for _ in models[1:])])
    model = from_entries(
        entries, len(models) * cells, num_actions, initial=initial, observable=False
    )
    return model, np.tile(np.arange(cells), len(models))
