"""Watching an agent in the terminal, or as a GIF. A language model is shown with its
completions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
from numpy.typing import ArrayLike

from rlbook.checks import check, non_negative_int, optional, positive_int
from rlbook.envs.gridworlds.layouts import FREE, GOAL, START, WALL
from rlbook.errors import RequestError, request_errors
from rlbook.plots.figure import image_in_cell
from rlbook.plots.films.animation import gif_bytes, save_gif
from rlbook.plots.films.episode_board import BoardStage, stage_for
from rlbook.plots.films.episode_frames import Frame, has_screen, play_frames, try_render_modes
from rlbook.plots.terminal import Terminal, picture_text, value_map_text
from rlbook.runs.inspection import action_names

if TYPE_CHECKING:
    from IPython.display import HTML

    from rlbook.agent import Agent
    from rlbook.interaction.environments import EnvLike, EnvRecipe
    from rlbook.runs.run import Run

PROMPTS = 5  # for a language model, where nobody says how many
FRAMES_PER_SECOND = 8.0  # where the environment names no pace
RESET_PAUSE = 0.6  # seconds before the first step and after the last one


def watch(
    target: Run | str | Path,
    gif: str | Path | None = None,
    episodes: int | None = None,
    seed: int | None = None,
    *,
    env: EnvLike | None = None,
    stream: TextIO | None = None,
    pause: float | None = None,
    checkpoint: int | str | None = None,
    allow_import: bool = False,
    render_mode: str | None = None,
) -> list[float]:
    """Shows greedy episodes of a run's agent; of a language model, sampled completions of held-out
    prompts.

    Args:
        target: a run, or a run's folder.
        gif: write a GIF there instead of playing in the terminal.
        episodes: how many (a language model: prompts); None is 1, and 5 for a language model.
        seed: decides how they start; None is the run's seed.
        env: another environment, by its id or as an environment, in place of the run's own.
        stream: where the text goes; None is standard output.
        pause: seconds between two frames; None is the environment's pace on a terminal, and 0
            elsewhere.
        checkpoint, allow_import: for a folder, as for `rlbook.load`.
        render_mode: "human" opens the environment's own window, where there is a screen.

    Returns:
        The return of each episode, in reward units; of a language model, of each completion. []
        where a GIF was written.

    Raises:
        RequestError: `episodes` below 1, a negative seed, an agent that does not act, or a GIF of
            an environment that draws nothing, or whose spaces are others.
    """
    from rlbook.evaluation.targets import load_target
    from rlbook.plots.completions import writes
    from rlbook.runs.run import Run

    _check(episodes, seed)
    loading = {"checkpoint": checkpoint, "allow_import": allow_import}
    run = target if isinstance(target, Run) else load_target(target, env, loading)
    if not run.agent.plays():
        judges = (
            "; rlbook evaluate measures how well it distinguishes good from bad"
            if run.agent.prefers
            else ""
        )
        raise RequestError(
            f"{run.request.algorithm} does not act, so there is nothing to watch{judges}"
        )
    recipe = _place(run, env, allow_import=allow_import)
    start = run.request.seed if seed is None else seed
    if gif is not None:
        save_gif(run.agent, recipe, gif, episodes=episodes or 1, seed=start)
        return []
    terminal = Terminal(stream)
    if render_mode is not None:
        return _watch_window(run.agent, recipe, terminal, episodes or 1, start, render_mode)
    if writes(run.agent, recipe):
        return _watch_writing(run.agent, recipe, terminal, episodes or PROMPTS, start)
    return _watch_playing(run.agent, recipe, terminal, episodes or 1, start, pause)


def _place(run: Run, env: EnvLike | None, *, allow_import: bool = False) -> EnvRecipe:
    """Where a run's agent is watched. Raises RequestError if it does not fit."""
    if env is None:
        return run.request.recipe.for_evaluation()
    from rlbook.evaluation.targets import find_target
    from rlbook.interaction.play_episodes import check_spaces
    from rlbook.interaction.spaces import adapt_to

    found = find_target(run, env, allow_import=allow_import).played
    check_spaces(run.agent, found, adapt_to(type(run.agent), found.make(), run.agent.config))
    return found


