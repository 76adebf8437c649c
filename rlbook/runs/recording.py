"""Episodes to learn from: played by an agent, by an exact planner, or at random; written to a file or handed to a run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rlbook.agent import Agent, State
from rlbook.checks import check, one_of, unit_interval, whole_number
from rlbook.data.recorded import Recorded
from rlbook.errors import RequestError
from rlbook.interaction.environments import Recipe
from rlbook.interaction.episodes import draw_seed
from rlbook.interaction.spaces import AdaptedEnv, AdaptedVectorEnv, adapt_to
from rlbook.interaction.sync_vector import SyncVector
from rlbook.runs.request import Request
from rlbook.runs.run import Run, load
from rlbook.seeding import rng_for

UNIFORM, OPTIMAL = "uniform", "optimal"
POLICIES = (UNIFORM, OPTIMAL)
LONGEST = 10_000
"""Steps of an episode that nothing ends."""


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


def recorded(agent: Agent, recipe: Recipe, seed: int, *, explore: bool = False, epsilon: float = 0.0) -> Iterator[Recorded]:
    """Episodes that an agent plays, one after the other, without end.

    Args:
        agent: asked for actions; nothing in it changes unless it explores.
        recipe: the environment.
        seed: of the resets.
        explore: act as in training.
        epsilon: the share of actions that are drawn uniformly instead, in [0, 1].
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
            terminated, truncated = bool(np.all(ended)), bool(np.all(cut)) or len(recorder.actions) >= LONGEST
        yield Recorded(recorder.observations, recorder.actions, recorder.rewards, terminated, truncated and not terminated, start)


def record(
    source: str | Path | Run, out: str | Path, *, episodes: int = 100, policy: str | None = None, epsilon: float = 0.0, seed: int = 0,
    explore: bool = False, checkpoint: int | str | None = None, allow_import: bool = False, env_kwargs: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Plays episodes and writes them as a Minari data set, which `--data` reads. What `rlbook record` does.

    Args:
        source: a run or its folder, whose agent acts; or an environment's id, in which `policy` acts.
        out: the folder to write; it must not exist or hold a data set.
        episodes: how many, at least 1.
        policy: "uniform", or "optimal" from the environment's model; with an environment only.
        epsilon: the share of actions that are drawn uniformly instead, in [0, 1]: walks of every quality.
        seed: of resets and of random actions.
        explore: let a run's agent act as in training.
        checkpoint, allow_import: as in `rlbook.load`.
        env_kwargs: arguments for an environment given by its id.

    Returns:
        Facts: episodes, steps, mean return, and the folder.

    Raises:
        RequestError: one sentence; nothing was written.
    """
    from rlbook.data.minari_files import data_folder, write_minari

    whole_number("episodes", episodes, least=1)
    whole_number("seed", seed, least=0)
    try:
        check("epsilon", epsilon, unit_interval)
        check("policy", policy, one_of(*POLICIES)) if policy is not None else None
    except ValueError as error:
        raise RequestError(str(error)) from None
    folder = Path(out)
    if data_folder(folder) is not None or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise RequestError(f"{out} exists already; name a new folder")
    agent, recipe, name = _acting(source, policy, seed, checkpoint, allow_import, env_kwargs)
    returns: list[float] = []

    def played() -> Iterator[Recorded]:
        for episode in islice(recorded(agent, recipe, seed, explore=explore, epsilon=epsilon), episodes):
            returns.append(sum(episode.rewards))
            yield episode

    steps = write_minari(folder, played(), recipe.make(), policy=name)
    return {"env": recipe.name, "policy": name, "episodes": episodes, "steps": steps, "return": sum(returns) / episodes, "data": str(out)}


def _acting(
    source: str | Path | Run, policy: str | None, seed: int, checkpoint: int | str | None, allow_import: bool,
    env_kwargs: dict[str, Any] | None,
) -> tuple[Agent, Recipe, str]:  # fmt: skip
    """Who acts, where, and what that is called."""
    if isinstance(source, Run) or Path(source).is_dir():
        if policy is not None or env_kwargs:
            raise RequestError("a run brings its policy and its environment; policy and env_kwargs are for an environment given by its id")
        run = source if isinstance(source, Run) else load(source, checkpoint=checkpoint, allow_import=allow_import)
        return run.agent, run.request.recipe, run.request.algorithm
    if checkpoint is not None:
        raise RequestError("checkpoint is for a run's folder")
    recipe = Recipe.of(str(source), allow_import=allow_import, kwargs=env_kwargs)
    if (policy or UNIFORM) == OPTIMAL:
        return exact_expert(recipe), recipe, OPTIMAL
    env = recipe.make()
    return UniformAgent(AdaptedEnv(env, adapt_to(UniformAgent, env, None)), seed=seed), recipe, UNIFORM


def exact_expert(recipe: Recipe) -> Agent:
    """The exact planner of an environment with a model.

    Raises:
        RequestError: the environment has no model.
    """
    from rlbook.envs.enumeration import NoModel
    from rlbook.registry import model_of

    try:
        model_of(recipe.make())
    except (NoModel, ValueError) as error:
        raise RequestError(f"policy 'optimal' is not known here: {error}") from None
    target = recipe.instance if recipe.written_id is None else recipe.written_id
    kwargs = {} if recipe.written_id is None else recipe.kwargs
    request = Request.build("value_iteration", target, env_kwargs=kwargs, eval_every=0, allow_import=recipe.module is not None)
    return Run(request).train().agent
