"""Environments as boards: the position of each state in a picture, the direction of each action,
and the observation in each state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.envs.toy_text.blackjack import BlackjackEnv
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from rlbook.envs.car_rental import COUNTS, CarRental
from rlbook.envs.gambler import TARGET, Gambler
from rlbook.envs.gridworlds.dyna_maze import DynaMaze
from rlbook.envs.gridworlds.grids import Grid
from rlbook.envs.gridworlds.layouts import ACTION_NAMES, FREE, GOAL, START, WALL, Layout
from rlbook.envs.gridworlds.maze import Maze
from rlbook.envs.random_walk import RandomWalk
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.ten_armed_testbed import TenArmedTestbed
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvRecipe

DIRECTIONS = {
    "up": (-1, 0),
    "down": (1, 0),
    "left": (0, -1),
    "right": (0, 1),
    "stay": (0, 0),
    "pick up": (0, 0),
    "drop off": (0, 0),
    "up left": (-1, -1),
    "up right": (-1, 1),
    "down left": (1, -1),
    "down right": (1, 1),
}
"""Name of an action → direction of its arrow: (rows down, columns right)."""
TEXTS: dict[str, str] = {
    "a": "A",
    "x": "A′",
    "b": "B",
    "y": "B′",
    FREE[0]: "",
    FREE[1]: "",
    "F": "",
    WALL: "",
}
"""Marks of a map that are displayed differently, or not at all."""
GOALS, HOLES = ("G", "T"), ("H", "C")
"""Texts of cells in which an episode ends with success, and with failure."""
LAKE_NAMES, CLIFF_NAMES = ("left", "down", "right", "up"), ("up", "right", "down", "left")
DRAWN = frozenset(
    {
        "Maze-v0",
        "GridWorld-v0",
        "WindyGridWorld-v0",
        "RandomWalk-v0",
        "DynaMaze-v0",
        "ShortCorridor-v0",
        "CarRental-v0",
        "Gambler-v0",
        "TenArmedTestbed-v0",
        "CliffWalking-v1",
        "CliffWalkingSlippery-v1",
        "FrozenLake-v1",
        "FrozenLake8x8-v1",
        "Blackjack-v1",
    }
)
"""Environments with a board."""
LONGEST_ROW = 40  # states of a random walk; longer ones are drawn as a curve
# Blackjack: below 12 one cannot go bust
LOWEST_SUM, HIGHEST_SUM, LOWEST_CARD, HIGHEST_CARD = (
    12,
    21,
    1,
    10,
)


@dataclass(frozen=True)
class Board:
    """The S states of an environment in rows and columns; a state's number is
    `row * columns + column`."""

    walls: np.ndarray  # [rows, columns] bool
    decided: np.ndarray  # [S] bool: the cells in which an agent acts
    observations: Any  # what the environment shows in each: [S, ...], or a tuple of [S]
    actions: tuple[str, ...]  # what the A actions are called
    texts: tuple[str, ...]  # S short texts: S, G and the like, mostly ""
    model: TabularMDP | None = None  # over the same states, where there is one
    amounts: np.ndarray | None = None  # [S, A] int: what an action comes to, where it is a number
    amount: str = ""  # what that number is
    title: str = ""
    across: str = ""  # what the columns are
    along: str = ""  # what the rows are
    columns_named: tuple[str, ...] = ()
    rows_named: tuple[str, ...] = ()
    upward: bool = False  # the first row is the lowest
    line: bool = False  # one row, drawn as a curve
    # [A, 2]: where arrows point, (rows down, columns right); None: not directions
    moves: np.ndarray | None = field(init=False)

    def __post_init__(self) -> None:
        known = bool(self.actions) and all(name in DIRECTIONS for name in self.actions)
        object.__setattr__(
            self, "moves", np.array([DIRECTIONS[name] for name in self.actions]) if known else None
        )

    @property
    def rows(self) -> int:
        return self.walls.shape[0]

    @property
    def columns(self) -> int:
        return self.walls.shape[1]

    @property
    def num_states(self) -> int:
        """The number of cells, walls included."""
        return self.walls.size

    def action_text(self, state: int, action: int) -> str:
        """The text for an action that is not a direction: a number, or the first letter of its
        name."""
        if self.amounts is not None:
            return str(int(self.amounts[state, action])).replace("-", "−")
        return self.actions[action][:1].upper() if self.actions else str(action)


def boards_of(recipe: EnvRecipe, *, steps: int | None = None) -> list[Board]:
    """The boards of an environment: one, or for Blackjack one without and one with a usable ace.

    Args:
        recipe: the environment.
        steps: how long an agent has trained in it; a maze that changes is drawn as it was then.
            None: as it is at first.

    Raises:
        RequestError: an environment whose states have no places in a picture.
    """
    env: Any = recipe.make().unwrapped
    layout = getattr(getattr(env, "tables", None), "layout", None)
    if isinstance(layout, Layout):
        return [_maze(env, layout)]
    for kind, build in _kinds():
        if isinstance(env, kind):
            return build(env)
    if isinstance(env, TabularEnv) and env.grid is not None:
        return [_grid(env, env.grid, steps)]
    raise RequestError(
        "a value map is drawn of a grid, a random walk, CarRental, Gambler, the ten machines or "
        f"Blackjack, but {recipe.name} is none of these"
    )


def _kinds() -> list[tuple[type, Any]]:
    return [
        (RandomWalk, _walk),
        (Gambler, _gambler),
        (CarRental, _rental),
        (TenArmedTestbed, _machines),
        (FrozenLakeEnv, _lake),
        (CliffWalkingEnv, _cliff),
        (BlackjackEnv, _blackjack),
    ]


def playable_states(model: TabularMDP) -> np.ndarray:
    """[S] bool: the states that an unfinished episode can be in, under any actions."""
    going_on = model.continues_by_state.tocoo()
    possible = going_on.data > 0
    origin, successor = going_on.row[possible] // model.num_actions, going_on.col[possible]
    found = model.initial > 0
    while True:
        new = successor[found[origin] & ~found[successor]]
        if not new.size:
            return found
        found[new] = True


# ---- ours


def _maze(env: Maze, layout: Layout) -> Board:
    states = np.arange(layout.num_states)
    texts = [""] * layout.num_states
    texts[layout.start], texts[layout.goal] = START, GOAL
    decided = layout.reachable() & ~env.tables.terminal
    return Board(
        layout.walls, decided, env.tables.observe(states), ACTION_NAMES, tuple(texts), env.model()
    )


def _grid(env: TabularEnv, grid: Grid, steps: int | None) -> Board:
    """A map; for a maze that changes, the one that applies after `steps`."""
    if isinstance(env, DynaMaze) and env.changes:
        phase = int(env.phase_at(steps or 0))
        grid, model = env._grids[phase], env.phases[phase][1]
        title = f"map {phase + 1} of {len(env.phases)}"
    else:
        model, title = env.model(), ""
    states = np.arange(grid.marks.size)
    shown = states if env.views is None else env.views[states]
    texts = _texts(grid.marks)
    return Board(
        grid.walls,
        playable_states(model),
        shown,
        tuple(env.action_names),
        texts,
        model,
        title=title,
    )


def _texts(marks: np.ndarray) -> tuple[str, ...]:
    return tuple(TEXTS.get(str(mark), str(mark)) for mark in marks.ravel().tolist())


def _walk(env: RandomWalk) -> list[Board]:
    model = env.model()
    count = model.num_states
    states, line = np.arange(count), count > LONGEST_ROW
    texts = ("T", *[""] * (count - 2), "T")
    shown = states if env.views is None else env.views
    walls = np.zeros((1, count), dtype=bool)
    return [
        Board(
            walls,
            playable_states(model),
            shown,
            tuple(env.action_names),
            texts,
            model,
            across="state" if line else "",
            line=line,
        )
    ]


def _machines(env: TenArmedTestbed) -> list[Board]:
    """The arms of a bandit in two rows, with their numbers; the one with the best estimate is
    marked."""
    count = len(env.means)
    return [
        Board(
            np.zeros((2, count // 2), dtype=bool),
            np.ones(count, dtype=bool),
            np.zeros(count, dtype=int),
            ("best",),
            tuple(map(str, range(count))),
        )
    ]


def _gambler(env: Gambler) -> list[Board]:
    model, states = env.model(), np.arange(TARGET + 1)
    texts, walls = tuple([""] * len(states)), np.zeros((1, len(states)), dtype=bool)
    return [
        Board(
            walls,
            playable_states(model),
            states,
            (),
            texts,
            model,
            env.stakes,
            "stake",
            across="capital",
            line=True,
        )
    ]


def _rental(env: CarRental) -> list[Board]:
    states, names = (
        np.arange(COUNTS * COUNTS),
        tuple(str(cars) if cars % 5 == 0 else "" for cars in range(COUNTS)),
    )
    texts, walls = tuple([""] * len(states)), np.zeros((COUNTS, COUNTS), dtype=bool)
    return [
        Board(
            walls,
            np.ones(len(states), dtype=bool),
            states,
            (),
            texts,
            env.model(),
            env.moved,
            "cars driven to the second lot",
            across="cars on the second lot",
            along="cars on the first lot",
            columns_named=names,
            rows_named=names,
            upward=True,
        )
    ]


# ---- gymnasium's


def _lake(env: FrozenLakeEnv) -> list[Board]:
    marks = env.desc.astype(str)
    return [_toy(env, LAKE_NAMES, marks)]


def _cliff(env: CliffWalkingEnv) -> list[Board]:
    marks = np.where(env._cliff, "C", FREE[0])
    marks.flat[env.start_state_index], marks.flat[-1] = START, GOAL
    return [_toy(env, CLIFF_NAMES, marks)]


def _toy(env: FrozenLakeEnv | CliffWalkingEnv, names: Sequence[str], marks: np.ndarray) -> Board:
    model, states = TabularMDP.from_env(env), np.arange(marks.size)
    return Board(
        np.zeros(marks.shape, dtype=bool),
        playable_states(model),
        states,
        tuple(names),
        _texts(marks),
        model,
    )


def _blackjack(env: BlackjackEnv) -> list[Board]:
    """As in figure 5.2: the dealer's card across, the player's sum upwards."""
    sums, cards = np.arange(LOWEST_SUM, HIGHEST_SUM + 1), np.arange(LOWEST_CARD, HIGHEST_CARD + 1)
    player, dealer = (part.ravel() for part in np.meshgrid(sums, cards, indexing="ij"))
    common = {
        "across": "dealer's card",
        "along": "player's sum",
        "columns_named": ("A", *map(str, cards[1:])),
        "rows_named": tuple(map(str, sums)),
        "upward": True,
    }
    walls, decided, texts = (
        np.zeros((len(sums), len(cards)), dtype=bool),
        np.ones(player.size, dtype=bool),
        ("",) * player.size,
    )
    return [
        Board(
            walls,
            decided,
            (player, dealer, np.full(player.size, ace)),
            ("stick", "hit"),
            texts,
            title=title,
            **common,
        )
        for ace, title in ((1, "usable ace"), (0, "no usable ace"))
    ]
