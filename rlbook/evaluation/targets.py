"""The arguments of `rlbook.evaluate`: a run, an agent or a language model, and the environment to
act in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rlbook.agent import Agent, NoHyperparameters
from rlbook.errors import RequestError, request_errors
from rlbook.interaction.environments import TOKENS, EnvLike, EnvRecipe
from rlbook.networks.model_spec import ModelSpec
from rlbook.runs.other_libraries import hint_of
from rlbook.runs.parts import check_device, model_agent, model_folder
from rlbook.runs.request import Request
from rlbook.runs.run import Run, env_for, load, load_policy
from rlbook.runs.storage.folder import CONFIG, read_config
from rlbook.seeding import rng_for

EPISODES, MOST_PROMPTS = 100, 512
FILES = ("data", "held_out_data")
"""The arguments of an environment that name a file of prompts."""
ADAPTER = "adapter_config.json"
EXAMPLE = '--env Addition-v0 (env="Addition-v0")'


class FunctionAgent(Agent):
    """Acts by a function of the environment's own observation, such as a rule written by hand."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__(None, NoHyperparameters())  # what it sees is not adapted to it
        self.function = function

    def act(self, observation: object, *, explore: bool = True) -> Any:
        return self.function(observation)


class Target(NamedTuple):
    """The agent to evaluate, and its environment."""

    agent: Agent
    recipe: EnvRecipe  # the environment as training would make it
    played: EnvRecipe  # as the evaluation makes it, such as with held-out prompts
    run: Run | None  # None of an agent alone, or of a model's folder

    @property
    def episodes(self) -> int:
        """The default number of episodes: every prompt of another file once, at most 512; otherwise
        100."""
        rules = None
        if not self.played.asked.isdisjoint(FILES):
            rules = getattr(self.played.make().unwrapped, "rules", None)
        return EPISODES if rules is None else min(len(rules.texts), MOST_PROMPTS)


def language_model_folder(target: object) -> str | None:
    """The Hugging Face folder to evaluate; None if the target is something else, such as a run's
    folder.

    Raises:
        RequestError: it holds an adapter, without the model that this was trained on.
    """
    if isinstance(target, str | Path) and (Path(target) / ADAPTER).is_file():
        raise RequestError(
            f"{target} holds an adapter alone; name the model that it was trained on, and the adapter"
            f" beside it: MODEL --env ID --model.adapter {target}"
        )
    folder = model_folder(target)
    return None if folder is None or (Path(folder) / CONFIG).exists() else folder


def find_target(
    target: Run | Agent | Target | Callable[[Any], Any] | str | Path,
    env: EnvLike | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    model: object = None,
    seed: int = 0,
    option_names: tuple[str, ...] = (),
    **options: Any,
) -> Target:
    """The agent and its environment.

    Args:
        target: a run, a run's folder, the folder of a language model, an agent, or a function from
            an observation to an action; a `Target` is returned as it is.
        env: in place of the run's own. One that is named by its id is played as an evaluation of a
            run plays its own, such as on held-out prompts, and a language model reads it with its
            own tokens.
        env_kwargs: arguments of that environment, or in place of those of the run's own.
        model: how the model of a folder is read, what `ModelSpec.from_value` takes.
        seed: of the noise of a language model that samples.
        option_names: other options, to be named where one is unknown.
        options: what `rlbook.load` takes.

    Raises:
        RequestError: an environment is missing, does not fit, or something has no effect.
    """
    if isinstance(target, Target):
        return target
    if isinstance(target, type):
        raise RequestError(
            f"{target.__name__} is a class; give an agent made of it, or the run in which one was"
            " trained"
        )
    if callable(target) and not isinstance(target, Agent):
        target = FunctionAgent(target)
    folder = language_model_folder(target)
    _check_options(target, folder, env, env_kwargs, model, options, option_names)
    trusted, given = bool(options.get("allow_import")), dict(env_kwargs or {})
    named = isinstance(env, str)
    recipe = None if env is None else EnvRecipe.from_env(env, allow_import=trusted, kwargs=given)
    if recipe is not None and given:
        recipe = replace(recipe, kwargs={}).with_arguments(given)
    if folder is not None:
        assert recipe is not None
        return _model_target(folder, recipe, model, seed)
    if isinstance(target, Agent):
        assert recipe is not None
        _check_tokens(target, recipe)
        return Target(target, recipe, recipe.for_evaluation() if named else recipe, None)
    run = target if isinstance(target, Run) else load_target(target, env, options)
    own = run.request.recipe
    if recipe is None:
        recipe = own.with_arguments(given) if given else own
    else:
        if named and given.keys().isdisjoint(TOKENS) and recipe.reads_text():
            recipe = recipe.with_tokens_of(own.kwargs, own.held)
        recipe = replace(recipe, preprocessing=own.preprocessing)
    if recipe is not own:
        _check_tokens(run.agent, recipe)
    if env is None or named:
        return Target(run.agent, recipe, recipe.for_evaluation(), run)
    preprocessing = recipe.preprocessing.for_evaluation()
    return Target(run.agent, recipe, replace(recipe, preprocessing=preprocessing), run)


