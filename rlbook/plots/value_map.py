"""A map of an agent's values in an environment whose states have positions: the value of every
cell, and arrows for the best actions.

Mazes and grids are drawn as maps, with the action that the agent takes dark and others that are as
good pale. Car rental and Blackjack have numbers and letters for actions; the gambler's values, and
those of a long random walk, are a curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rlbook.agent import Agent, Planner
from rlbook.algorithms.planning.greedy import TIE
from rlbook.errors import RequestError
from rlbook.evaluation.optimal_return import horizon_of, horizon_values
from rlbook.interaction.environments import EnvLike, EnvRecipe
from rlbook.plots.boards import Board, boards_of
from rlbook.runs.run import Run, load

Observations: TypeAlias = np.ndarray | tuple[np.ndarray, ...]

CHUNK = 1_024  # states that a network sees at once
# a learner's action values that differ by no more are equal, relative to the largest
ROUNDING = 1e-12
VALUES = "value V(s) (reward units)"
ESTIMATES = "estimate Q(a) (reward units)"
RETURNS = "return of the greedy policy (reward units)"


@dataclass(frozen=True)
class ValueMap:
    """Values and actions over a board's S states."""

    board: Board
    # [S] float, in reward units; NaN where nothing is decided: walls, ends, walled-off cells
    values: np.ndarray
    # [S] int, the greedy action; -1 there, and everywhere if the agent only predicts
    policy: np.ndarray
    # [S, A] bool: the actions that are as good as any; the greedy one is among them
    best: np.ndarray
    meaning: str  # what the values are
    title: str

    @property
    def is_decision(self) -> np.ndarray:
        """[S] bool: the cells in which an agent acts."""
        return self.board.decided

    def shares(self, span: tuple[float, float] | None = None) -> np.ndarray:
        """[S]: the position of each value between the lowest (0) and the highest (1), of these or
        of a given span."""
        low, high = span or self.range
        return (
            np.clip((self.values - low) / (high - low), 0.0, 1.0)
            if high > low
            else np.where(np.isnan(self.values), np.nan, 1.0)
        )

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest value, in reward units."""
        return float(np.nanmin(self.values)), float(np.nanmax(self.values))


def value_map(
    target: Run | Agent | str | Path,
    env: EnvLike | None = None,
    *,
    checkpoint: int | str | None = None,
    allow_import: bool = False,
) -> ValueMap:
    """The value map of an agent; of Blackjack, the one with a usable ace. See `value_maps`."""
    return value_maps(target, env, checkpoint=checkpoint, allow_import=allow_import)[0]


def value_maps(
    target: Run | Agent | str | Path,
    env: EnvLike | None = None,
    *,
    checkpoint: int | str | None = None,
    allow_import: bool = False,
) -> list[ValueMap]:
    """The value maps of an agent: one, or for Blackjack one with and one without a usable ace.

    Values are the agent's own: a table's V, a critic's V, max_a Q of a Q-network. An agent that has
    none (GRPO, DPO) is shown with the return that its greedy policy earns from each cell, computed
    from the model. One that only predicts has no arrows.

    Args:
        target: a run, a run's folder, or an agent (which then needs `env`).
        env: another environment, by its id or as an environment, in place of the run's own.
        checkpoint, allow_import: for a folder, as for `rlbook.load`.

    Raises:
        RequestError: an environment that cannot be drawn so, an agent that came without one, or one
            that has neither values nor a policy for every state.
    """
    if isinstance(target, Agent):
        if env is None:
            raise RequestError("an agent does not determine which environment to draw; give env")
        recipe = EnvRecipe.from_env(env)
        return board_maps(boards_of(recipe), target, recipe, type(target).__name__)
    run = (
        target
        if isinstance(target, Run)
        else load(target, checkpoint=checkpoint, allow_import=allow_import)
    )
    recipe = run.request.recipe if env is None else EnvRecipe.from_env(env)
    return board_maps(
        boards_of(recipe, steps=run.steps if env is None else None),
        run.agent,
        recipe,
        run.request.algorithm,
    )


def board_maps(boards: list[Board], agent: Agent, recipe: EnvRecipe, name: str) -> list[ValueMap]:
    """The agent's current value maps; see `value_maps`.

    Args:
        boards: of the environment.
        agent: adapted to it.
        recipe: the environment.
        name: the agent's, for the title.
    """
    estimates = getattr(agent, "action_values", None)
    if not hasattr(agent, "values") and not agent.batched and estimates is not None:
        return [_estimates(boards[0], estimates(), f"{name} on {recipe.name}")]
    if not (hasattr(agent, "values") and hasattr(agent, "greedy_policy")) and not agent.batched:
        raise RequestError(f"{name} stores no values, so there is no value map")
    arguments = ", ".join(
        f"{key}={value}"
        for key, value in recipe.kwargs.items()
        if isinstance(value, str | int | float)
    )
    title = f"{name} on {recipe.name}" + (f" ({arguments})" if 0 < len(arguments) <= 32 else "")
    return [
        _board_map(board, agent, recipe, f"{title}, {board.title}" if board.title else title)
        for board in boards
    ]


# What is shown


def _estimates(board: Board, values: np.ndarray, title: str) -> ValueMap:
    """A bandit's estimate for each machine, with the best one marked."""
    best = values == values.max()
    chosen = np.where(np.arange(len(values)) == values.argmax(), 0, -1)
    return ValueMap(board, values.astype(float), chosen, best[:, None], ESTIMATES, title)


