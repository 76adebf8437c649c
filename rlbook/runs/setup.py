"""Builds the parts of a run from a request: the environment adapted to the agent, the agent, and
its data source."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gymnasium import Env
from gymnasium.spaces import Dict, Space
from gymnasium.vector import VectorEnv

from rlbook.agent import Agent, Data, Parts, Planner, check_initialised
from rlbook.checks import ENDLESS
from rlbook.data.text_files import TextFile
from rlbook.errors import ImportRefusedError, RequestError, request_errors
from rlbook.fast.library_choice import CHOICE, asked_library
from rlbook.fast.tabular.table_interaction import interaction_for
from rlbook.functional.schedules import Schedule
from rlbook.interaction.expert_actions import AdvisedVectorEnv, check_advisable, check_expert
from rlbook.interaction.exploration_bonus import CountBonus
from rlbook.interaction.image_preprocessing import ClippedEnv, ClippedVectorEnv
from rlbook.interaction.learned_reward import (
    LearnedReward,
    LearnedRewardEnv,
    LearnedRewardVectorEnv,
    check_readable,
    model_weight,
)
from rlbook.interaction.play_episodes import adapted_vector, training_limit
from rlbook.interaction.process_group import process_group
from rlbook.interaction.resumable import ResumableEnv
from rlbook.interaction.spaces import AdaptedEnv, AdaptedVectorEnv, adapt_to
from rlbook.interaction.vector_envs.split_vector import SplitVectorEnv
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.interaction.vector_envs.workers import Workers
from rlbook.registry import check_teachable
from rlbook.runs.parts import agent_of, parts_of
from rlbook.runs.sources import DataSource, EnvironmentSource, ModelSource, Source
from rlbook.seeding import rng_for

if TYPE_CHECKING:
    from rlbook.runs.request import Request

Adapted = AdaptedEnv | AdaptedVectorEnv
CHAT = "Chat-v0"
BONUS_COEF = 0.1
"""The default size of an exploration bonus, in reward units."""


class RunSetup(NamedTuple):
    """The parts of a run, ready to train."""

    agent: Agent
    source: Source
    notes: tuple[str, ...]
    """The adaptations of the environment to the agent, and what the run learns from."""


def set_up(
    request: Request, load: Callable[[Path], Agent], workers: Workers | None = None
) -> RunSetup:
    """Makes the environment, the agent and its source. `load` reads a run's agent from its folder;
    `workers` step the environments.

    Raises:
        RequestError: the pair does not train, with the reason, or something that was named is not
            there.
    """
    with request_errors():
        asked_library()
    if workers is not None and request.recipe.make_native_vector(1) is not None:
        raise RequestError(
            f"{request.recipe.name} steps all its copies together in one process; workers must "
            f"be 1, got {workers.count}"
        )
    model = agent_of("reward_model", request.options.reward_model, load)
    try:
        env = _environment(request, model, workers)
    except ImportRefusedError:
        raise
    except RequestError as error:
        raise RequestError(_refusal(request, error)) from None
    parts = parts_of(request, load)
    if "reward_model" in request.agent.uses:
        parts = dataclasses.replace(parts, reward_model=model)
    try:
        if "advice" in request.agent.uses:
            env, parts = _add_expert(request, env, parts)
        if "demonstrations" in request.agent.uses:
            if parts.expert is None and request.options.data is None:
                check_teachable(request.agent, request.recipe.make())
            shown = functools.cache(lambda: _data(request, env, parts))
            parts = dataclasses.replace(parts, demonstrations=shown)
        ready = _ready(request, env, parts)
        return ready._replace(
            notes=ready.notes
            + _tokenizer_note(env)
            + _library_note(ready.agent)
            + _memory_note(ready.agent, env)
            + _replay_note(ready.agent)
            + _rate_note(ready.agent.config)
        )
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(_refusal(request, error)) from error


def _rate_note(config: Any) -> tuple[str, ...]:
    """A note if a schedule of the learning rate is combined with annealing to 0."""
    rate = getattr(config, "learning_rate", None)
    if not isinstance(rate, Schedule) or not getattr(config, "anneal_learning_rate", False):
        return ()
    return (
        f"the learning rate is {rate} times the remaining fraction of training, because "
        "anneal_learning_rate is true; anneal_learning_rate=False keeps the schedule unchanged",
    )


def _tokenizer_note(env: Adapted) -> tuple[str, ...]:
    """A note on a tokenizer that was trained on the environment's texts: its number of tokens."""
    choice = getattr(getattr(env.unwrapped, "rules", None), "choice", None)
    if choice is None or not choice.is_trained:
        return ()
    size, asked = env.unwrapped.codec.vocabulary_size, choice.vocabulary_size  # type: ignore[attr-defined]
    fewer = f"; the texts have too few pairs or words for {asked}" if asked and size < asked else ""
    return (f"tokenizer {choice.name}: {size:,} tokens{fewer}",)


