"""Plays whole episodes in a separate environment, without changing the agent."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from rlbook.agent import Agent, check_initialised
from rlbook.ascii_signs import printable
from rlbook.checks import ENDLESS, name_hint
from rlbook.errors import RequestError, TrainingError, UnknownName, WrongArguments
from rlbook.functional.intervals import deviation, t_interval
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.loop import act_step_reset
from rlbook.interaction.player import Player
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.spaces import Adaptation, AdaptedEnv, AdaptedVectorEnv, adapt_to
from rlbook.interaction.threads import use_one_thread
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.interaction.vector_envs.workers import Workers, WorkerVector
from rlbook.seeding import GlobalGenerators, rng_for

MAX_ENVS = 512  # episodes played side by side
LONGEST = 10_000  # steps; an episode without a time limit is cut here, since a greedy policy may walk in circles forever
SHORTEST = 1_000  # steps; an evaluation that is shortened cuts no episode before


NOT_A_PAIR = (
    "one object: its mean return is evaluation.mean, their standard deviation evaluation.std"
)
OF_AN_EVALUATION = {
    "mean_reward": "the mean return is evaluation.mean",
    "std_reward": "the standard deviation of the returns is evaluation.std",
    "rewards": "the returns are evaluation.returns",
    "episode_rewards": "the returns are evaluation.returns",
    "episode_lengths": "the lengths are evaluation.lengths",
    "episodes": "their number is len(evaluation.returns)",
    "min": "the lowest return is evaluation.returns.min()",
    "max": "the highest return is evaluation.returns.max()",
    "median": "the returns are evaluation.returns, and numpy.median takes them",
    "ci": "the 95 % interval of the mean is evaluation.confidence_interval",
    "stderr": "it is evaluation.standard_error",
    "sem": "it is evaluation.standard_error",
    "to_dict": "dataclasses.asdict(evaluation) makes a dict",
}
"""Names that an evaluation does not have → what to use instead."""


@dataclass(frozen=True, repr=False, eq=False)
class Evaluation:
    """Undiscounted returns and lengths of whole episodes, in the order of their seeds.

    `float(evaluation)` and `f"{evaluation:.1f}"` are its mean.
    """

    returns: np.ndarray  # [E], in reward units
    lengths: np.ndarray  # [E], in environment steps
    # steps after which an episode was cut, where the environment has no limit
    limit: int = field(default=ENDLESS, kw_only=True)
    # [E], the prompt of each episode, numbered as they came; None where there are no prompts
    prompts: np.ndarray | None = field(default=None, kw_only=True)

    @property
    def num_unfinished(self) -> int:
        """The number of truncated episodes."""
        return int((self.lengths >= self.limit).sum())

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """The standard deviation of the returns, with E - 1 in the denominator, in reward units; 0
        for a single episode."""
        return deviation(self.returns)

    @property
    def num_prompts(self) -> int | None:
        """The number of different prompts; None where there are none."""
        return None if self.prompts is None else int(self.prompts.max()) + 1

    def mean_by_prompt(self, values: np.ndarray) -> np.ndarray:
        """The mean of values [E] over the episodes of each prompt, or the values where there are no
        prompts."""
        if self.prompts is None:
            return values
        return np.bincount(self.prompts, values) / np.bincount(self.prompts)

    @property
    def confidence_interval(self) -> tuple[float, float]:
        """95 % interval of the mean (Student's t over episodes, or over prompts where one has
        several episodes); a single point if all returns are equal or there is only one episode."""
        return t_interval(self.returns, self.prompts)

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; 0 for a single episode or prompt."""
        return deviation(self.returns, self.prompts) / len(self.returns) ** 0.5

    def __float__(self) -> float:
        return self.mean

    def __format__(self, form: str) -> str:
        return format(self.mean, form) if form else str(self)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_are_equal(value, vars(other)[name]) for name, value in vars(self).items())

    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise WrongArguments(f"an evaluation is {NOT_A_PAIR}")

        def __getitem__(self, place: object) -> NoReturn:
            raise WrongArguments(f"an evaluation is {NOT_A_PAIR}")

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property, inside which an attribute is missing
                return object.__getattribute__(self, name)
            known = [each for each in dir(type(self)) if not each.startswith("_")]
            hint = "" if name.startswith("_") else name_hint(name, OF_AN_EVALUATION, known)
            raise UnknownName(f"an evaluation has no {name!r}{hint}")

    def __repr__(self) -> str:
        count = len(self.returns)
        half = self.confidence_interval[1] - self.mean
        told = f"{self.mean:.2f} ± {half:.2f}, {count} episode{'s' if count != 1 else ''}"
        told += "" if self.num_prompts in (None, count) else f" of {self.num_prompts} prompts"
        cut = f", {self.num_unfinished} of them cut" if self.num_unfinished else ""
        return printable(f"<{type(self).__name__} {told}{cut}>")


def _are_equal(value: object, other: object) -> bool:
    if isinstance(value, np.ndarray):
        return np.array_equal(value, other, equal_nan=True)  # type: ignore[arg-type]
    return value == other


