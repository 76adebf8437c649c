"""Tic-tac-toe: a small two-player game whose perfect play is known, against a random or a perfect
opponent, or in self-play."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlbook.envs.option_checks import check_choice
from rlbook.envs.rendering import AGENT, COLOURS, FREE_COLOUR, LINE_COLOUR, WALL
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

CELLS, NUM_BOARDS = 9, 3**9
FREE, MINE, THEIRS = 0, 1, 2
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
OPPONENTS, SIDES, OBSERVATIONS = (
    ("random", "exact", "self"),
    ("random", "first", "second"),
    ("board", "index"),
)
PIXELS = 64
"""Along a cell's side."""


class ZeroGenerator:
    """A deterministic stand-in for a random generator, for steps with a single outcome."""

    def random(self) -> float:
        """The smallest possible random number, 0."""
        return 0.0


ZEROS: Any = ZeroGenerator()


class TicTacToe(TabularEnv):
    """
    ## Description
    Two players set marks in turn on a board of 3 × 3 cells, the first one X, the second one O. Who
    has three in a row, a column or a diagonal has won. The environment plays the other side, by
    chance or perfectly; or the agent plays both.

    ```
    X.O
    .X.
    ..O
    ```

    ## Action Space
    `Discrete(9)`: the cell to mark, row by row. Marking a cell that is taken loses the game.
    `info["action_mask"]`, [9] bool, says which are free, and `action_mask(observations)` says it of
    any observation. `symmetries`, [8, 9], are the ways p to turn and to mirror the board: marking
    cell a of `board[p]` is the same as marking cell p[a] of `board`.

    ## Observation Space
    | `observation` | space | what it is |
    |---|---|---|
    | `"board"` | `MultiDiscrete([3] * 9)` | the cells row by row: 0 free, 1 the agent's own, 2 the other side's |
    | `"index"` | `Discrete(19683)` | the same as a number in base 3, the last cell counting 1; 5478 of them occur |

    "Own" is the side to move. So the board after the agent's last move of a game, to which nobody
    replies, is shown as the other side would see it; and with `opponent="self"` the two sides see
    the board in turn, each as its own.

    ## Rewards
    1 for a win, -1 for a loss, 0 for a draw and for every move before the end. With
    `opponent="self"` they belong to the side that moved: what one side gains, the other loses, so
    that V(s) = max_a r(s, a) - V(s'). An algorithm must know of this (`alternates` says so); one
    that does not would have both sides help each other to a win.

    ## Starting State
    The empty board. Where the agent moves second: the board after the other side's first move.

    ## Episode End
    Termination: three in a row, a full board, or a mark on a cell that is taken, after at most nine
    moves.

    ## Arguments
    - `opponent`: `"random"` (any free cell, all alike), `"exact"` (perfect play; among equally good
      moves any, all alike) or `"self"` (nobody replies: the agent moves for both sides in turn). A
      run that trains with `"self"` is evaluated against `"exact"`.
    - `side`: whether the agent moves `"first"`, `"second"`, or either with probability ½
      (`"random"`). Without effect, and so refused, with `"self"`.
    - `observation`: `"board"` or `"index"`.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    There are 5478 positions, 958 of them ends of a game, and 255168 games: the first side wins
    131184, the second 77904, and 46080 are drawn. Perfect play of both is a draw: V* is 0 against
    `"exact"` from either side (γ = 1). Against `"random"` V* is 0.994792 = 191/192 moving first and
    0.924868 moving second. Two random players: the first wins with probability 0.584921, the second
    with 0.288095, and 0.126984 are draws.

    ## Version History
    - v0: first version.
    """

    def __init__(
        self,
        opponent: str = "random",
        side: str = "random",
        observation: str = "board",
        render_mode: str | None = None,
    ) -> None:
        check_choice("opponent", opponent, OPPONENTS)
        check_choice("side", side, SIDES)
        check_choice("observation", observation, OBSERVATIONS)
        if opponent == "self" and side != "random":
            raise ValueError(
                f"side has no effect with opponent 'self', which plays both, got {side!r}; leave it"
                " out."
            )
        self.alternates = opponent == "self"
        """Whether the side to move changes with every step, and with it whose gain the rewards
        are."""
        self.evaluation_kwargs = {"opponent": "exact"} if self.alternates else {}
        self.symmetries = symmetries() if observation == "board" else None
        """[8, 9], or None where what is shown has no cells; see the function."""
        self._observation = observation
        super().__init__(tic_tac_toe_model(opponent, side), render_mode=render_mode)
        if observation == "board":
            self.views = boards()
            self.observation_space: Any = spaces.MultiDiscrete([3] * CELLS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        shown, info = super().reset(seed=seed, options=options)
        return shown, info | {"action_mask": self.action_mask(shown)}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        # nothing is drawn, so that a search sees that nothing is left to chance
        if self.alternates and 0 <= action < CELLS:
            self._state, reward, terminated = self._outcomes.step(ZEROS, self._state, int(action))
            shown, truncated, info = self._observe(), False, {}
        else:
            shown, reward, terminated, truncated, info = super().step(action)
        return shown, reward, terminated, truncated, info | {"action_mask": self.action_mask(shown)}

    def action_mask(self, observations: Any) -> NDArray[np.bool_]:
        """Which cells are free in observations of this environment, [..., 9]."""
        cells = np.asarray(observations) if self._observation == "board" else boards()[observations]
        return cells == FREE

    def rules(self) -> TicTacToe:
        """The game without an opponent, whose snapshots are compatible with this environment's, so
        that a search can move for both sides."""
        return TicTacToe("self", observation=self._observation)

    def model(self) -> TabularMDP:
        """The model, with the other side's moves as part of the environment's randomness.

        Raises:
            ValueError: the agent plays both sides, which no MDP describes: one side's reward is the
                other's loss.
        """
        if self.alternates:
            raise ValueError(
                "with opponent 'self' each side's gain is the other's loss, which the model of "
                "an MDP cannot express."
            )
        return super().model()

    def draw_text(self, state: int) -> str:
        """The board, with X for the side that began."""
        marks = np.array([".", "X", "O"])[marks_of(state)]
        return "\n".join("".join(row) for row in marks.reshape(3, 3))

    def draw_pixels(self, state: int) -> np.ndarray:
        """The board as an image [192, 192, 3] uint8: crosses for the side that began, noughts for
        the other."""
        return np.vstack(
            [
                np.hstack([_cell_pixels(mark) for mark in row])
                for row in marks_of(state).reshape(3, 3).tolist()
            ]
        )

    def _observe(self) -> Any:
        if self.render_mode == "human":
            self.render()
        return self._state if self.views is None else self.views[self._state].copy()


class TicTacToeVector(TabularVectorEnv):
    """N games in parallel; see `TicTacToe`. `info["action_mask"]` is [N, 9]."""

    single = TicTacToe
    env: TicTacToe

    def reset(self, **arguments: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """See `TabularVectorEnv.reset`."""
        shown, info = super().reset(**arguments)
        return shown, info | {"action_mask": self.env.action_mask(shown)}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """See `TabularVectorEnv.step`."""
        *moved, info = super().step(actions)
        return (
            moved[0],
            moved[1],
            moved[2],
            moved[3],
            info | {"action_mask": self.env.action_mask(moved[0])},
        )


@cache
def boards() -> NDArray[np.int64]:
    """The cells of each state from the point of view of the side to move, [19683, 9]."""
    cells = np.stack(np.unravel_index(np.arange(NUM_BOARDS), (3,) * CELLS), axis=1)
    cells.flags.writeable = False
    return cells


def number(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """The state indices [...] of boards [..., 9]."""
    return cells @ 3 ** np.arange(CELLS)[::-1]


def marks_of(state: int) -> NDArray[np.int64]:
    """The marks of a board, [9]: 0 free, 1 X, 2 O. X moves first, so it is X's turn if both have
    equally many marks."""
    cells = boards()[state]
    own_is_first = (cells == MINE).sum() == (cells == THEIRS).sum()
    return cells if own_is_first else np.array([FREE, THEIRS, MINE])[cells]


@cache
def symmetries() -> NDArray[np.int64]:
    """The rotations and reflections of a board, [8, 9]: board[p] for each permutation p. Marking
    cell a of board[p] marks cell p[a] of the board."""
    cells = np.arange(CELLS).reshape(3, 3)
    return np.stack(
        [np.rot90(board, turns).ravel() for board in (cells, cells.T) for turns in range(4)]
    )


@cache
def successor_table() -> NDArray[np.int64]:
    """The state after marking a free cell, from the other side's point of view, [19683, 9]; the
    same state if the cell is taken."""
    turned = np.array([FREE, THEIRS, MINE])[boards()]
    gained = number(turned)[:, None] + THEIRS * 3 ** np.arange(CELLS)[::-1]
    return np.where(boards() == FREE, gained, np.arange(NUM_BOARDS)[:, None])


@cache
def is_lost() -> NDArray[np.bool_]:
    """Whether the other side has three in a row, [19683]."""
    return _has_line(THEIRS)


@cache
def is_finished() -> NDArray[np.bool_]:
    """Whether either side has three in a row or the board is full, [19683]."""
    return is_lost() | _has_line(MINE) | (boards() != FREE).all(axis=1)


@cache
def positions() -> NDArray[np.bool_]:
    """The 5478 boards that occur in a game, [19683]. The side to move has as many marks as the
    other or one fewer, and has not won."""
    spare = (boards() == THEIRS).sum(axis=1) - (boards() == MINE).sum(axis=1)
    return ((spare == 0) | (spare == 1)) & ~_has_line(MINE)


@cache
def perfect_values() -> NDArray[np.float64]:
    """The value of each position for the side to move under perfect play, [19683]: 1, 0 or -1.

    Backwards from full boards, V(s) = max_a -V(s'); a position with more marks is valued before
    those with fewer.
    """
    value = np.where(is_lost(), -1.0, 0.0)
    marks = (boards() != FREE).sum(axis=1)
    for count in range(CELLS - 1, -1, -1):
        here = np.flatnonzero((marks == count) & positions() & ~is_finished())
        value[here] = np.where(
            boards()[here] == FREE, -value[successor_table()[here]], -np.inf
        ).max(axis=1)
    return value


@cache
def replies(opponent: str) -> NDArray[np.float64]:
    """The probability of each of the opponent's moves when it is to move, [19683, 9]."""
    good = boards() == FREE
    if opponent == "exact":
        good &= -perfect_values()[successor_table()] == perfect_values()[:, None]
    return good / np.maximum(good.sum(axis=1, keepdims=True), 1)


@cache
def tic_tac_toe_model(opponent: str, side: str) -> TabularMDP:
    """The model over boards, including those that do not occur: there every action is a
    self-transition that terminates with reward 0."""
    state, action = (index.ravel() for index in np.indices((NUM_BOARDS, CELLS)))
    playing = (positions() & ~is_finished())[state]
    taken = boards()[state, action] != FREE
    then = np.where(playing, successor_table()[state, action], state)
    ends = ~playing | taken | is_finished()[then]
    reward = np.where(~playing, 0.0, np.where(taken, -1.0, is_lost()[then]))
    answered = ~ends & (opponent != "self")
    parts = [
        tuple(
            column[~answered] for column in (state, action, then, np.ones(len(state)), reward, ends)
        )
    ]
    for reply in range(CELLS) if opponent != "self" else ():
        chance = replies(opponent)[then, reply]
        rows = answered & (chance > 0)
        last = successor_table()[then[rows], reply]
        parts.append(
            (
                state[rows],
                action[rows],
                last,
                chance[rows],
                -1.0 * is_lost()[last],
                is_finished()[last],
            )
        )
    entries = Entries(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return from_entries(entries, NUM_BOARDS, CELLS, initial=_starts(opponent, side))


def _starts(opponent: str, side: str) -> NDArray[np.float64]:
    """The distribution of initial states, [19683]."""
    first, second = np.zeros(NUM_BOARDS), np.zeros(NUM_BOARDS)
    first[0] = 1.0
    if opponent == "self" or side == "first":
        return first
    np.add.at(second, successor_table()[0], replies(opponent)[0])
    return second if side == "second" else (first + second) / 2


def _has_line(whose: int) -> NDArray[np.bool_]:
    """Whether one side has three in a row, [19683]."""
    return (boards()[:, LINES] == whose).all(axis=2).any(axis=1)


def _cell_pixels(mark: int) -> NDArray[np.uint8]:
    """One cell [64, 64, 3] uint8, with its mark: 0 none, 1 a cross, 2 a ring."""
    image = np.full((PIXELS, PIXELS, 3), FREE_COLOUR, dtype=np.uint8)
    image[0] = image[:, 0] = image[-1] = image[:, -1] = LINE_COLOUR
    offset = np.arange(PIXELS) - (PIXELS - 1) / 2
    across, down = offset[None, :], offset[:, None]
    arms = (np.abs(np.abs(across) - np.abs(down)) <= 0.08 * PIXELS) & (
        np.maximum(np.abs(across), np.abs(down)) <= 0.3 * PIXELS
    )
    ring = np.abs(np.hypot(across, down) - 0.27 * PIXELS) <= 0.055 * PIXELS
    if mark:
        image[arms if mark == 1 else ring] = COLOURS[AGENT if mark == 1 else WALL]
    return image