def _library_note(agent: Agent) -> tuple[str, ...]:
    """A note on the matrix library of an agent with networks, if it is not the one recommended for
    this CPU."""
    if not asked_library() or not hasattr(agent, "optimizer"):
        return ()
    from rlbook.fast.matrix_product import LIBRARY  # torch, which tables do without

    return (f"matrix products: {LIBRARY}, as {CHOICE} asks",)


def _memory_note(agent: Agent, env: Adapted) -> tuple[str, ...]:
    """A note on the memory that training a language model needs, if it is worth mentioning."""
    if getattr(env.unwrapped, "policy_kind", None) != "language_model" or not isinstance(
        env, AdaptedVectorEnv
    ):
        return ()
    # an agent that sees the tokens one-hot has a network of its own
    if not isinstance(env.observation_space, Dict):
        return ()
    from rlbook.llm.models.memory import memory_note  # torch, which tables do without

    asked = [getattr(agent.config, name, None) for name in ("micro_batch_size", "batch_size")]
    rows = next((size for size in asked if size is not None), env.num_envs)
    return memory_note(agent, rows, env.observation_space["tokens"].shape[-1])  # type: ignore[index]


def _replay_note(agent: Agent) -> tuple[str, ...]:
    """A note on the memory that a replay buffer of images takes, if it is worth mentioning."""
    replay: Any = getattr(agent, "replay", None)
    frames = getattr(replay, "frames", None)
    note = "" if frames is None else frames.note(replay.capacity)
    return (note,) if note else ()


def _refusal(request: Request, error: Exception) -> str:
    return f"{request.algorithm} does not train on {request.recipe.name}: {error}"


def environment_of(request: Request, load: Callable[[Path], Agent]) -> Adapted:
    """An environment like the agent's training environment, including its reward model."""
    return _environment(request, agent_of("reward_model", request.options.reward_model, load), None)


def _environment(request: Request, model: Agent | None, workers: Workers | None) -> Adapted:
    """The agent's training environment; its rewards come from `model`, if given, and are clipped if
    requested."""
    env = _rewarded_environment(request, model, workers)
    if not request.options.reward_clip:
        return env
    if isinstance(env, AdaptedEnv):
        return AdaptedEnv(ClippedEnv(env.env), env.adaptation)
    return AdaptedVectorEnv(ClippedVectorEnv(env.env), env.adaptation)


def _rewarded_environment(
    request: Request, model: Agent | None, workers: Workers | None
) -> Adapted:
    """The agent's training environment; its rewards come from `model`, if given."""
    group = process_group()
    if request.agent.batched and group is not None:
        adapted: list[Adapted] = []

        def make(count: int) -> VectorEnv:
            adapted.append(_vector(request, model, workers, count))
            return adapted[-1].env  # type: ignore[return-value]

        size = getattr(request.config, "group_size", 1)
        split = SplitVectorEnv(group, make, request.num_envs, size)
        return AdaptedVectorEnv(split, adapted[0].adaptation)
    if request.agent.batched:
        return _vector(request, model, workers, request.num_envs)
    raw = ResumableEnv(request.recipe.make())
    _check_named(model, raw)
    adaptation = adapt_to(request.agent, raw, request.config)
    paid: ResumableEnv | LearnedRewardEnv = raw
    if model is not None:
        _check_pays(request, model, raw)
        paid = LearnedRewardEnv(raw, model, request.options.reward_caution or 0.0)  # type: ignore[arg-type]
    bonus = _bonus(request, raw.observation_space)
    return AdaptedEnv(
        paid if bonus is None else LearnedRewardEnv(paid, bonus, added=True), adaptation
    )


