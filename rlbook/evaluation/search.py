"""Inference-time search for `rlbook.evaluate`: tree search, best-of-n, majority vote and beam
search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbook.agent import Agent
from rlbook.checks import did_you_mean, whole_number
from rlbook.errors import RequestError, request_errors
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.learned_reward import check_readable
from rlbook.interaction.play_episodes import Evaluation, play, prompts_of
from rlbook.runs.parts import agent_of
from rlbook.seeding import rng_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnasium import Env

    from rlbook.llm.generation.sampling import SamplingPolicy

SEARCHES = ("mcts", "best_of_n", "majority", "beam")
JUDGES = {
    "mcts": ("critic", "verifier"),
    "best_of_n": ("log_prob", "critic", "verifier"),
    "majority": (),
    "beam": (),
}
"""Search → its named judges; the run of a reward model is another option."""
SIMULATIONS, SAMPLES = 32, 8
Judge = Any
"""A name of `JUDGES`, the run or the folder of a reward model, its agent, or an object with the
same `score_steps`; None."""


@dataclass(frozen=True, repr=False, eq=False)
class SearchEvaluation(Evaluation):
    """The evaluation of a search's choices."""

    search: str
    budget: str  # "32 simulations a move", "8 samples", "8 beams"
    judge: str | None  # the judge; None if there was none
    # tokens read by all networks for a prompt; None if no text is generated
    tokens: float | None


@dataclass(frozen=True)
class Search:
    """The settings of a search.

    Args:
        name: one of `SEARCHES`.
        simulations: of mcts, for each move; 32 where left out.
        samples: of the others; 8 where left out: completions of each prompt, or beams.
        judge: one of `JUDGES`, the run (or its folder) of a reward model, or a
            `rlbook.evaluation.outcome_value.OutcomeValue`. Where left out: the critic of mcts,
            log_prob of best_of_n.

    Raises:
        RequestError: a value that is not allowed, or has no effect.
    """

    name: str
    simulations: int | None = None
    samples: int | None = None
    judge: Judge = None

    def __post_init__(self) -> None:
        if self.name not in SEARCHES:
            hint = did_you_mean(self.name, SEARCHES)
            raise RequestError(
                f"search must be one of {', '.join(SEARCHES)}, got {self.name!r}{hint}"
            )
        idle = "samples" if self.name == "mcts" else "simulations"
        if getattr(self, idle) is not None:
            other = "simulations" if self.name == "mcts" else "samples"
            raise RequestError(f"{idle} has no effect on search {self.name}; its budget is {other}")
        for name in ("simulations", "samples"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, whole_number(name, value, least=1, most=1_000_000))
        if not JUDGES[self.name] and self.judge is not None:
            how = "the completions vote" if self.name == "majority" else "probabilities decide"
            raise RequestError(f"judge has no effect on search {self.name}: {how}")

    def judge_of(self, load: Callable[[Path], Agent]) -> Any:
        """A judge's name, or the agent of a reward model."""
        if self.judge is None:
            return JUDGES[self.name][0] if JUDGES[self.name] else None
        if isinstance(self.judge, str) and self.judge in JUDGES[self.name]:
            return self.judge
        allowed = f"{', '.join(JUDGES[self.name])}, or the run of a reward model"
        if isinstance(self.judge, str) and not Path(self.judge).exists():
            hint = did_you_mean(self.judge, JUDGES[self.name])
            raise RequestError(f"judge of {self.name} must be {allowed}, got {self.judge!r}{hint}")
        if callable(getattr(self.judge, "score_steps", None)):
            return self.judge
        found = agent_of("judge", self.judge, load)
        if not callable(getattr(found, "score_steps", None)):
            raise RequestError(
                f"judge of {self.name} must be {allowed}, got a run of {type(found).__name__}"
            )
        return found


def evaluate_search(
    agent: Agent,
    recipe: EnvRecipe,
    episodes: int,
    seed: int,
    settings: Search,
    *,
    sampling: dict[str, Any],
    load: Callable[[Path], Agent],
) -> SearchEvaluation:
    """Evaluates an agent that searches before each action.

    Args:
        agent: has a policy network; for all but mcts a language model.
        recipe: where it plays.
        episodes, seed: as in `rlbook.evaluate`: the same seed gives the same starts.
        settings: the search.
        sampling: how tokens are drawn; top_k is, for mcts, how many tokens a text may go on with.
        load: reads the agent of a run from its folder.

    Raises:
        RequestError: the agent cannot search so, or not there.
    """
    judge = settings.judge_of(load)
    if isinstance(judge, Agent) and hasattr(env := recipe.make().unwrapped, "rules"):
        check_readable(judge, env, recipe.name)
    search = _tree_search if settings.name == "mcts" else _choice
    return search(agent, recipe, episodes, seed, settings, judge, sampling)


def _judge_name(judge: Judge) -> str | None:
    return judge if judge is None or isinstance(judge, str) else "a learned judge"


