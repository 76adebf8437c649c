"""An agent on its environment's board: the cells with their values and arrows, in the form that the
animations draw, and the agent's position.

For FrozenLake and CliffWalking the board is the map. For Blackjack there are two, with and without
a usable ace. Taxi's is the map as the agent sees it while this passenger waits here and wants to go
there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.envs.toy_text.blackjack import BlackjackEnv
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from PIL import Image, ImageDraw

from rlbook.agent import Agent
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvRecipe
from rlbook.plots.boards import HIGHEST_CARD, HIGHEST_SUM, LOWEST_CARD, LOWEST_SUM, Board, boards_of
from rlbook.plots.colours import INK, PAPER
from rlbook.plots.films.film import Film, Still
from rlbook.plots.value_map import ValueMap, board_maps

TAXI_NAMES = ("down", "up", "right", "left", "pick up", "drop off")
PADS = "RGYB"  # where passengers wait and go
RIDING = 4  # the passenger's place, when that is the taxi
DISC = 0.3  # the agent's radius, in cells


@dataclass(frozen=True)
class Moment:
    """The board at one moment."""

    chart: ValueMap
    state: int | None  # the cell in which the agent stands; None: in none of them
    note: str = ""  # what the board does not show
    # (row, column): there is a wall to the right of this cell
    barriers: tuple[tuple[int, int], ...] = ()


class BoardStage(NamedTuple):
    """The boards of an environment."""

    at: Callable[[Any], Moment]  # from what the environment shows
    actions: tuple[str, ...]  # what the actions are called


def stage_for(agent: Agent, recipe: EnvRecipe) -> BoardStage | None:
    """The boards of a toy text environment; None for any other, and for an agent without values."""
    from rlbook.algorithms.planning.search.mcts import MCTS

    if isinstance(agent, MCTS):  # which knows the states of one tree at a time
        return None
    env: Any = recipe.make().unwrapped
    try:
        if isinstance(env, TaxiEnv):
            return BoardStage(_taxi(agent, recipe, env), TAXI_NAMES)
        if not isinstance(env, FrozenLakeEnv | CliffWalkingEnv | BlackjackEnv):
            return None
        charts = board_maps(boards_of(recipe), agent, recipe, "agent")
    except RequestError:
        return None
    if isinstance(env, BlackjackEnv):
        return BoardStage(partial(_blackjack, charts), charts[0].board.actions)
    return BoardStage(lambda obs: Moment(charts[0], int(obs)), charts[0].board.actions)


def _blackjack(charts: list[ValueMap], obs: Any) -> Moment:
    """Blackjack's boards; the first is the one with a usable ace. Sums outside a board lie below 12
    or above 21."""
    total, card, ace = (int(part) for part in obs)
    chart = charts[0 if ace else 1]
    place = (total - LOWEST_SUM) * (HIGHEST_CARD - LOWEST_CARD + 1) + card - LOWEST_CARD
    note = (
        f"player {total}, dealer"
        f" {'ace' if card == LOWEST_CARD else card}{', usable ace' if ace else ''}"
    )
    return Moment(chart, place if LOWEST_SUM <= total <= HIGHEST_SUM else None, note)


def _taxi(agent: Agent, recipe: EnvRecipe, env: Any) -> Callable[[Any], Moment]:
    """Taxi's boards. Its states are (row, column, passenger, destination); a board has the 25 cells
    of one passenger and one destination."""
    seen: dict[tuple[int, int], ValueMap] = {}
    barriers = tuple(
        (row, column)
        for row in range(5)
        for column in range(4)
        if env.desc[row + 1, 2 * column + 2] == b"|"
    )

    def stage(obs: Any) -> Moment:
        row, column, passenger, goal = (int(part) for part in env.decode(int(obs)))
        if (passenger, goal) not in seen:
            seen[passenger, goal] = board_maps(
                [_taxi_board(env, passenger, goal)], agent, recipe, "agent"
            )[0]
        waits = "in the taxi" if passenger == RIDING else f"at {PADS[passenger]}"
        return Moment(
            seen[passenger, goal],
            5 * row + column,
            f"passenger {waits}, wants to {PADS[goal]}",
            barriers,
        )

    stage(0)  # an agent without values is refused now
    return stage


def _taxi_board(env: Any, passenger: int, goal: int) -> Board:
    states = np.array(
        [env.encode(row, column, passenger, goal) for row in range(5) for column in range(5)]
    )
    texts = [""] * 25
    for name, (row, column) in zip(PADS, env.locs, strict=True):
        texts[5 * row + column] = name
    return Board(
        np.zeros((5, 5), dtype=bool), np.ones(25, dtype=bool), states, TAXI_NAMES, tuple(texts)
    )


def picture_of(moment: Moment) -> np.ndarray:
    """The board as pixels [H, W, 3] uint8, the agent as a disc."""

    from rlbook.plots.films.film_gif import FINER, board_image

    film = Film("", [Still([moment.chart], "")])
    side, large = board_image(film, film.cells()[0])
    pencil = ImageDraw.Draw(large)
    for row, column in moment.barriers:
        pencil.line(
            ((column + 1) * side, row * side, (column + 1) * side, (row + 1) * side),
            fill=INK,
            width=max(3, side // 12),
        )
    if moment.state is not None:
        _disc(pencil, side, *film.places[moment.state])
    image: Image.Image = large.resize((large.width // FINER, large.height // FINER))
    return np.asarray(image)


def _disc(pencil: Any, side: int, column: int, row: int) -> None:
    from rlbook.envs.rendering import AGENT, COLOURS

    x, y, reach = (column + 0.5) * side, (row + 0.5) * side, DISC * side
    ring = max(2, side // 24)
    edge = reach + ring  # a dark one around the pale one: a hole has the agent's colour
    pencil.ellipse((x - edge, y - edge, x + edge, y + edge), fill=INK)
    pencil.ellipse(
        (x - reach, y - reach, x + reach, y + reach), fill=COLOURS[AGENT], outline=PAPER, width=ring
    )
