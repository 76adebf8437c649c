"""Plays whole episodes in a separate environment, without changing the agent."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import numpy as np
from gymnasium import spaces

from rlbook.agent import Agent, check_initialised
from rlbook.ascii_signs import printable
from rlbook.checks import ENDLESS
from rlbook.errors import RequestError, TrainingError
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.loop import act_step_reset
from rlbook.interaction.player import Player
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.spaces import Adaptation, AdaptedEnv, AdaptedVectorEnv, adapt_to
from rlbook.interaction.threads import use_one_thread
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.interaction.vector_envs.workers import Workers, WorkerVector
from rlbook.seeding import rng_for

MAX_ENVS = 512  # episodes played side by side
LONGEST = 10_000  # steps; an episode without a time limit is cut here, since a greedy policy may walk in circles forever
SHORTEST = 1_000  # steps; an evaluation that is shortened cuts no episode before


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Undiscounted returns and lengths of whole episodes, in the order of their seeds."""

    returns: np.ndarray  # [E], in reward units
    lengths: np.ndarray  # [E], in environment steps
    # steps after which an episode was cut, where the environment has no limit
    limit: int = field(default=ENDLESS, kw_only=True)

    @property
    def num_unfinished(self) -> int:
        """The number of truncated episodes."""
        return int((self.lengths >= self.limit).sum())

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def confidence_interval(self) -> tuple[float, float]:
        """95 % interval of the mean (Student's t over episodes); a single point if all returns are
        equal or there is only one episode."""
        return t_interval(self.returns)

    def __repr__(self) -> str:
        count = len(self.returns)
        half = self.confidence_interval[1] - self.mean
        told = f"{self.mean:.2f} ± {half:.2f}, {count} episode{'s' if count != 1 else ''}"
        cut = f", {self.num_unfinished} of them cut" if self.num_unfinished else ""
        return printable(f"<{type(self).__name__} {told}{cut}>")


def t_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval (Student's t) for the mean, from independent samples `values` [n]; a single
    point if n is 1."""
    from scipy.stats import t

    n, mean = len(values), float(values.mean())
    half = float(t.ppf(0.975, n - 1)) * float(values.std(ddof=1)) / n**0.5 if n > 1 else 0.0
    return mean - half, mean + half


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
    with use_one_thread():
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


def _longest(recipe: EnvRecipe, effort: int | None) -> int:
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
        _longest(recipe, effort),
        ENDLESS if effort is None or not recipe.may_never_end else max(effort, SHORTEST),
    )
    interaction = SingleInteraction(env, seeds=range(base, base + episodes), longest=longest)
    played, player = 0, Player(agent, explore=explore)
    for _ in act_step_reset(interaction, player.act, player.observe, player.begin):
        if interaction.episodes > played and interaction.steps >= most:
            break
        played = interaction.episodes
    _, returns, lengths = zip(*interaction.finished, strict=True)
    return Evaluation(np.array(returns), np.array(lengths), limit=_reported_limit(recipe, longest))


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
        _longest(recipe, effort),
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
        interaction.settle()
        returns[first : first + count], lengths[first : first + count] = (
            interaction.returns[:count],
            interaction.lengths[:count],
        )
    if workers is not None:
        env.close()
    return Evaluation(returns, lengths, limit=_reported_limit(recipe, longest))


def check_spaces(agent: Agent, recipe: EnvRecipe, found: Adaptation) -> None:
    """Raises RequestError if the environment's spaces differ from those that the agent was made
    for."""
    made = agent.adaptation
    if made is None:
        return
    shown, taken = found.observation_space, made.observation_space
    # a policy of the environment's own may read texts of any length
    if shown != taken and not isinstance(taken, spaces.Dict):
        raise RequestError(f"{recipe.name} shows {shown}, but the agent takes {taken}")
    if found.action_space != made.action_space:
        raise RequestError(
            f"{recipe.name} takes {found.action_space} as actions, but the agent chooses among"
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
