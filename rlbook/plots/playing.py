"""Greedy episodes, seen: what an environment draws at every step while an agent acts in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlbook.agent import Agent
from rlbook.errors import RequestError
from rlbook.interaction.environments import Recipe
from rlbook.seeding import rng_for


@dataclass(frozen=True)
class Frame:
    """One moment of an episode; an episode of n steps has n + 1."""

    picture: Any                             # [H, W, 3] uint8, or text; None where nothing can be drawn
    obs: Any                                 # what the environment shows
    episode: int                             # from 1
    step: int                                # environment steps since the reset
    action: Any                              # what led here, as the agent named it; None at the reset
    reward: float                            # what it was paid, in reward units
    episode_return: float                    # so far, undiscounted
    over: bool                               # the last one of its episode


def play_frames(agent: Agent, recipe: Recipe, mode: str | None, *, episodes: int, seed: int) -> Iterator[Frame]:
    """Plays greedy episodes and yields every moment, the resets included. Nothing in the agent changes.

    Args:
        agent: who acts.
        recipe: where.
        mode: a render mode of that environment, or None for no pictures.
        episodes: how many.
        seed: decides how they start.

    Raises:
        RequestError: something that the environment needs for drawing is not installed.
    """
    from rlbook.interaction.spaces import adapt_to

    env = with_mode(recipe, mode).make()
    translation = adapt_to(type(agent), env, agent.config)
    agent = agent.bind_env(env)
    starts = rng_for(seed, "evaluation").integers(2**31 - 1, size=episodes)
    try:
        for episode, start in enumerate(starts, start=1):
            yield from _episode(agent, env, translation, int(start), episode)
    finally:
        env.close()


def with_mode(recipe: Recipe, mode: str | None) -> Recipe:
    """The same environment, drawing; one that was made without an id draws as it was made to."""
    return recipe if mode is None or recipe.id is None else replace(recipe, kwargs=recipe.kwargs | {"render_mode": mode})


def _episode(agent: Agent, env: Any, translation: Any, seed: int, episode: int) -> Iterator[Frame]:
    obs, _ = env.reset(seed=seed)
    frame = Frame(_drawn(env), obs, episode, 0, None, 0.0, 0.0, False)
    yield frame
    while not frame.over:
        action = _choose(agent, obs if translation.observe is None else translation.observe(obs))
        obs, reward, terminated, truncated, _ = env.step(action if translation.act is None else translation.act(action))
        reward, over = float(reward), bool(terminated or truncated)
        frame = Frame(_drawn(env), obs, episode, frame.step + 1, action, reward, frame.episode_return + reward, over)
        yield frame


def _choose(agent: Agent, obs: Any) -> Any:
    """The greedy action for one observation; an agent of many streams gets a batch of one."""
    if not agent.batched:
        return agent.act(obs, explore=False)
    batch = {name: np.asarray(part)[None] for name, part in obs.items()} if isinstance(obs, dict) else np.asarray(obs)[None]
    return agent.act(batch, explore=False)[0]


def _drawn(env: Any) -> Any:
    from gymnasium.error import DependencyNotInstalled

    if env.render_mode is None:
        return None
    try:
        return env.render()
    except DependencyNotInstalled as error:
        raise RequestError(f"drawing this environment needs a package that is not installed: {error}") from None


def render_modes(recipe: Recipe) -> list[str]:
    """The ways in which an environment can be drawn here and now, tried out."""
    import gymnasium

    modes = []
    if recipe.id is None:
        assert recipe.instance is not None
        return [recipe.instance.render_mode] if recipe.instance.render_mode else []
    for mode in recipe.make().unwrapped.metadata.get("render_modes", []):
        if mode not in ("ansi", "rgb_array"):
            continue
        try:
            env = with_mode(recipe, mode).make()
            env.reset(seed=0)
            env.render()
        except (gymnasium.error.DependencyNotInstalled, ImportError, RequestError):
            continue
        modes.append(mode)
    return modes
