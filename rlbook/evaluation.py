"""`rlbook.evaluate`: whole greedy episodes of a run, a run's folder or an agent. Nothing in the agent changes."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlbook.agent import Agent
from rlbook.checks import nearest, whole_number
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvLike, Recipe
from rlbook.interaction.playing import Evaluation, play
from rlbook.registry import name_of
from rlbook.runs.run import Run, load
from rlbook.seeding import rng_for

__all__ = ["Evaluation", "evaluate"]


MOST_EPISODES = 10_000_000


def evaluate(
    target: Run | Agent | str | Path, env: EnvLike | None = None, episodes: int = 100, seed: int | None = None, *,
    explore: bool = False, env_kwargs: Mapping[str, Any] | None = None, temperature: float | None = None, top_p: float | None = None,
    top_k: int | None = None, min_p: float | None = None, repetition_penalty: float | None = None, **options: Any,
) -> Evaluation:
    """Plays `episodes` whole episodes, greedily unless told otherwise.

    Args:
        target: a run, a run's folder, or an agent (which then needs `env`).
        env: an id or an environment to play in instead of the run's own; a token run's own is its held-out prompts.
        episodes: how many; episode i starts from reset seed `base + i`, so the result does not depend on how many run side by side.
            Where the environment sets no limit itself, an episode is cut after 10 000 steps.
        seed: gives the base; None is the run's own generator for evaluation.
        explore: act as in training: a policy samples, an ε-greedy agent tries things. A copy of the agent does, with a copy of its RNGs.
        env_kwargs: arguments for an `env` given by its id.
        temperature: of a language model, as are the four below: divides the logits, 0 for the likeliest token; see
            `rlbook.llm.sampling.Sampling`. Any of the five makes the model sample, with noise that follows from `seed`.
        top_p: the likeliest tokens that have this probability together are drawn from.
        top_k: so many of the likeliest tokens are drawn from.
        min_p: tokens with this share of the likeliest one's probability at least are drawn from.
        repetition_penalty: above 1, tokens that stand in the text already become less likely.
        options: for a folder, what `rlbook.load` takes (`checkpoint`, `allow_import`, `workers`).

    Raises:
        RequestError: `episodes` below 1, a negative seed, an agent without `env`, an environment the agent does not fit, or an option
            that is unknown or has no effect here.
    """
    episodes = whole_number("episodes", episodes, least=1, most=MOST_EPISODES)
    seed = None if seed is None else whole_number("seed", seed, least=0)
    _check_options(target, env, env_kwargs, options)
    asked = {
        "temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p, "repetition_penalty": repetition_penalty,
    }  # fmt: skip
    sampling = {name: value for name, value in asked.items() if value is not None}
    recipe = None if env is None else Recipe.of(env, allow_import=bool(options.get("allow_import")), kwargs=dict(env_kwargs or {}))
    if isinstance(target, Agent):
        if recipe is None:
            raise RequestError("an agent alone does not say where to play; give env")
        return play(_sampling(target, sampling, seed or 0), recipe, episodes, seed or 0, explore=explore or bool(sampling))
    run = target if isinstance(target, Run) else load(target, env=env, **options)
    recipe = recipe or run.request.recipe.for_evaluation()
    seed = run.request.seed if seed is None else seed
    agent = _sampling(run.agent, sampling, seed)
    with run.workers or contextlib.nullcontext():
        return play(agent, recipe, episodes, seed, explore=explore or bool(sampling), workers=run.workers)


def _sampling(agent: Agent, asked: dict[str, Any], seed: int) -> Agent:
    """The agent, or a shallow copy of it that chooses its tokens as asked."""
    if not asked:
        return agent
    from rlbook.llm.sampling import sampled

    try:
        policy = sampled(getattr(agent, "policy", None), asked)
    except ValueError as error:
        raise RequestError(str(error)) from error
    if policy is None:
        name = name_of(type(agent))
        raise RequestError(f"{next(iter(asked))} says how the tokens of a language model are chosen, and this agent of {name} has none")
    other: Any = copy.copy(agent)
    other.policy, other.exploration = policy, rng_for(seed, "noise")
    return other


def _check_options(
    target: Run | Agent | str | Path, env: EnvLike | None, env_kwargs: Mapping[str, Any] | None, options: dict[str, Any]
) -> None:
    """Raises RequestError at an option that would be left aside: the number printed would answer another question."""
    loading = [name for name in inspect.signature(load).parameters if name not in ("folder", "env")]
    for name in options:
        if name not in loading:
            match = nearest(name, [*inspect.signature(evaluate).parameters, *loading])
            raise RequestError(f"evaluate has no option {name!r}{f'; did you mean {match!r}?' if match else ''}")
    if env_kwargs and not isinstance(env, str):
        raise RequestError("env_kwargs are arguments for an env that is named by its id; give env too")
    for name, value in options.items():
        used = isinstance(target, str | Path) or (name == "allow_import" and isinstance(env, str))
        if not used and value not in (None, False):
            what = "an agent" if isinstance(target, Agent) else "a run that is loaded"
            raise RequestError(f"{name} says how to load a run's folder, and evaluate was given {what}; give the folder")
