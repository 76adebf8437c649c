"""Training data generated on the fly: episodes of an agent, of an exact planner or of a random
policy; a token task's reference answers; and preference pairs of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import Agent, Parts, State, Step, takes_action_mask
from rlbook.data.episodes import Episode, Episodes, Groups, Pairs
from rlbook.data.recorded import RecordedEpisode
from rlbook.data.schemas import COLUMNS, schema_of
from rlbook.data.text_files import read_rows
from rlbook.errors import RequestError, request_errors
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.episodes import draw_seed
from rlbook.interaction.loop import act_step_reset
from rlbook.interaction.player import Player
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.spaces import AdaptedEnv, AdaptedVectorEnv, adapt_to
from rlbook.interaction.threads import use_one_thread
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.registry import WALK, WALKED, check_teachable, exact_planner
from rlbook.runs.request import Request
from rlbook.seeding import rng_for

UNIFORM, OPTIMAL = "uniform", "optimal"
POLICIES = (UNIFORM, OPTIMAL)
LONGEST = 10_000
"""The length at which an episode without an end is truncated."""


def sample(space: spaces.Space, action_mask: NDArray[np.bool_] | None) -> Any:
    """Samples an allowed action uniformly. A mask is [A], or [1, A] for a batch of one row."""
    if action_mask is None:
        return space.sample()
    return space.sample(mask=action_mask.reshape(-1).astype(np.int8))


class UniformAgent(Agent):
    """A policy that samples every allowed action with equal probability."""

    def __init__(self, env: AdaptedEnv, config: object = None, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self.space = env.action_space
        self.space.seed(seed)

    def act(
        self,
        observation: object,
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> Any:
        return sample(self.space, action_mask)

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass


class EpisodeRecorder(gymnasium.Wrapper):
    """Records an episode in the environment's own spaces."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert seed is not None  # every episode is given its own
        obs, info = self.env.reset(seed=seed, options=options)
        self.seed, self.observations, self.actions, self.rewards = seed, [obs], [], []
        self.masks: list[NDArray[np.bool_] | None] = []
        return obs, info

    def step(self, action: ArrayLike) -> Any:
        result = self.env.step(action)
        self.observations.append(result[0])
        self.actions.append(action)
        self.rewards.append(float(result[1]))
        return result

    def episode(self, step: Step) -> RecordedEpisode | None:
        """The episode that `step` ended; None if it continues."""
        self.masks.append(step.action_mask)
        terminated, truncated = bool(np.all(step.terminated)), bool(np.all(step.truncated))
        if not (terminated or truncated):
            return None
        return RecordedEpisode(
            self.observations,
            self.actions,
            self.rewards,
            terminated,
            truncated,
            self.seed,
            self._stack_masks(step.next_action_mask),
        )

    def _stack_masks(self, last: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """The masks at all observations [T + 1, A]; None if there were none."""
        masks = [*self.masks, last]
        known = next((mask for mask in masks if mask is not None), None)
        if known is None:
            return None
        every = np.ones(known.size, dtype=bool)  # until the first mask, everything is allowed
        return np.stack([every if mask is None else mask.reshape(-1) for mask in masks])


def record_episodes(
    agent: Agent,
    recipe: EnvRecipe,
    seed: int,
    *,
    explore: bool = False,
    epsilon: float = 0.0,
    longest: int = LONGEST,
) -> Iterator[RecordedEpisode]:
    """Yields episodes that an agent plays, one after another, without end.

    Args:
        agent: asked for actions; nothing in it changes unless it explores.
        recipe: the environment.
        seed: of the resets.
        explore: act as in training.
        epsilon: the share of actions that are drawn uniformly instead, in [0, 1].
        longest: steps after which an episode is cut.
    """
    recorder, seeds = EpisodeRecorder(recipe.make()), rng_for(seed, "environment")
    adaptation = adapt_to(type(agent), recorder, agent.config)
    if agent.batched:
        many = AdaptedVectorEnv(SyncVector([recorder]), adaptation)
        interaction = VectorInteraction(many, seeds, rollout="episodes", longest=longest)
    else:
        env = AdaptedEnv(recorder, adaptation)
        agent = agent.bind_env(env)
        interaction = SingleInteraction(
            env, seeds=(draw_seed(seeds) for _ in repeat(None)), longest=longest
        )
    player = Player(agent, explore=explore)
    act: Callable[..., Any] = player.act
    if epsilon > 0.0:
        act = _randomize(
            act,
            adaptation.action_space,
            epsilon,
            rng_for(seed, "exploration"),
            batched=agent.batched,
            looks=player.memory is not None,
        )

    def begin() -> None:
        player.begin()
        if explore:
            agent.begin()

    def record(step: Step) -> RecordedEpisode | None:
        player.observe(step)
        return recorder.episode(step)

    for episode in act_step_reset(interaction, act, record, begin):
        if episode is not None:
            yield episode


def _randomize(
    act: Callable[..., Any],
    actions: spaces.Space,
    epsilon: float,
    rng: np.random.Generator,
    *,
    batched: bool,
    looks: bool = False,
) -> Callable[..., Any]:
    """Acts as `act` does, but uniformly at random in a fraction `epsilon` of the steps; a batch has
    one row. With `looks`, `act` is called for those observations, too, because it remembers
    them."""
    actions.seed(draw_seed(rng))

    takes_mask = takes_action_mask(act)

    def choose(
        obs: ArrayLike | dict[str, ArrayLike], action_mask: NDArray[np.bool_] | None = None
    ) -> Any:
        own = rng.random() >= epsilon
        if own or looks:
            chosen = (
                act(obs)
                if action_mask is None or not takes_mask
                else act(obs, action_mask=action_mask)
            )
            if own:
                return chosen
        action = sample(actions, action_mask)
        return np.asarray([action] if batched else action)[()]

    return choose


def check_makeable(request: Request, env: AdaptedEnv | AdaptedVectorEnv, parts: Parts) -> None:
    """Raises RequestError if no data set was named and none can be generated, with the reason that
    `rlbook list` states, or if the environment's own rows hold what should be learned."""
    check_rows(request)
    if parts.expert is not None or hasattr(env.unwrapped, "answers"):
        return
    try:
        check_teachable(request.agent, request.recipe.make())
    except ValueError as error:
        raise RequestError(
            f"{request.algorithm} does not train on {request.recipe.name}: {error}"
        ) from None


def check_rows(request: Request) -> None:
    """Raises RequestError if an agent that learns from preferences gets them only as the rows of an
    environment, which uses just their prompts and best answers. Prompts suffice if something else
    judges the answers."""
    path = request.recipe.kwargs.get("data")
    judged = request.options.reward_model or request.recipe.kwargs.get("reward")
    learns = "Pairs" in request.agent.data_kinds and not judged
    if not (request.agent.prefers or learns) or not isinstance(path, str | Path):
        return
    try:
        kind = schema_of(read_rows(Path(path))[0]).kind
    except (ValueError, IndexError):  # the environment says what is wrong with its rows
        return
    if kind in ("pairs", "groups"):
        raise RequestError(
            f"{path} holds {kind} of answers, of which env.data uses only the prompts and the "
            f"best answers; give it as data too, so that {request.algorithm} learns from all of "
            f"it: --data {path} (data={str(path)!r})"
        )


def demonstrations(request: Request, env: AdaptedEnv | AdaptedVectorEnv, parts: Parts) -> Episodes:
    """The default data set of an agent that was given none: an expert's episodes, or a token task's
    reference answers.

    Args:
        request: of a run whose config says how many environment steps the expert plays,
            `demonstrations`.
        env: as the agent sees it.
        parts: the expert, where one was named; else it is the exact planner, if there is a model.

    Raises:
        RequestError: no expert and no model.
    """
    answers = getattr(env.unwrapped, "answers", None)
    if parts.expert is None and answers is not None:
        return Episodes([Episode(prompt, answer) for prompt, answer in answers()])
    expert = parts.expert or exact_expert(request.recipe)
    steps, episodes, wanted = 0, [], request.config.demonstrations
    raw = request.recipe.make()
    with use_one_thread():
        for episode in record_episodes(expert, request.recipe, request.seed):
            seen = episode.to_episode(env.adaptation, (raw.observation_space, raw.action_space))
            left = wanted - steps
            masks = None if seen.action_masks is None else seen.action_masks[: left + 1]
            episodes.append(Episode(seen.obs[:left], seen.action[:left], action_masks=masks))
            steps += len(episode.actions)
            if steps >= wanted:
                return Episodes(episodes)
    raise AssertionError("record_episodes() has no length; iterate over it")


def preferences(request: Request, env: AdaptedEnv | AdaptedVectorEnv) -> Pairs:
    """The default preference pairs: episodes of a uniform policy ranked by return, or reference
    answers against those of other prompts.

    Args:
        request: of a run whose agent prefers; its config says how many walks there are, `walks`.
        env: as the agent sees it.

    Raises:
        RequestError: the agent is none that pairs are made for, or all walks have the same return.
    """
    if not request.agent.prefers:
        raise RequestError(f"{request.algorithm} learns from recorded data; give data")
    rng = rng_for(request.seed, "pairs")
    answers = getattr(env.unwrapped, "answers", None)
    if answers is not None:
        return mismatched_pairs(answers(), rng)
    return rank_pairs(random_walks(request, env, until_they_differ=True), rng)


def candidates(request: Request, env: AdaptedEnv | AdaptedVectorEnv) -> Groups:
    """The default groups: episodes of a uniform policy with their returns, or a reference answer
    among those of other prompts.

    Args:
        request: its config says how many episodes a group has, `candidates`, and how many walks
            there are, `walks`.
        env: as the agent sees it.
    """
    size, answers = request.config.candidates, getattr(env.unwrapped, "answers", None)
    if answers is None:
        return group_episodes(random_walks(request, env), size)
    return mismatched_groups(answers(), size, rng_for(request.seed, "pairs"))


def group_episodes(data: Episodes, size: int) -> Groups:
    """Groups consecutive recorded episodes with rewards. Raises RequestError if there are no
    rewards or too few episodes."""
    try:
        return Groups.from_ranked(data.episodes, size)
    except ValueError as error:
        raise RequestError(
            f"groups of {size} cannot be made of these data: {error}; rows of text need"
            f" {COLUMNS['Groups']}"
        ) from None


def mismatched_groups(
    answers: list[tuple[NDArray[np.int64], NDArray[np.int64]]], size: int, rng: np.random.Generator
) -> Groups:
    """Each prompt [L] with its reference answer [T] (score 1) and `size` - 1 answers to other
    prompts drawn by `rng` (score 0, or 1 if equal)."""
    drawn = rng.integers(len(answers), size=(len(answers), size - 1))
    rows = []
    for (prompt, right), others in zip(answers, drawn, strict=True):
        shown = [right, *(answers[other][1] for other in others)]
        scored = [(answer, np.zeros(len(answer), dtype=np.float32)) for answer in shown]
        for answer, reward in scored:
            reward[-1] = float(np.array_equal(answer, right))
        rows.append(
            [
                Episode(prompt, answer, reward)
                for answer, reward in sorted(scored, key=lambda pair: -pair[1][-1])
            ]
        )
    return Groups(rows)


def random_walks(
    request: Request, env: AdaptedEnv | AdaptedVectorEnv, *, until_they_differ: bool = False
) -> Episodes:
    """`walks` episodes of a uniform policy in the agent's format; each row is a whole episode.

    `until_they_differ`: as many more as it takes until one has another return, up to ten times what
    `check_rankable` allowed.
    """
    raw = request.recipe.make()
    agent = UniformAgent(AdaptedEnv(raw, adapt_to(UniformAgent, raw, None)))
    with use_one_thread():
        endless = record_episodes(agent, request.recipe, request.seed, longest=WALK)
        played = list(islice(endless, request.config.walks))
        returns = {float(np.sum(episode.rewards)) for episode in played}
        left = 10 * WALKED if until_they_differ else 0
        while left > 0 and len(returns) == 1:
            played.append(next(endless))
            returns.add(float(np.sum(played[-1].rewards)))
            left -= len(played[-1].actions)
        walks = [
            episode.to_episode(env.adaptation, (raw.observation_space, raw.action_space))
            for episode in played
        ]
    return Episodes(walks, unit="episode")


def rank_pairs(data: Episodes, rng: np.random.Generator) -> Pairs:
    """Preference pairs from recorded episodes with rewards.

    Raises:
        RequestError: there are no rewards, or all returns are equal.
    """
    try:
        return Pairs.from_ranked(data.episodes, rng)
    except ValueError as error:
        raise RequestError(
            f"pairs cannot be made of these data: {error}; rows of text need {COLUMNS['Pairs']}, or"
            f" {COLUMNS['LabelledEpisodes']}"
        ) from None


def mismatched_pairs(
    answers: list[tuple[NDArray[np.int64], NDArray[np.int64]]], rng: np.random.Generator
) -> Pairs:
    """Each prompt [L] with its reference answer [T], preferred to the answer to another prompt
    drawn by `rng`; equal answers make no pair."""
    others = rng.permutation(len(answers))
    rows = [
        (prompt, answer, answers[other][1])
        for (prompt, answer), other in zip(answers, others, strict=True)
    ]
    rows = [row for row in rows if not np.array_equal(row[1], row[2])]
    return Pairs(
        [Episode(prompt, right) for prompt, right, _ in rows],
        [Episode(prompt, wrong) for prompt, _, wrong in rows],
    )


def exact_expert(recipe: EnvRecipe) -> Agent:
    """The exact planner for an environment that has a model.

    Raises:
        RequestError: the environment has no model.
    """
    with request_errors("policy 'optimal' is not known here: "):
        planner, model = exact_planner(recipe.make())
        for _ in planner.plan(model):
            pass
    return planner