def _tree_search(
    agent: Agent,
    recipe: EnvRecipe,
    episodes: int,
    seed: int,
    asked: Search,
    judge: Judge,
    sampling: dict[str, Any],
) -> SearchEvaluation:
    # torch, which tables do without
    from rlbook.algorithms.planning.search.guided_search import GuidedSearch, GuidedSearchConfig
    from rlbook.algorithms.planning.table_model import TableModel

    idle = next((name for name in sampling if name != "top_k"), None)
    if idle is not None:
        raise RequestError(
            f"{idle} sets how tokens are sampled, but search mcts samples none; of these options "
            "it has only top_k"
        )
    settings: dict[str, Any] = {
        "gamma": getattr(agent.config, "gamma", 1.0),
        "simulations": asked.simulations or SIMULATIONS,
        **sampling,
    }
    env = recipe.make()
    writes = getattr(env.unwrapped, "policy_kind", None) == "language_model"
    if asked.judge is not None and not writes:
        raise RequestError(f"judge scores finished texts, but {recipe.name} already has a reward")
    table = None if writes else _table(env)
    with request_errors():
        guided = GuidedSearch(
            agent,
            GuidedSearchConfig(**settings),
            judge=judge,
            table=table if isinstance(table, TableModel) else None,
        )
        found = play(guided, recipe, episodes, seed)
    tokens = guided.tokens["read"] / guided.tokens["prompts"] if writes else None
    budget = f"{settings['simulations']} simulations a move"
    return SearchEvaluation(
        found.returns,
        found.lengths,
        asked.name,
        budget,
        _judge_name(judge) if writes else None,
        tokens,
        prompts=found.prompts,
    )


def _table(env: Env) -> Any:
    from rlbook.algorithms.planning.search.world import simulator_of

    return simulator_of(env, None, getattr(env.action_space, "n", 0))


def _choice(
    agent: Agent,
    recipe: EnvRecipe,
    episodes: int,
    seed: int,
    settings: Search,
    judge: Judge,
    sampling: dict[str, Any],
) -> SearchEvaluation:
    from rlbook.evaluation.best_of_n import (
        best_index,
        most_frequent,
        read_by,
        sample_completions,
        scores,
    )
    from rlbook.interaction.threads import use_one_thread
    from rlbook.llm.generation.sampling import sampling_policy

    with request_errors():
        policy = sampling_policy(getattr(agent, "policy", None), sampling)
    env = recipe.make()
    rules = getattr(env.unwrapped, "rules", None)
    if policy is None or rules is None:
        raise RequestError(
            f"search {settings.name} chooses among completions, but {type(agent).__name__} "
            "generates none"
        )
    n, base = (
        settings.samples or SAMPLES,
        int(rng_for(seed, "evaluation").integers(2**31 - 1 - episodes)),
    )
    starts = range(base, base + episodes)
    if settings.name == "beam":
        with use_one_thread():
            found = _beam_search(agent, policy, recipe, starts, n, sampling)
            return replace(found, prompts=prompts_of(env, starts))
    with use_one_thread():
        found = sample_completions(agent, policy, recipe, starts, n, rng_for(seed, "noise"))
        if settings.name == "majority":
            chosen = np.array(
                [
                    most_frequent(found.finished[first : first + n])
                    for first in range(0, len(found.finished), n)
                ]
            )
        else:
            chosen = best_index(scores(judge, agent.policy, found).reshape(-1, n))  # type: ignore[attr-defined]
    rows = found.choices(n)[np.arange(episodes), chosen]
    return SearchEvaluation(
        found.reward[rows],
        found.num_tokens[rows],
        settings.name,
        f"{n} samples",
        _judge_name(judge),
        read_by(judge, found, n),
        prompts=prompts_of(env, starts),
    )


def _beam_search(
    agent: Agent,
    policy: SamplingPolicy,
    recipe: EnvRecipe,
    starts: Sequence[int],
    beams: int,
    sampling: dict[str, Any],
) -> SearchEvaluation:
    """The most likely completion found by a search with so many beams. It reads a prompt once, and
    each token of each beam but the last."""
    from rlbook.evaluation.best_of_n import sample_completions
    from rlbook.llm.generation.beam_search import BeamPolicy

    if sampling:
        raise RequestError(
            f"{next(iter(sampling))} sets how tokens are sampled, but search beam samples none"
        )
    rules = recipe.make().unwrapped.rules  # type: ignore[attr-defined]
    if rules.stop:
        raise RequestError(
            "search beam ends a text only at a token, but this environment has stop texts"
        )
    searching = BeamPolicy(policy, beams, rules.codec.ends, rules.max_new_tokens)
    found = sample_completions(agent, searching, recipe, starts, 1, np.random.default_rng(0))
    tokens = float((found.prompt + beams * (found.num_tokens - 1)).mean())
    return SearchEvaluation(found.reward, found.num_tokens, "beam", f"{beams} beams", None, tokens)
