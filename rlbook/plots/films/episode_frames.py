"""Frames of greedy episodes: the environment's rendering at every step while an agent acts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import Agent, Step, takes_action_mask
from rlbook.checks import ENDLESS
from rlbook.errors import RequestError, one_line
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.loop import act_step_reset
from rlbook.interaction.resumable import ResumableEnv
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.spaces import AdaptedEnv, adapt_to
from rlbook.seeding import rng_for


@dataclass(frozen=True)
class Frame:
    """One moment of an episode; an episode of n steps has n + 1."""

    picture: Any  # [H, W, 3] uint8, or text; None where nothing can be drawn
    obs: Any  # what the environment shows
    episode: int  # from 1
    step: int  # environment steps since the reset
    action: Any  # what led here, as the agent named it; None at the reset
    reward: float  # reward of the step, in reward units
    episode_return: float  # so far, undiscounted
    over: bool  # the last one of its episode
    note: str = ""  # what the picture does not show
    cut: bool = False  # it did not finish: nothing would have ended it


PATIENCE = 200  # steps; an episode that might never end is shown no longer


def play_frames(
    agent: Agent, recipe: EnvRecipe, mode: str | None, *, episodes: int, seed: int
) -> Iterator[Frame]:
    """Plays greedy episodes and yields every moment, the resets included. The agent is not changed.

    Where an environment has no time limit an episode is cut after 200 steps: a greedy policy may
    walk in circles forever.

    Args:
        agent: who acts.
        recipe: where.
        mode: a render mode of that environment, or None for no pictures.
        episodes: how many.
        seed: decides how they start.

    Raises:
        RequestError: something that the environment needs for drawing is not installed.
    """
    if mode == "rgb_array":
        hide_windows()
    env = with_mode(recipe, mode).make()
    shown = ResumableEnv(env)  # which remembers the observation as the environment shows it
    interaction = SingleInteraction(
        AdaptedEnv(shown, adapt_to(type(agent), env, agent.config)),
        seeds=rng_for(seed, "evaluation").integers(2**31 - 1, size=episodes).tolist(),
        longest=PATIENCE if recipe.may_never_end else ENDLESS,
    )
    try:
        yield from _frames(agent.bind_env(env), env, shown, interaction, recipe)
    finally:
        env.close()


def hide_windows() -> None:
    """Makes pygame and MuJoCo draw into memory if there is no display; otherwise nothing is
    changed. Call it before they draw. By default MuJoCo would open a window, which ends the process
    there.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # a package's output is not a result
    if not has_screen():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("MUJOCO_GL", "egl")


def has_screen() -> bool:
    """Whether a window can be opened: on Linux, whether a display is set."""
    return not sys.platform.startswith("linux") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def with_mode(recipe: EnvRecipe, mode: str | None) -> EnvRecipe:
    """The same environment with this render mode; one that was made without an id keeps its own."""
    return (
        recipe
        if mode is None or recipe.id is None
        else replace(recipe, kwargs=recipe.kwargs | {"render_mode": mode})
    )


def _frames(
    agent: Agent,
    env: gymnasium.Env,
    shown: ResumableEnv,
    interaction: SingleInteraction,
    recipe: EnvRecipe,
) -> Iterator[Frame]:
    frame = Frame(None, None, 0, 0, None, 0.0, 0.0, True)

    def first_frame() -> Frame:
        return Frame(_render_image(env), shown.obs, frame.episode + 1, 0, None, 0.0, 0.0, False)

    memory = agent.new_memory()

    def frame_after(step: Step) -> Frame:
        if memory is not None:
            memory.forget(step.terminated or step.truncated)
        earned, over = frame.episode_return + step.reward, step.terminated or step.truncated
        cut = step.truncated and recipe.may_never_end and frame.step + 1 == PATIENCE
        return Frame(
            _render_image(env),
            shown.obs,
            frame.episode,
            frame.step + 1,
            step.action,
            step.reward,
            earned,
            over,
            cut=cut,
        )

    interaction.start()
    yield (frame := first_frame())
    for seen in act_step_reset(interaction, chooser(agent, memory), frame_after):
        yield (frame := seen)
        if frame.over and interaction.obs is not None:
            yield (frame := first_frame())


def chooser(agent: Agent, memory: Any = None) -> Callable[..., Any]:
    """The greedy action for one observation: (obs, action_mask) → action. A batched agent gets a
    batch of one; one without action masks is called without it; one with a memory of the episode
    uses the given one.
    """
    takes_mask = takes_action_mask(agent.act)
    remembered = {} if memory is None else {"memory": memory}

    def choose(
        obs: ArrayLike | dict[str, ArrayLike], action_mask: NDArray[np.bool_] | None = None
    ) -> Any:
        masked = action_mask is not None and takes_mask
        if not agent.batched:
            return agent.act(obs, explore=False, **({"action_mask": action_mask} if masked else {}))
        batch = (
            {name: np.asarray(part)[None] for name, part in obs.items()}
            if isinstance(obs, dict)
            else np.asarray(obs)[None]
        )
        return agent.act(
            batch,
            explore=False,
            **remembered,
            **({"action_mask": action_mask[None]} if masked else {}),  # type: ignore[index]
        )[0]

    return choose


def _render_image(env: gymnasium.Env) -> Any:
    """The environment's rendering. Raises RequestError if it fails for any reason: a package, a
    display, a driver."""
    if env.render_mode is None:
        return None
    try:
        return env.render()
    except Exception as error:
        raise RequestError(
            f"this environment could not be drawn: {render_error_text(error)}"
        ) from error


def render_error_text(error: Exception) -> str:
    """A renderer's error on one line, and what to install if that would help."""
    said = one_line(error)
    if isinstance(error, gymnasium.error.DependencyNotInstalled | ImportError) and "pygame" in said:
        return 'it needs pygame: pip install "rlbook[games]"'
    return (
        said
        if isinstance(error, gymnasium.error.Error | ImportError | RequestError)
        else f"{type(error).__name__}: {said}"
    )


def render_modes(recipe: EnvRecipe) -> list[str]:
    """The render modes that work for an environment on this machine, found by trying."""
    return [mode for mode, fault in try_render_modes(recipe).items() if fault is None]


def try_render_modes(recipe: EnvRecipe) -> dict[str, str | None]:
    """Render mode → None, or why the environment cannot be rendered that way here: a missing
    package, no display, a failing driver."""
    if recipe.id is None:
        assert recipe.instance is not None
        return {recipe.instance.render_mode: None} if recipe.instance.render_mode else {}
    hide_windows()
    found: dict[str, str | None] = {}
    for mode in recipe.make().unwrapped.metadata.get("render_modes", []):
        if mode not in ("ansi", "rgb_array"):
            continue
        try:
            env = with_mode(recipe, mode).make()
            env.reset(seed=0)
            env.render()
            found[mode] = None
        except Exception as error:  # whatever a renderer raises
            found[mode] = render_error_text(error)
    return found