def _vector(
    request: Request, model: Agent | None, workers: Workers | None, num_envs: int
) -> AdaptedVectorEnv:
    """The parallel training environments of an agent that has several."""
    env = adapted_vector(request.agent, request.recipe, num_envs, request.config, workers)
    _check_named(model, env.env)
    adaptation, bonus = env.adaptation, _bonus(request, env.env.single_observation_space)
    if model is not None:
        _check_pays(request, model, env.env)
        caution = request.options.reward_caution or 0.0
        env = AdaptedVectorEnv(LearnedRewardVectorEnv(env.env, model, caution), adaptation)  # type: ignore[arg-type]
    if bonus is not None:
        env = AdaptedVectorEnv(LearnedRewardVectorEnv(env.env, bonus, added=True), adaptation)
    return env


def _bonus(request: Request, space: Space) -> LearnedReward | None:
    """The requested exploration bonus, for observations of this space.

    Raises:
        RequestError: several processes share the environments, each of which would count alone.
    """
    options = request.options
    if options.exploration_bonus is None:
        return None
    if process_group() is not None:
        raise RequestError(
            "exploration_bonus counts the steps of all environments, which several processes do"
            " not have; train it in one process"
        )
    coef = BONUS_COEF if options.bonus_coef is None else options.bonus_coef
    if options.exploration_bonus == "count":
        return CountBonus(coef)
    from rlbook.networks.random_distillation import RandomDistillation  # torch

    return RandomDistillation(space, coef, rng_for(request.seed, "bonus"))


def _check_named(model: Agent | None, env: Env | VectorEnv) -> None:
    """Raises RequestError if the environment's rewards include a reward model and none was
    given."""
    if model is None and model_weight(env) is not None:
        raise RequestError(
            "one of its rewards is 'model'; give --reward-model RUN (reward_model=…)"
        )


def _add_expert(request: Request, env: Adapted, parts: Parts) -> tuple[AdaptedVectorEnv, Parts]:
    """The environment with an expert, and the agent queried for its labels: the named one, or else
    the exact planner.

    Raises:
        ValueError: there is no such expert, or none that could be asked here.
    """
    from rlbook.runs.demonstrations import exact_expert  # torch, which tables do without

    assert isinstance(env, AdaptedVectorEnv)
    if parts.expert is None:
        check_teachable(request.agent, request.recipe.make())
    else:
        check_advisable(env.env)
        check_expert(parts.expert, env.env)
    advised = AdvisedVectorEnv(env.env, lambda: parts.expert or exact_expert(request.recipe))
    return AdaptedVectorEnv(advised, env.adaptation), dataclasses.replace(
        parts, advice=advised.advised_actions
    )


def _check_pays(request: Request, model: Agent, env: Env | VectorEnv) -> None:
    """Raises RequestError if a reward model cannot score the steps of this environment."""
    name = type(model).__name__
    if not callable(getattr(model, "score_steps", None)):
        raise RequestError(f"reward_model must be a run of reward_model, got one of {name}")
    caution = request.options.reward_caution
    if caution and getattr(model.config, "members", 1) == 1:
        raise RequestError(
            "reward_caution needs an ensemble, but the reward model has one member; got"
            f" {caution:g}"
        )
    check_readable(model, env, request.recipe.name)