def _board_map(board: Board, agent: Agent, recipe: EnvRecipe, title: str) -> ValueMap:
    chunks = [_part(board.observations, places) for places in _chunks(board.num_states)]
    own = [known for chunk in chunks if (known := _values(agent, chunk)) is not None]
    if own and not np.isfinite(np.concatenate(own)[board.decided]).all():
        raise RequestError(
            f"some of the agent's values in {recipe.name} are infinite or NaN, so there is no "
            "value map"
        )
    policy, best = _choices(agent, chunks)
    if own:
        values, meaning = np.concatenate(own), VALUES
    elif board.model is not None:
        values, meaning = horizon_values(board.model, horizon_of(recipe), policy), RETURNS
    else:
        raise RequestError(
            f"this agent stores no values, and {recipe.name} has no model to compute them from"
        )
    decided = board.decided
    shown = np.where(decided, values.astype(float), np.nan)
    return ValueMap(
        board, shown, np.where(decided, policy, -1), best & decided[:, None], meaning, title
    )


def _chunks(count: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]


def _part(observations: Observations, places: slice) -> Observations:
    return (
        tuple(part[places] for part in observations)
        if isinstance(observations, tuple)
        else observations[places]
    )


def _values(agent: Any, observations: Observations) -> np.ndarray | None:
    """The agent's values [N], or None for an agent without values."""
    if not agent.batched:
        return agent.values()[agent.adapt_observations(observations)]
    if hasattr(agent, "value"):
        return agent.value(observations)
    return (
        agent.action_values(observations).max(axis=1) if hasattr(agent, "action_values") else None
    )


def _choices(agent: Any, chunks: list[Observations]) -> tuple[np.ndarray, np.ndarray]:
    """The agent's greedy actions, [S] int, and all equally good ones, [S, A] bool."""
    if agent.batched:
        policy = np.concatenate(
            [
                np.asarray(agent.act(agent.adapt_observations(chunk), explore=False))
                for chunk in chunks
            ]
        )
        return policy, policy[:, None] == np.arange(int(policy.max()) + 1)
    seen = np.concatenate([agent.adapt_observations(chunk) for chunk in chunks])
    if hasattr(agent, "target_policy"):  # it learns how good a given policy is, and seeks none
        return np.full(len(seen), -1), np.zeros((len(seen), 1), dtype=bool)
    policy = agent.greedy_policy()[seen]
    if not hasattr(agent, "action_values"):
        return policy, policy[:, None] == np.arange(int(policy.max()) + 1)
    action_values = agent.action_values()
    # -∞ where forbidden
    largest = float(np.abs(action_values[np.isfinite(action_values)]).max(initial=0.0))
    slack = (TIE if isinstance(agent, Planner) else ROUNDING) * largest
    shown = action_values[seen]
    best = shown >= shown.max(axis=1, keepdims=True) - slack
    best[np.arange(len(seen)), policy] = True
    return policy, best


def number(value: float) -> str:
    """A value in at most five characters if possible: 2.53, -12.4, -300."""
    for digits in (2, 1):
        text = f"{value:.{digits}f}"
        if len(text) <= 5:
            return "0.00" if text == "-0.00" else text.replace("-", "−")
    return f"{value:.0f}".replace("-", "−")