def load_target(folder: str | Path, env: EnvLike | None, options: dict[str, Any]) -> Run:
    """The run of a folder. A module of a reward is imported only where what is made of the run asks
    for that reward."""
    loading = {name: value for name, value in options.items() if value is not None}
    needed = env_for(folder, env)
    if needed is not None or not {*loading} <= {"checkpoint", "allow_import"}:
        return load(folder, env=needed, **options)
    run = load_policy(folder, **loading)
    written = Request.from_yaml(
        read_config(Path(folder))[0], allow_import=run.request.recipe.allow_import
    )
    recipe = replace(run.request.recipe, kwargs=written.recipe.kwargs)
    run.request = replace(run.request, recipe=recipe)
    return run


def _model_target(folder: str, recipe: EnvRecipe, model: object, seed: int) -> Target:
    """A language model that was not trained here, in the named environment."""
    with request_errors("model: "):
        spec = ModelSpec.from_value(model) or ModelSpec()
        if spec.folder is not None or spec.config is not None:
            raise ValueError(
                f"{folder} is the model; neither another folder nor sizes can be given"
            )
    check_device(spec.device)
    agent = model_agent("", folder, recipe, spec=spec, exploration=rng_for(seed, "exploration"))
    recipe = recipe.with_tokens_of({"model": folder})
    return Target(agent, recipe, recipe.for_evaluation(), None)


def describe(played: EnvRecipe) -> dict[str, str]:
    """The place of an evaluation as text: the environment, and for texts the prompts and the
    reward."""
    env: Any = played.make().unwrapped
    rules = getattr(env, "rules", None)
    if rules is None:
        changed = ", ".join(f"{name} {played.kwargs[name]}" for name in sorted(played.asked))
        return {"environment": f"{played.name}{f' with {changed}' if changed else ''}"}
    return {
        "environment": played.name,
        "prompts": rules.describe_prompts(),
        "reward": str(rules.rewards),
    }


def _check_tokens(agent: Agent, recipe: EnvRecipe) -> None:
    """Raises RequestError if an id stands for another text in the environment than in the one that
    the agent was trained in."""
    ours, theirs = getattr(agent, "codec", None), getattr(recipe.make().unwrapped, "codec", None)
    if ours is None or theirs is None:
        return
    from rlbook.llm.tokenizers.tokenizer import same_tokens  # which tables do without

    if same_tokens(ours, theirs):
        _check_length(agent, recipe)
        return
    unknown = sorted((theirs.characters or frozenset()) - (ours.characters or frozenset()))
    if ours.characters is not None and unknown:
        raise RequestError(
            f"{recipe.name} has characters that the model has no tokens for:"
            f" {''.join(unknown)[:40]!r} (it has: {''.join(sorted(ours.characters))[:200]})"
        )
    raise RequestError(
        f"{recipe.name} has another tokenizer than the agent was trained with; name the agent's"
        " to the environment, as tokenizer (the run's folder) or as model"
    )


def _check_length(agent: Agent, recipe: EnvRecipe) -> None:
    """Raises RequestError if a text of the environment may be longer than the agent's model reads."""
    model = getattr(getattr(agent, "policy", None), "model", None)
    if model is None:
        return
    from rlbook.llm.models.build import check_positions  # torch, which tables do without

    with request_errors():
        check_positions(model, recipe.for_evaluation().make().unwrapped.rules)  # type: ignore[attr-defined]


def _check_options(
    target: Run | Agent | Callable[[Any], Any] | str | Path,
    folder: str | None,
    env: EnvLike | None,
    env_kwargs: Mapping[str, Any] | None,
    model: object,
    options: dict[str, Any],
    known: tuple[str, ...],
) -> None:
    """Raises RequestError for an option that would have no effect, because the result would answer
    a different question."""
    loading = [name for name in inspect.signature(load).parameters if name not in ("folder", "env")]
    for name in options:
        if name not in loading:
            hint = hint_of(name, [*known, *loading])
            raise RequestError(f"evaluate has no option {name!r}{hint}")
    if env is None and folder is not None:
        raise RequestError(
            f"{folder} holds a language model, which has no environment of its own; name one, such"
            f" as {EXAMPLE}"
        )
    if env is None and isinstance(target, Agent):
        raise RequestError("an agent does not determine its environment; give env")
    if env_kwargs and env is not None and not isinstance(env, str):
        raise RequestError(
            "env_kwargs are arguments for an env given by its id, or for the run's own; they cannot"
            " change an environment that already exists"
        )
    if model is not None and folder is None:
        raise RequestError(
            f"model sets how a folder's model is loaded, but {_describe_target(target)} has its own"
        )
    for name, value in options.items():
        importing = name == "allow_import" and (isinstance(env, str) or bool(env_kwargs))
        used = importing or (isinstance(target, str | Path) and folder is None)
        if not used and value not in (None, False):
            raise RequestError(
                f"{name} says how to load a run's folder, and evaluate was given"
                f" {_describe_target(target) if folder is None else 'the folder of a model'}; give the"
                f" folder{'' if folder is None else ' of a run'}"
            )


def _describe_target(target: object) -> str:
    if isinstance(target, str | Path):
        return "a run"
    return "an agent" if isinstance(target, Agent) else "a run that is loaded"