def _ready(request: Request, env: Adapted, parts: Parts) -> RunSetup:
    kind, notes = request.agent, env.adaptation.notes + _model_notes(request)
    given = _accepted_parts(kind, parts)
    source = _source_name(request)
    if source == "model":
        return _planning(request, env, given)
    agent = _make_agent(request, env, given)
    if source == "data":
        return RunSetup(
            agent,
            DataSource(lambda: _check_settings(agent, _data(request, env, parts))),
            notes + _prompts_note(request),
        )
    if agent.rollout == "episodes" and request.options.episodic_life:
        raise RequestError(
            f"{request.algorithm} learns from whole episodes, which do not end with a lost life; "
            "leave out episodic_life"
        )
    rng, longest = rng_for(request.seed, "environment"), training_limit(request.recipe)
    if isinstance(env, AdaptedEnv):
        interaction = interaction_for(agent, env, request.recipe, rng, longest)
    else:
        interaction = VectorInteraction(
            env,
            rng,
            rollout=agent.rollout,
            group_size=agent.group_size,
            longest=longest,
            scoring="round" if agent.awaits_round else "step",
        )
    if longest < ENDLESS:
        notes += (
            (
                f"{request.recipe.name} has no time limit; training episodes are cut off after "
                f"{longest:,} steps"
            ),
        )
        notes += (
            ("an evaluation takes about as many steps as training did since the one before",)
            if request.eval_every != 0
            else ()
        )
    return RunSetup(
        agent,
        EnvironmentSource(interaction),
        notes + ((interaction.note,) if interaction.note else ()),
    )


def _make_agent(request: Request, env: Adapted, parts: dict[str, Parts]) -> Agent:
    """The agent of a run, newly made.

    Raises:
        RequestError: a class of the user's whose `__init__` takes other arguments than `Agent`'s,
            or does not call it.
    """
    kind, arguments = request.agent, (env, request.config, request.seed)
    try:
        inspect.signature(kind).bind(*arguments, **parts)
    except TypeError as error:
        raise RequestError(
            f"{kind.__name__}.__init__ must take env, config and seed=0, as rlbook.Agent's does"
            f" ({error})"
        ) from None
    agent = kind(*arguments, **parts)
    check_initialised(agent)
    return agent


def _model_notes(request: Request) -> tuple[str, ...]:
    """Adds notes if a model's folder has no weights, or if its size changed default settings."""
    folder = request.recipe.kwargs.get("model")
    if not isinstance(folder, str) or not (Path(folder) / "config.json").is_file():
        return ()
    from rlbook.llm.models.model_folder import has_weights  # which tables do without
    from rlbook.llm.models.sizes import size_preset

    if not has_weights(folder):
        return (f"model: random weights from the seed, because {folder} has none",)
    chosen = {**vars(request.options), **vars(request.config)}
    by_size = size_preset(folder, request.options.model, request.agent)
    told = ", ".join(f"{name} {value}" for name, value in by_size.items() if chosen[name] == value)
    return (f"model: defaults for its size: {told}",) if told else ()


def _accepted_parts(kind: type[Agent], parts: Parts) -> dict[str, Parts]:
    """The `parts` that the agent's constructor accepts; none for a subclass whose constructor takes
    none.

    Raises:
        RequestError: the user named something that would not reach the agent.
    """
    taken = inspect.signature(kind).parameters.values()
    if not kind.uses or any(
        item.name == "parts" or item.kind is item.VAR_KEYWORD for item in taken
    ):
        return {"parts": parts} if kind.uses else {}
    for name in kind.uses:
        if getattr(parts, name) != getattr(Parts, name):
            raise RequestError(
                f"{kind.__name__}.__init__ has no argument parts, so {name} cannot be given"
            )
    return {}


def _source_name(request: Request) -> str:
    """The kind of source used here: recorded data if some was given, else the agent's first
    choice."""
    sources = request.agent.sources()
    if request.options.data is not None and "data" in sources:
        return "data"
    return "model" if "model" in sources else sources[0]


def _planning(request: Request, env: Adapted, parts: dict[str, Parts]) -> RunSetup:
    from rlbook.runs.planning_models import planning_model  # scipy, which most agents do without

    model, where_from = planning_model(request)
    agent = _make_agent(request, env, parts)
    if isinstance(agent, Planner):
        agent.check_model(model)
    return RunSetup(
        agent, ModelSource(model, exact=not where_from), env.adaptation.notes + where_from
    )


