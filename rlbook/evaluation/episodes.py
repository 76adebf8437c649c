"""`rlbook.evaluate`: whole greedy episodes of a run, a run's folder or an agent, which is not
changed."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbook.agent import Agent
from rlbook.checks import check_arguments, whole_number
from rlbook.errors import RequestError, request_errors
from rlbook.evaluation.search import Judge, Search, evaluate_search
from rlbook.evaluation.targets import Target, find_target, language_model_folder
from rlbook.interaction.environments import TOKENS, EnvLike, EnvRecipe
from rlbook.interaction.play_episodes import Evaluation, play
from rlbook.registry import name_of
from rlbook.runs.parts import agent_of, model_agent
from rlbook.runs.run import Run, load
from rlbook.seeding import rng_for

if TYPE_CHECKING:
    from rlbook.evaluation.samples import SampledEvaluation

__all__ = ["Evaluation", "evaluate"]


MOST_EPISODES = 10_000_000
MOST_SAMPLES = 10_000
START = "start"
"""In place of a folder to compare with: the run before training."""


@check_arguments('rlbook.evaluate("runs/pole", episodes=100)')
def evaluate(
    target: Run | Agent | Target | Callable[[Any], Any] | str | Path,
    env: EnvLike | None = None,
    episodes: int | None = None,
    seed: int | None = None,
    *,
    explore: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    samples: int | None = None,
    search: str | None = None,
    simulations: int | None = None,
    judge: Judge = None,
    model: object = None,
    **options: Any,
) -> Evaluation:
    """Plays `episodes` whole episodes, greedily by default; with `samples`, see `evaluate_samples`.

    Args:
        target: a run, a run's folder, the local Hugging Face folder of a language model, an agent,
            or a function from an observation to an action, such as a rule written by hand (the last
            three need `env`); or what `find_target` made of one of them.
        env: an id or an environment to play in instead of the run's own; a token run's own is its
            held-out prompts, and so is what an id of a token environment gives.
        episodes: number of episodes (100; with `samples` all prompts, at most 512, and so with
            another file of prompts). Episode i starts from reset seed `base + i`, so the result does
            not depend on how many run side by side. Where the environment sets no limit itself, an
            episode is cut after 10 000 steps.
        seed: gives the base; None is the run's own seed, and 0 for an agent without a run.
        explore: act as in training: a policy samples, an ε-greedy agent explores. A copy of the
            agent does, with a copy of its RNGs.
        env_kwargs: arguments for an `env` given by its id, or without `env` in place of those that
            the run's environment has, such as {"data": "other.jsonl"} (all of its rows are then
            prompts), {"reward": "numeric"} or {"split": "train"}.
        temperature: for a language model, as are the next four: divisor of the logits; 0 takes the
            most likely token; see `rlbook.llm.generation.sampling.Sampling`. Any of the five makes
            the model sample, with noise seeded by `seed`.
        top_p: sample from the smallest set of most likely tokens with this total probability.
        top_k: sample from this many of the most likely tokens.
        min_p: sample from tokens with at least this fraction of the most likely one's probability.
        repetition_penalty: above 1, tokens that already occur in the text become less likely.
        samples: K completions of each of `episodes` held-out prompts; the result is a
            `rlbook.evaluation.samples.SampledEvaluation`.
        search: the agent searches before it acts: "mcts" looks ahead with its policy and its
            critic, "best_of_n" and "majority" choose among `samples` completions, "beam" follows
            the `samples` likeliest texts. The result is a
            `rlbook.evaluation.search.SearchEvaluation`; arguments as in `rlbook.evaluation.search.Search`.
        simulations: of mcts, per move.
        judge: of mcts and best_of_n: how finished texts are scored.
        model: for the folder of a language model, how it is read: fields of a `ModelSpec` such as
            {"device": "cuda", "dtype": "bfloat16"} or {"adapter": FOLDER}.
        options: for a folder, what `rlbook.load` takes (`checkpoint`, `allow_import`, `workers`).

    Raises:
        RequestError: `episodes` below 1, a negative seed, an agent or a model without `env`, an
            environment the agent does not fit, or an option that is unknown or has no effect here.
    """
    asked = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
    }
    sampling = {name: value for name, value in asked.items() if value is not None}
    if search is None and (simulations is not None or judge is not None):
        raise RequestError(
            f"{'judge' if simulations is None else 'simulations'} has no effect without search"
        )
    if samples is not None and search is None:
        if explore:
            raise RequestError(
                "explore has no effect with samples, which are always drawn from the policy"
            )
        given = {"prompts": episodes, "seed": seed, "env_kwargs": env_kwargs, "model": model}
        return evaluate_samples(target, samples, env, sampling=sampling, **given, **options)
    if episodes is not None:
        episodes = whole_number("episodes", episodes, least=1, most=MOST_EPISODES)
    seed = None if seed is None else whole_number("seed", seed, least=0)
    thinks = None if search is None else Search(search, simulations, samples, judge)
    if thinks is not None and explore:
        raise RequestError("explore has no effect with search")
    found = find_target(target, env, env_kwargs, model, seed or 0, _options(), **options)
    if found.run is not None:
        seed = found.run.request.seed if seed is None else seed
    episodes = found.episodes if episodes is None else episodes
    seed, workers = seed or 0, None if found.run is None else found.run.workers
    if thinks is not None:
        return evaluate_search(
            found.agent, found.played, episodes, seed, thinks, sampling=sampling, load=_agent
        )
    agent, explore = _sampling(found.agent, sampling, seed), explore or bool(sampling)
    with workers or contextlib.nullcontext():
        return play(agent, found.played, episodes, seed, explore=explore, workers=workers)


def _options() -> tuple[str, ...]:
    """The options that may be meant by an unknown one."""
    return tuple(inspect.signature(evaluate).parameters)


def _agent(folder: Path) -> Agent:
    return load(folder).agent


def evaluate_samples(
    target: Run | Agent | Target | Callable[[Any], Any] | str | Path,
    samples: int,
    env: EnvLike | None = None,
    *,
    prompts: int | None = None,
    seed: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    sampling: Mapping[str, Any] | None = None,
    model: object = None,
    **options: Any,
) -> SampledEvaluation:
    """Samples K completions of each held-out prompt: pass@k, maj@k, perplexity, rewards, lengths,
    and the completions themselves.

    Args:
        target, env, env_kwargs, model, options: as in `evaluate`.
        samples: K.
        prompts: how many, from the first held-out one on; None is all of them, 512 at most.
        seed: of the noise; None is the run's.
        sampling: temperature and its like, by name; by default the run's own temperature.

    Raises:
        RequestError: as in `evaluate`, or the environment has no prompts.
    """
    seed = None if seed is None else whole_number("seed", seed, least=0)
    found = find_target(target, env, env_kwargs, model, seed or 0, _options(), **options)
    if found.run is not None and seed is None:
        seed = found.run.request.seed
    pays = None if found.run is None else _reward_model_of(found.run)
    return _samples(found.agent, found.recipe, samples, prompts, seed or 0, sampling, pays)


def evaluate_before(
    after: Run | Target | str | Path,
    before: str | Path,
    samples: int,
    env: EnvLike | None = None,
    *,
    prompts: int | None = None,
    seed: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    sampling: Mapping[str, Any] | None = None,
    model: object = None,
    **options: Any,
) -> SampledEvaluation:
    """Evaluates the baseline of a comparison on the same prompts as the run.

    Args:
        after: the run, or the folder of a language model.
        before: the folder of another run or of a language model, or "start": the run itself before
            it learned anything.
        samples, prompts, seed, sampling: as in `evaluate_samples`.
        env, env_kwargs, model, options: of `after`, as in `evaluate`.
    """
    seed = None if seed is None else whole_number("seed", seed, least=0)
    found = find_target(after, env, env_kwargs, model, **options)
    recipe, run = found.recipe, found.run
    if run is not None and seed is None:
        seed = run.request.seed
    if str(before) == START and not Path(before).exists():
        if run is None:
            raise RequestError(
                f"{START} is a run before it learned anything, and {after} is not a run"
            )
        agent = Run(run.request).agent
    elif folder := language_model_folder(before):
        temperature = 1.0 if run is None else getattr(run.request.config, "temperature", 1.0)
        config = None if run is None else run.request.config
        agent = model_agent("compare", folder, recipe, config, temperature=temperature)
        recipe = recipe.with_tokens_of({"model": folder})
    else:
        other = load(before, allow_import=recipe.allow_import)
        agent, theirs = other.agent, other.request.recipe
        if not {*TOKENS}.isdisjoint({*recipe.kwargs, *theirs.kwargs}):
            recipe = recipe.with_tokens_of(theirs.kwargs, theirs.held)
    pays = None if run is None else _reward_model_of(run)
    return _samples(agent, recipe, samples, prompts, seed or 0, sampling, pays)


def _reward_model_of(run: Run) -> Agent | None:
    """The reward model that a run was trained on, loaded with the run's permission to import
    modules."""
    trusted = run.request.recipe.allow_import
    return agent_of(
        "reward_model",
        run.request.options.reward_model,
        lambda folder: load(folder, allow_import=trusted).agent,
    )


def _samples(
    agent: Agent,
    recipe: EnvRecipe,
    samples: int,
    prompts: int | None,
    seed: int,
    sampling: Mapping[str, Any] | None,
    pays: Agent | None,
) -> SampledEvaluation:
    samples = whole_number("samples", samples, least=1, most=MOST_SAMPLES)
    prompts = (
        None if prompts is None else whole_number("episodes", prompts, least=1, most=MOST_EPISODES)
    )
    if not agent.plays():
        raise RequestError(f"{name_of(type(agent))} does not act, so it cannot complete prompts")
    from rlbook.evaluation.completions import sample

    learned: Any = pays
    return sample(
        agent,
        recipe,
        samples=samples,
        prompts=prompts,
        seed=seed,
        sampling=sampling,
        reward_model=learned,
    )


def _sampling(agent: Agent, options: dict[str, Any], seed: int) -> Agent:
    """The agent, or a shallow copy of it with the requested token sampling."""
    if not options:
        return agent
    from rlbook.llm.generation.sampling import sampling_policy

    with request_errors():
        policy = sampling_policy(getattr(agent, "policy", None), options)
    if policy is None:
        name = name_of(type(agent))
        raise RequestError(
            f"{next(iter(options))} sets how a language model samples tokens, but this agent "
            f"({name}) has none"
        )
    other: Any = copy.copy(agent)
    other.policy, other.exploration = policy, rng_for(seed, "noise")
    return other
