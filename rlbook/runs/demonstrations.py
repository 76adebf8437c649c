"""Episodes to learn from: played by an agent, by an exact planner, or at random; a token task's own right answers; and pairs of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlbook.agent import Agent, Parts, State
from rlbook.data.episodes import Episode, Episodes, Pairs
from rlbook.data.recorded import Recorded
from rlbook.errors import RequestError
from rlbook.interaction.environments import Recipe
from rlbook.interaction.episodes import draw_seed
from rlbook.interaction.spaces import AdaptedEnv, AdaptedVectorEnv, adapt_to
from rlbook.interaction.sync_vector import SyncVector
from rlbook.interaction.threads import single_threaded
from rlbook.registry import check_teachable, exact_planner
from rlbook.runs.request import Request
from rlbook.seeding import rng_for

UNIFORM, OPTIMAL = "uniform", "optimal"
POLICIES = (UNIFORM, OPTIMAL)
LONGEST = 10_000
"""Steps of an episode that nothing ends."""
WALK = 200
"""Steps after which a random walk that is to be ranked is cut."""


class UniformAgent(Agent):
    """Draws every action alike."""

    def __init__(self, env: Any, config: Any = None, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self.space = env.action_space
        self.space.seed(seed)

    def act(self, observation: Any, *, explore: bool = True) -> Any:
        return self.space.sample()

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass


class Recorder(gymnasium.Wrapper):
    """Keeps what happens in an episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, info = self.env.reset(seed=seed, options=options)
        self.observations, self.actions, self.rewards = [obs], [], []
        return obs, info

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.observations.append(result[0])
        self.actions.append(action)
        self.rewards.append(float(result[1]))
        return result


def recorded(
    agent: Agent, recipe: Recipe, seed: int, *, explore: bool = False, epsilon: float = 0.0, longest: int = LONGEST
) -> Iterator[Recorded]:
    """Episodes that an agent plays, one after the other, without end.

    Args:
        agent: asked for actions; nothing in it changes unless it explores.
        recipe: the environment.
        seed: of the resets.
        explore: act as in training.
        epsilon: the share of actions that are drawn uniformly instead, in [0, 1].
        longest: steps after which an episode is cut.
    """
    recorder = Recorder(recipe.make())
    translation = adapt_to(type(agent), recorder, agent.config)
    env: Any = AdaptedVectorEnv(SyncVector([recorder]), translation) if agent.batched else AdaptedEnv(recorder, translation)
    rng, wrap = rng_for(seed, "exploration"), (lambda value: [value]) if agent.batched else (lambda value: value)
    actions, seeds = translation.action_space, rng_for(seed, "environment")
    actions.seed(draw_seed(rng))
    agent = agent if agent.batched else agent.bind_env(env)
    while True:
        start = draw_seed(seeds)
        obs, _ = env.reset(seed=wrap(start))
        if explore:
            agent.begin()
        terminated = truncated = False
        while not (terminated or truncated):
            random = rng.random() < epsilon
            action = np.asarray(wrap(actions.sample()))[()] if random else agent.act(obs, explore=explore)
            obs, _, ended, cut, _ = env.step(action)
            terminated, truncated = bool(np.all(ended)), bool(np.all(cut)) or len(recorder.actions) >= longest
        yield Recorded(recorder.observations, recorder.actions, recorder.rewards, terminated, truncated and not terminated, start)


def demonstrations(request: Request, env: AdaptedEnv | AdaptedVectorEnv, parts: Parts) -> Episodes:
    """What an agent learns from that was given no data: an expert's episodes, or a token task's right answers.

    Args:
        request: of a run whose config says how many environment steps the expert plays, `demonstrations`.
        env: as the agent sees it.
        parts: the expert, where one was named; else it is the exact planner, if there is a model.

    Raises:
        RequestError: no expert, no model and no answers.
    """
    answers = getattr(env.unwrapped, "answers", None)
    if parts.expert is None and answers is not None:
        return Episodes([Episode(prompt, answer) for prompt, answer in answers()])
    if parts.expert is None:
        try:
            check_teachable(request.agent, request.recipe.make())
        except ValueError as error:
            raise RequestError(f"{request.algorithm} does not train on {request.recipe.name}: {error}") from None
    expert = parts.expert or exact_expert(request.recipe)
    steps, episodes, wanted = 0, [], request.config.demonstrations
    raw = request.recipe.make()
    with single_threaded():
        for episode in recorded(expert, request.recipe, request.seed):
            seen = episode.as_seen(env.adaptation, (raw.observation_space, raw.action_space))
            episodes.append(Episode(seen.obs[: wanted - steps], seen.action[: wanted - steps]))
            steps += len(episode.actions)
            if steps >= wanted:
                return Episodes(episodes)
    raise AssertionError("recorded() has no end")


def preferences(request: Request, env: AdaptedEnv | AdaptedVectorEnv) -> Pairs:
    """Pairs for an agent that was given no data: uniformly random walks ranked by return, or right answers against other prompts'.

    Args:
        request: of a run whose config says how many walks there are, `walks`.
        env: as the agent sees it.

    Raises:
        RequestError: the agent does not say how many, or all walks have the same return.
    """
    rng = rng_for(request.seed, "pairs")
    answers = getattr(env.unwrapped, "answers", None)
    if answers is not None:
        return far_pairs(answers(), rng)
    if not hasattr(request.config, "walks"):
        raise RequestError(f"{request.algorithm} learns from recorded data; give data")
    raw = request.recipe.make()
    agent = UniformAgent(AdaptedEnv(raw, adapt_to(UniformAgent, raw, None)))
    with single_threaded():
        played = islice(recorded(agent, request.recipe, request.seed, longest=WALK), request.config.walks)
        walks = [episode.as_seen(env.adaptation, (raw.observation_space, raw.action_space)) for episode in played]
    return ranked(Episodes(walks, unit="episode"), rng)


def ranked(data: Episodes, rng: np.random.Generator) -> Pairs:
    """Recorded episodes with rewards as pairs.

    Raises:
        RequestError: there are no rewards, or all returns are equal.
    """
    try:
        return Pairs.ranked(data.episodes, rng)
    except ValueError as error:
        raise RequestError(f"pairs cannot be made of these data: {error}") from None


def far_pairs(answers: list[tuple[NDArray[np.int64], NDArray[np.int64]]], rng: np.random.Generator) -> Pairs:
    """Each prompt [L] with its right answer [T], preferred to the answer of another prompt drawn by `rng`; equal answers make no pair."""
    others = rng.permutation(len(answers))
    rows = [(prompt, answer, answers[other][1]) for (prompt, answer), other in zip(answers, others, strict=True)]
    rows = [row for row in rows if not np.array_equal(row[1], row[2])]
    return Pairs([Episode(prompt, right) for prompt, right, _ in rows], [Episode(prompt, wrong) for prompt, _, wrong in rows])


def exact_expert(recipe: Recipe) -> Agent:
    """The exact planner of an environment with a model.

    Raises:
        RequestError: the environment has no model.
    """
    try:
        planner, model = exact_planner(recipe.make())
        for _ in planner.plan(model):
            pass
    except ValueError as error:
        raise RequestError(f"policy 'optimal' is not known here: {error}") from None
    return planner