def _check_actions(request: Request, env: Adapted, recorded: tuple[int, ...]) -> None:
    """Raises RequestError if recorded actions of this shape do not fit the environment."""
    space = getattr(env, "single_action_space", env.action_space)
    if recorded != space.shape:
        raise RequestError(
            f"{request.algorithm} cannot learn from these data: their actions have shape "
            f"{list(recorded)}, but those of {request.recipe.name} have {list(space.shape or ())}"
        )


def _check_settings(agent: Agent, data: Data) -> Data:
    """Returns the data. Raises RequestError if the agent's settings do not fit them."""
    with request_errors():
        agent.check_data(data)
    return data


def _name_columns(kind: str) -> str:
    """A class of recorded data, and the columns that rows of text of this kind have."""
    from rlbook.data.schemas import COLUMNS

    return f"{kind} ({COLUMNS[kind]})" if kind in COLUMNS else kind


def _prompts_hint(request: Request, data: Data) -> str:
    """Where prompts belong, for an agent that answers them itself, and several answers, for one that
    learns a single one."""
    if request.recipe.name != CHAT:
        return ""
    if "environment" in request.agent.sources():
        return "; rows with prompts to answer are given as env.data"
    several = type(data).__name__ in ("Pairs", "Groups") and "Episodes" in request.agent.data_kinds
    return "; given as env.data, the best answer of each row is learned" if several else ""


def _prompts_note(request: Request) -> tuple[str, ...]:
    """A note that evaluation uses other prompts than the recorded rows."""
    named = {"task", "function", "data"} & set(request.recipe.kwargs)
    if (
        request.recipe.name != CHAT
        or named
        or not isinstance(request.options.data, str | Path | TextFile)
    ):
        return ()
    return (
        "evaluation asks sums, the default task of Chat-v0; env.data names a file with other "
        "prompts",
    )


def _data(request: Request, env: Adapted, parts: Parts) -> Data:
    """The named data set, or else demonstrations; shuffled with the run's seed."""
    from rlbook.data.data_set import DataSet
    from rlbook.data.episodes import Episodes
    from rlbook.data.files import IN_MEMORY
    from rlbook.data.files import load as load_data
    from rlbook.data.transitions import Steps
    from rlbook.runs import demonstrations as made  # torch, which tables do without

    data, kinds = request.options.data, request.agent.data_kinds
    in_pairs = "Pairs" in kinds and "Episodes" not in kinds
    if isinstance(data, str | Path | TextFile):
        data = load_data(data, env, kinds=kinds)
    elif isinstance(data, DataSet):
        data = data.fresh_copy()  # another run may learn from it, too
    elif data is None:
        made.check_makeable(request, env, parts)
    if data is None and "Steps" in kinds:
        data = made.random_walks(request, env)
    elif data is None and kinds == ("Groups",):
        data = made.candidates(request, env)
    elif data is None:
        data = (
            made.preferences(request, env) if in_pairs else made.demonstrations(request, env, parts)
        )
    if isinstance(data, Episodes) and in_pairs:
        data = made.rank_pairs(data, rng_for(request.seed, "pairs"))
    if (
        isinstance(data, Episodes)
        and kinds == ("Groups",)
        and hasattr(request.config, "candidates")
    ):
        data = made.group_episodes(data, request.config.candidates)
    if isinstance(data, Episodes) and "Steps" in kinds:
        try:
            data = Steps(data.episodes, digest=data.known_digest)
        except ValueError as error:
            raise RequestError(
                f"{request.algorithm} cannot learn from these data: {error}"
            ) from None
    if isinstance(data, Steps):
        _check_actions(request, env, data.rows.action.shape[1:])
    if kinds and not isinstance(data, DataSet):
        raise RequestError(
            "data must be a file or a folder, rows such as [{'prompt': …, 'completion': …}], or"
            f" {IN_MEMORY}, got a {type(data).__name__}"
        )
    if kinds and type(data).__name__ not in kinds:
        raise RequestError(
            f"{request.algorithm} learns from {' or '.join(map(_name_columns, kinds))}, but the "
            f"data are {_name_columns(type(data).__name__)}{_prompts_hint(request, data)}"
        )
    data.shuffle(rng_for(request.seed, "data"))
    return data