def film_in_cell(
    run: Run, *, episodes: int = 1, seed: int | None = None, env: EnvLike | None = None
) -> HTML:
    """Greedy episodes as a GIF that a notebook shows in its cell; embedded in HTML, because
    nbconvert drops a bare GIF. Arguments as for `watch`.

    Raises:
        RequestError: as `watch`.
    """
    from IPython.display import HTML

    _check(episodes, seed)
    start = run.request.seed if seed is None else seed
    recipe = _place(run, env)
    film = gif_bytes(run.agent, recipe, episodes=episodes, seed=start)
    shown = f"{run.request.algorithm} in {recipe.name}"
    return HTML(image_in_cell(film, shown))


def _check(episodes: object, seed: object) -> None:
    with request_errors():
        check("episodes", episodes, optional(positive_int))
        check("seed", seed, optional(non_negative_int))


def _watch_writing(
    agent: Agent, recipe: EnvRecipe, terminal: Terminal, prompts: int, seed: int
) -> list[float]:
    """Samples completions and shows each token's probability and advantage."""
    from rlbook.plots.completions import write, written_text
    from rlbook.seeding import rng_for

    rng = rng_for(seed, "evaluation")
    written = write(
        agent, recipe, rng.integers(2**31 - 1, size=prompts).tolist(), seed=int(rng.integers(2**31))
    )
    terminal.write(written_text(written, terminal))
    terminal.write()
    count = len(written.completions)
    terminal.write(
        f"mean reward {written.mean_reward:.3g} of {count} sampled completions of {prompts}"
        f" prompt{'s' if prompts > 1 else ''}"
    )
    return [completion.reward for completion in written.completions]


def _watch_window(
    agent: Agent, recipe: EnvRecipe, terminal: Terminal, episodes: int, seed: int, mode: str
) -> list[float]:
    """Lets the environment draw in its own window; the terminal states how each episode ended.

    Raises:
        RequestError: it has no window, or there is no screen.
    """
    if mode != "human":
        raise RequestError(f"render_mode must be 'human', got {mode!r}")
    if mode not in recipe.make().unwrapped.metadata.get("render_modes", []):
        raise RequestError(
            f"{recipe.name} has no window: it cannot be made with render_mode 'human'"
        )
    if not has_screen():
        raise RequestError(
            "render_mode 'human' needs a screen, but there is none; watch without it, or write a "
            "GIF"
        )
    returns = []
    for frame in play_frames(agent, recipe, mode, episodes=episodes, seed=seed):
        if frame.over:
            returns.append(frame.episode_return)
            terminal.write(_episode_summary(frame))
    return returns


def _episode_summary(frame: Frame) -> str:
    return f"episode {frame.episode}: return {frame.episode_return:.4g} in {frame.step} steps"


def _watch_playing(
    agent: Agent,
    recipe: EnvRecipe,
    terminal: Terminal,
    episodes: int,
    seed: int,
    pause: float | None,
) -> list[float]:
    stage = stage_for(agent, recipe)
    tried = try_render_modes(recipe)
    modes = [mode for mode, fault in tried.items() if fault is None]
    if stage is not None and "ansi" in modes and not terminal.colour:
        stage = None  # gymnasium's own text says where the agent stands in fewer lines
    mode = None if stage is not None else _mode(modes, terminal)
    if stage is None and mode is None and terminal.colour and tried.get("rgb_array"):
        terminal.write(terminal.faint(f"{recipe.name} is shown in numbers: {tried['rgb_array']}"))
    names, maze = action_names(recipe), _is_maze(recipe.make().unwrapped)
    if names is None and stage is not None:
        names = stage.actions
    wait = _seconds_per_frame(recipe) if pause is None and terminal.is_terminal else pause or 0.0
    returns = []
    for frame in play_frames(agent, recipe, mode, episodes=episodes, seed=seed):
        terminal.redraw(
            frame_text(_draw_on_board(frame, stage, terminal), terminal, names, maze=maze)
        )
        ends = frame.over or frame.step == 0
        time.sleep(max(wait, RESET_PAUSE) if ends and wait else wait)
        if frame.over:
            returns.append(frame.episode_return)
            terminal.write(terminal.bold(_episode_summary(frame)))
            if frame.cut:
                terminal.write(
                    "it did not finish, and was cut off, because the environment has no time limit"
                )
            terminal.write()
    return returns


