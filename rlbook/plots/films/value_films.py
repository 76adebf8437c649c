"""Animations of how values develop: the sweeps of a planner, the table of a learner. A GIF, or a
page with buttons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlbook.agent import Agent, Planner
from rlbook.checks import whole_number
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvLike, EnvRecipe
from rlbook.interaction.loop import loop
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.plots.boards import Board, boards_of
from rlbook.plots.figure import drawing, save_bytes
from rlbook.plots.films.film import Film, Still, thin_stills
from rlbook.plots.value_map import ValueMap, board_maps
from rlbook.registry import agent_class
from rlbook.runs.callbacks import Callbacks
from rlbook.runs.request import Request
from rlbook.runs.run import Run, load
from rlbook.runs.setup import set_up
from rlbook.runs.sources import EnvironmentSource

FRAMES = 60  # where nobody says how many at most
MOST_FRAMES = 1_000
GROWTH = 1.04  # from one snapshot of a learner to the next, in environment steps
PACE = 4.0  # frames a second


def animate(
    algorithm: str,
    env: EnvLike,
    *,
    out: str | Path,
    frames: int | None = None,
    seed: int = 0,
    **options: object,
) -> Path:
    """Writes an animation of how an algorithm's values develop: `animate_planning`,
    `animate_search` or `animate_learning`, whichever applies."""
    planner = issubclass(agent_class(algorithm), Planner)
    way = (
        animate_planning if planner else animate_search if algorithm == "mcts" else animate_learning
    )
    return way(algorithm, env, out=out, frames=frames, seed=seed, **options)


def animate_planning(
    algorithm: str,
    env: EnvLike,
    *,
    out: str | Path,
    frames: int | None = None,
    seed: int = 0,
    **options: object,
) -> Path:
    """Animates a planner's sweeps: n sweeps make n + 1 frames, the first one before any.

    Args:
        algorithm: a planner, such as "value_iteration".
        env: an environment that has a value map, by its id or as an environment.
        out: the file, its name ending in .gif, or in .html for a page with buttons that needs no
            server.
        frames: how many at most; None is 60. Of more sweeps early ones are shown one by one, later
            ones with growing steps.
        seed: as for `rlbook.train`.
        options: what else `rlbook.train` takes: `env_kwargs`, `steps` (sweeps at most),
            hyper-parameters.

    Raises:
        RequestError: one sentence; nothing is written.
    """
    request, path, most = _check_request(algorithm, env, out, frames, seed, options)
    if not issubclass(agent_class(algorithm), Planner):
        raise RequestError(f"{algorithm} does not plan; animate_learning shows how it learns")
    boards = _boards(request.recipe)
    stills = list(_sweeps(request, boards))
    return _write(Film(_title(stills), thin_stills(stills, most, early=True)), path, "sweep")


def animate_learning(
    algorithm: str,
    env: EnvLike,
    *,
    out: str | Path,
    frames: int | None = None,
    seed: int = 0,
    **options: object,
) -> Path:
    """Animates a learner's table, from before the first step to the end of training.

    The time between frames grows in proportion to the time that has passed: early on much happens
    in a step.

    Args:
        algorithm: one that keeps values, such as "q_learning".
        env: an environment that has a value map, by its id or as an environment.
        out: the file, its name ending in .gif, or in .html for a page with buttons that needs no
            server.
        frames: how many at most; None is 60.
        seed: as for `rlbook.train`, which with the same arguments ends with the same table.
        options: what else `rlbook.train` takes: `env_kwargs`, `steps`, `episodes`, `num_envs`,
            hyper-parameters.

    Raises:
        RequestError: one sentence; nothing is written.
    """
    request, path, most = _check_request(algorithm, env, out, frames, seed, options)
    if issubclass(agent_class(algorithm), Planner):
        raise RequestError(f"{algorithm} plans; animate_planning shows its sweeps")
    if algorithm == "mcts":
        raise RequestError(
            "mcts keeps no values from move to move; animate_search shows how its tree grows"
        )
    _boards(request.recipe)
    stills = thin_stills(list(_snapshots(request)), most)
    return _write(
        Film(
            _title(stills),
            [_add_change(*pair) for pair in zip([stills[0], *stills], stills, strict=False)],
        ),
        path,
        "picture",
    )


def animate_search(
    algorithm: str,
    env: EnvLike,
    *,
    out: str | Path,
    frames: int | None = None,
    seed: int = 0,
    **options: object,
) -> Path:
    """Animates the tree of a search at the start of an episode, simulation by simulation.

    Args:
        algorithm: "mcts".
        env: an environment, by its id or as an environment.
        out: the file, its name ending in .gif, or in .html for a page with buttons that needs no
            server.
        frames: of a GIF, how many at most; None is 60. A page has one for each simulation
            (`simulations`, a hyper-parameter).
        seed: of the reset, and of what is tried.
        options: what else `rlbook.train` takes: `env_kwargs`, hyper-parameters.

    Raises:
        RequestError: one sentence; nothing is written.
    """
    from rlbook.algorithms.planning.search.mcts import MCTS
    from rlbook.plots.search_tree import first_search

    request, path, most = _check_request(algorithm, env, out, frames, seed, options)
    if frames is not None and path.suffix.lower() == ".html":
        raise RequestError(
            "the page of a search has a frame for each simulation, so simulations says how many,"
            f" got frames {frames}"
        )
    agent, _ = _parts(request)
    if not isinstance(agent, MCTS):
        raise RequestError(
            f"{algorithm} does not search; rlbook.plots.animate shows how it plans or learns"
        )
    return first_search(agent, request.recipe, path, seed=seed, pictures=most)


# ---- the request


def _check_request(
    algorithm: str,
    env: EnvLike,
    out: str | Path,
    frames: int | None,
    seed: int,
    options: Mapping[str, Any],
) -> tuple[Request, Path, int]:
    """Checks the request, the file and the number of frames before anything is computed."""
    path = Path(out)
    if path.suffix.lower() not in (".gif", ".html"):
        raise RequestError(f"the name of an animation must end in .gif or .html, got {str(out)!r}")
    most = FRAMES if frames is None else whole_number("frames", frames, 2)
    if most > MOST_FRAMES:
        raise RequestError(f"frames must be at most {MOST_FRAMES:,}, got {frames}")
    known = ("steps", "episodes", "num_envs", "env_kwargs", "allow_import")
    given = {name: options[name] for name in known if name in options}
    hyperparameters = {name: value for name, value in options.items() if name not in known}
    return (
        Request.build(
            algorithm, env, seed=seed, eval_every=0, hyperparameters=hyperparameters, **given
        ),
        path,
        most,
    )


def _boards(recipe: EnvRecipe, steps: int | None = None) -> list[Board]:
    boards = boards_of(recipe, steps=steps)
    if boards[0].line:
        raise RequestError(
            f"{recipe.name} is drawn as a curve, but an animation shows cells; rlbook plot "
            "--values draws it"
        )
    return boards


# ---- the moments


def _sweeps(request: Request, boards: list[Board]) -> Iterator[Still]:
    """One still before the first sweep, and one after each."""
    run = Run(request)
    name = request.algorithm
    yield Still(board_maps(boards, run.agent, request.recipe, name), "before the first sweep")
    stills: list[Still] = []

    def add_still(run: Run) -> None:
        if run.steps > len(stills):  # the last sweep is reported twice
            change = run.metrics[-1].get("change")
            caption = f"sweep {run.steps:,}" + (
                "" if change is None else f" · largest change {_format_value(float(change))}"
            )
            stills.append(Still(board_maps(boards, run.agent, request.recipe, name), caption))

    run.complete(Callbacks(on_report=(add_still,)))
    yield from stills


def _snapshots(request: Request) -> Iterator[Still]:
    """Stills before the first step, at increasing intervals, and at the end."""
    agent, interaction = _parts(request)
    changing = getattr(request.recipe.make().unwrapped, "changes", False)
    boards = _boards(request.recipe)

    def make_still() -> Still:
        now = _boards(request.recipe, interaction.steps) if changing else boards
        plural = "" if interaction.episodes == 1 else "s"
        when = f"step {interaction.steps:,} · {interaction.episodes:,} episode{plural} finished"
        return Still(board_maps(now, agent, request.recipe, request.algorithm), when)

    yield make_still()
    due = shown = 0
    for _ in loop(agent, interaction, request.budget, in_chunks=False):
        if interaction.steps >= due:
            shown, due = (
                interaction.steps,
                max(interaction.steps + 1, round(interaction.steps * GROWTH)),
            )
            yield make_still()
    if shown != interaction.steps:
        yield make_still()


def _parts(request: Request) -> tuple[Agent, SingleInteraction | VectorInteraction]:
    """The agent and its environment, as in a run."""
    agent, source, _ = set_up(request, lambda folder: load(folder).agent)
    if not isinstance(source, EnvironmentSource):
        raise RequestError(
            f"{request.algorithm} does not learn from an environment step by step, so there is"
            " nothing to show"
        )
    return agent, source.interaction


def _add_change(before: Still, still: Still) -> Still:
    """The same still, with the change of the values since the previous frame."""
    if before is still:
        return replace(still, caption="before the first step")
    return replace(
        still,
        caption=(
            f"{still.caption} · largest change since the last picture"
            f" {_format_value(largest_change(before, still))}"
        ),
    )


def largest_change(before: Still, still: Still) -> float:
    """The largest change of a cell's value, in reward units."""
    pairs = zip(before.charts, still.charts, strict=True)
    differences = [
        np.abs(new.values - old.values)[~np.isnan(new.values - old.values)] for old, new in pairs
    ]
    return float(max((part.max() for part in differences if part.size), default=0.0))


def _title(stills: list[Still]) -> str:
    chart: ValueMap = stills[0].charts[0]
    return chart.title.removesuffix(f", {chart.board.title}") if chart.board.title else chart.title


def _format_value(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


@drawing("the animation")
def _write(film: Film, path: Path, unit: str) -> Path:
    from rlbook.plots.films.film_gif import gif_of
    from rlbook.plots.films.film_page import page_of

    page = path.suffix.lower() == ".html"
    return save_bytes(path, page_of(film, unit=unit).encode() if page else gif_of(film, PACE))
