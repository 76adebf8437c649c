"""`rlbook.evaluate`: whole greedy episodes of a run, a run's folder or an agent. Nothing in the agent changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlbook.agent import Agent
from rlbook.checks import whole_number
from rlbook.errors import RequestError
from rlbook.interaction.environments import Recipe
from rlbook.interaction.playing import Evaluation, play
from rlbook.runs.run import Run, load

__all__ = ["Evaluation", "evaluate"]


def evaluate(
    target: Run | Agent | str | Path, env: Any = None, episodes: int = 100, seed: int | None = None, *,
    explore: bool = False, **options: Any,
) -> Evaluation:
    """Plays `episodes` whole episodes, greedily unless told otherwise.

    Args:
        target: a run, a run's folder, or an agent (which then needs `env`).
        env: an id or an environment to play in instead of the run's own; a token run's own is its held-out prompts.
        episodes: how many; episode i starts from reset seed `base + i`, so the result does not depend on how many run side by side.
            Where the environment sets no limit itself, an episode is cut after 10 000 steps.
        seed: gives the base; None is the run's own evaluation stream.
        explore: act as in training: a policy samples, an ε-greedy agent tries things. A copy of the agent does, with a copy of its RNGs.
        options: for a folder, what `rlbook.load` takes (`checkpoint`, `allow_import`).

    Raises:
        RequestError: `episodes` below 1, a negative seed, an agent without `env`, or an environment the agent does not fit.
    """
    episodes = whole_number("episodes", episodes, least=1)
    seed = None if seed is None else whole_number("seed", seed, least=0)
    if isinstance(target, Agent):
        if env is None:
            raise RequestError("an agent alone does not say where to play; give env")
        return play(target, Recipe.of(env), episodes, seed or 0, explore=explore)
    run = target if isinstance(target, Run) else load(target, env=env, **options)
    recipe = run.request.recipe.for_evaluation() if env is None else Recipe.of(env)
    return play(run.agent, recipe, episodes, run.request.seed if seed is None else seed, explore=explore)