def _draw_on_board(frame: Frame, stage: BoardStage | None, terminal: Terminal) -> Frame:
    """The same moment on the environment's board, if it has one."""
    if stage is None:
        return frame
    moment = stage.at(frame.obs)
    return replace(
        frame, picture=value_map_text(moment.chart, terminal, moment.state), note=moment.note
    )


def _mode(modes: Sequence[str], terminal: Terminal) -> str | None:
    """The render mode: text if the environment has it; pixels as coloured blocks if there is
    colour; otherwise numbers alone."""
    if "ansi" in modes:
        return "ansi"
    return "rgb_array" if "rgb_array" in modes and terminal.colour else None


def _seconds_per_frame(recipe: EnvRecipe) -> float:
    """The seconds per frame."""
    return 1.0 / float(recipe.make().metadata.get("render_fps") or FRAMES_PER_SECOND)


def _is_maze(env: object) -> bool:
    return hasattr(getattr(env, "tables", None), "layout")


# One frame


def frame_text(
    frame: Frame, terminal: Terminal, names: Sequence[str] | None = None, *, maze: bool = False
) -> str:
    """The environment's rendering with a caption below it; without a rendering, the observation's
    numbers; a `maze` is coloured."""
    parts = [f"step {frame.step}"]
    if frame.step:
        parts += [f"action {_action(frame.action, names)}", f"reward {frame.reward:.4g}"]
    parts += [f"return {frame.episode_return:.4g}", *([frame.note] if frame.note else [])]
    caption = terminal.faint("   ".join(parts))
    if isinstance(frame.picture, str):
        text = frame.picture.strip("\n")
        return f"{_maze_text(text, terminal) if maze else terminal.own_colours(text)}\n{caption}"
    if frame.picture is not None and terminal.colour:
        return f"{picture_text(np.asarray(frame.picture), terminal)}\n{caption}"
    return f"{caption}   observation {_numbers(frame.obs)}"


def _action(action: ArrayLike, names: Sequence[str] | None) -> str:
    if names is not None:
        return names[int(np.asarray(action))]
    return _numbers(action)


def _numbers(value: ArrayLike | dict[str, ArrayLike]) -> str:
    """Numbers in brackets with three digits each; at most eight of them."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_numbers(part)}" for name, part in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(_numbers, value))
    numbers = np.asarray(value).reshape(-1)
    shown = " ".join(f"{number:.3g}" for number in numbers[:8].tolist()) + (
        " …" if len(numbers) > 8 else ""
    )
    return shown if np.ndim(value) == 0 else f"[{shown}]"


def _maze_text(text: str, terminal: Terminal) -> str:
    """A maze's map, its cells two characters wide and in the book's colours; unchanged without
    colour."""
    if not terminal.colour:
        return text
    from rlbook.envs.rendering import AGENT, COLOURS

    cells = {
        WALL: terminal.paint("  ", paper=COLOURS[WALL]),
        FREE[0]: terminal.paint("  ", paper=COLOURS[FREE[0]]),
        START: terminal.paint("S ", ink=COLOURS[WALL], paper=COLOURS[START]),
        GOAL: terminal.paint("G ", ink=COLOURS[WALL], paper=COLOURS[GOAL]),
        AGENT: terminal.paint(
            "● " if terminal.arrows[0] == "↑" else "A ",
            ink=COLOURS[AGENT],
            paper=COLOURS[FREE[0]],
            bold=True,
        ),
    }
    return "\n".join(
        "".join(cells.get(character, character) for character in line) for line in text.split("\n")
    )