def play(
    agent: Agent,
    recipe: EnvRecipe,
    episodes: int,
    seed: int,
    *,
    explore: bool = False,
    workers: Workers | None = None,
    effort: int | None = None,
) -> Evaluation:
    """Plays episodes in a fresh environment; see `evaluate`. The environments of a batched agent
    are stepped by `workers`, if given.

    Where an episode may never end it is cut after 10 000 steps. With an `effort` it is cut after as
    many steps as that, but no sooner than after 1 000, and an agent that takes one environment
    begins no further episode after so many in all.

    Raises:
        RequestError: the agent does not act, or not in such an environment.
        TrainingError: a return that is not finite.
    """
    check_initialised(agent)
    if not agent.plays():
        raise RequestError(f"{type(agent).__name__} does not act, so there is nothing to play")
    base = int(rng_for(seed, "evaluation").integers(2**31 - 1 - episodes))
    if explore:
        agent = copy.deepcopy(agent)
        agent.begin()
    with use_one_thread(), GlobalGenerators(base).swap_states():
        if agent.batched:
            result = _play_many(agent, recipe, episodes, base, explore, workers, effort)
        else:
            result = _play_one(agent, recipe, episodes, base, explore, effort)
    if not np.isfinite(result.returns).all():
        raise TrainingError(
            "the return of an evaluation episode is not finite:"
            f" {result.returns[~np.isfinite(result.returns)][0]}"
        )
    return result


def training_limit(recipe: EnvRecipe) -> int:
    """Steps after which a training episode that might never end is truncated."""
    return LONGEST if recipe.may_never_end else ENDLESS


def _step_limit(recipe: EnvRecipe, effort: int | None) -> int:
    """Steps after which an evaluation episode is truncated."""
    if effort is None or not recipe.may_never_end:
        return max(recipe.time_limit or 0, LONGEST)
    return min(max(effort, SHORTEST), LONGEST)


def _play_one(
    agent: Agent, recipe: EnvRecipe, episodes: int, base: int, explore: bool, effort: int | None
) -> Evaluation:
    raw = recipe.make()
    env = AdaptedEnv(raw, adapt_to(type(agent), raw, agent.config))
    check_spaces(agent, recipe, env.adaptation)
    agent = agent.bind_env(env)
    longest, most = (
        _step_limit(recipe, effort),
        ENDLESS if effort is None or not recipe.may_never_end else max(effort, SHORTEST),
    )
    interaction = SingleInteraction(env, seeds=range(base, base + episodes), longest=longest)
    played, player = 0, Player(agent, explore=explore)
    for _ in act_step_reset(interaction, player.act, player.observe, player.begin):
        if interaction.episodes > played and interaction.steps >= most:
            break
        played = interaction.episodes
    _, returns, lengths = zip(*interaction.finished, strict=True)
    return Evaluation(
        np.array(returns),
        np.array(lengths),
        limit=_reported_limit(recipe, longest),
        prompts=prompts_of(raw, range(base, base + len(returns))),
    )


def _reported_limit(recipe: EnvRecipe, longest: int) -> int:
    """The step limit that an evaluation reports: none if the environment has its own time limit or
    always terminates."""
    return longest if recipe.may_never_end else ENDLESS


def _play_many(
    agent: Agent,
    recipe: EnvRecipe,
    episodes: int,
    base: int,
    explore: bool,
    workers: Workers | None,
    effort: int | None,
) -> Evaluation:
    env = adapted_vector(type(agent), recipe, min(episodes, MAX_ENVS), agent.config, workers)
    check_spaces(agent, recipe, env.adaptation)
    agent = agent.bind_env(env)
    returns, lengths, longest = (
        np.zeros(episodes),
        np.zeros(episodes, dtype=np.int64),
        _step_limit(recipe, effort),
    )
    for first in range(0, episodes, env.num_envs):
        count = min(env.num_envs, episodes - first)
        seeds = range(base + first, base + first + env.num_envs)
        interaction = VectorInteraction(
            env, rollout="episodes", seeds=seeds, longest=longest, scoring="round"
        )
        player = Player(agent, explore=explore)
        for _ in act_step_reset(interaction, player.act, player.observe, player.begin):
            if not interaction.valid[:count].any():
                break
        interaction.score_ended()
        returns[first : first + count], lengths[first : first + count] = (
            interaction.returns[:count],
            interaction.lengths[:count],
        )
    if workers is not None:
        env.close()
    return Evaluation(
        returns,
        lengths,
        limit=_reported_limit(recipe, longest),
        prompts=prompts_of(env, range(base, base + episodes)),
    )


def prompts_of(env: gymnasium.Env | VectorEnv, seeds: Sequence[int]) -> np.ndarray | None:
    """The prompt that each reset seed [E] begins, numbered as they come: [E]; None where an
    environment has no prompts."""
    inner: Any = getattr(env.unwrapped, "envs", [env])[0].unwrapped
    numbers = getattr(inner, "prompts_of_seeds", None)
    return None if numbers is None else numbers(seeds)


def check_spaces(agent: Agent, recipe: EnvRecipe, adaptation: Adaptation) -> None:
    """Raises RequestError if the environment's spaces differ from those that the agent was made
    for."""
    made = agent.adaptation
    if made is None:
        return
    shown, taken = adaptation.observation_space, made.observation_space
    # a policy of the environment's own may read texts of any length
    if shown != taken and not isinstance(taken, spaces.Dict):
        raise RequestError(f"{recipe.name} shows {shown}, but the agent takes {taken}")
    if adaptation.action_space != made.action_space:
        raise RequestError(
            f"{recipe.name} takes {adaptation.action_space} as actions, but the agent chooses among"
            f" {made.action_space}"
        )


def adapted_vector(
    agent: type[Agent],
    recipe: EnvRecipe,
    num_envs: int,
    config: object,
    workers: Workers | None = None,
) -> AdaptedVectorEnv:
    """`num_envs` copies of an environment, adapted to an agent class: the native vector form if
    there is one; otherwise stepped in turn, or by `workers` if given."""
    env = recipe.make_native_vector(num_envs)
    if env is None:
        env = (
            SyncVector(recipe.make_many(num_envs))
            if workers is None
            else WorkerVector(workers, recipe, num_envs)
        )
    return AdaptedVectorEnv(env, adapt_to(agent, env, config))
