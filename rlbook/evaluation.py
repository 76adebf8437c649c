"""The judge: greedy episodes in an environment of their own. Nothing in the agent changes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbook.agent import Agent
from rlbook.environments import Recipe
from rlbook.errors import RequestError
from rlbook.seeding import stream
from rlbook.spaces import FittedEnv, FittedVectorEnv
from rlbook.streams import SyncStreams

if TYPE_CHECKING:
    from rlbook.runs import Run

MAX_STREAMS = 512


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns and lengths of whole episodes, in the order of their seeds."""

    returns: np.ndarray    # [E], in reward units
    lengths: np.ndarray    # [E], in environment steps

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def confidence_interval(self) -> tuple[float, float]:
        """95 % interval of the mean (Student's t over episodes); a point where all returns are equal or there is one episode."""
        from scipy.stats import t

        n = len(self.returns)
        if n < 2:
            return self.mean, self.mean
        half = float(t.ppf(0.975, n - 1)) * float(self.returns.std(ddof=1)) / n**0.5
        return self.mean - half, self.mean + half


def evaluate(target: Run | Agent | str | Path, env: Any = None, episodes: int = 100, seed: int | None = None, **options: Any) -> Evaluation:
    """Plays `episodes` whole episodes greedily.

    Args:
        target: a run, a run's folder, or an agent (which then needs `env`).
        env: an id or an environment to play in instead of the run's own; a token run's own is its held-out prompts.
        episodes: how many; episode i starts from reset seed `base + i`, so the result does not depend on how many run side by side.
        seed: gives the base; None is the run's own evaluation stream.
        options: for a folder, what `rlbook.load` takes (`checkpoint`, `allow_import`).

    Raises:
        RequestError: `episodes` below 1, a negative seed, an agent without `env`, or an environment the agent does not fit.
    """
    from rlbook.runs import Run, load

    if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
        raise RequestError(f"episodes must be an integer of at least 1, got {episodes!r}")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise RequestError(f"seed must be an integer of at least 0, got {seed!r}")
    if isinstance(target, Agent):
        if env is None:
            raise RequestError("an agent alone does not say where to play; give env")
        return play(target, Recipe.of(env), episodes, 0 if seed is None else seed)
    run = target if isinstance(target, Run) else load(target, **options)
    recipe = run.request.recipe.for_evaluation() if env is None else Recipe.of(env)
    return play(run.agent, recipe, episodes, run.request.seed if seed is None else seed)


def play(agent: Agent, recipe: Recipe, episodes: int, seed: int) -> Evaluation:
    """Greedy episodes in a fresh environment; see `evaluate`."""
    base = int(stream(seed, "evaluation").integers(2**31 - 1 - episodes))
    if not agent.batched:
        return _play_one(agent, recipe, episodes, base)
    return _play_many(agent, recipe, episodes, base)


def _play_one(agent: Agent, recipe: Recipe, episodes: int, base: int) -> Evaluation:
    from rlbook.registry import fit_to

    raw = recipe.make()
    env = FittedEnv(raw, fit_to(type(agent), raw, agent.config))
    returns, lengths = np.zeros(episodes), np.zeros(episodes, dtype=np.int64)
    for i in range(episodes):
        obs, _ = env.reset(seed=base + i)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(agent.act(obs, explore=False))
            returns[i] += float(reward)
            lengths[i] += 1
            over = terminated or truncated
    return Evaluation(returns, lengths)


def _play_many(agent: Agent, recipe: Recipe, episodes: int, base: int) -> Evaluation:
    env = fitted_vector(type(agent), recipe, min(episodes, MAX_STREAMS), agent.config)
    returns, lengths = np.zeros(episodes), np.zeros(episodes, dtype=np.int64)
    for start in range(0, episodes, env.num_envs):
        count = min(env.num_envs, episodes - start)
        obs, _ = env.reset(seed=[base + start + i for i in range(env.num_envs)])
        live = np.ones(env.num_envs, dtype=bool)
        while live[:count].any():
            obs, reward, terminated, truncated, _ = env.step(agent.act(obs, explore=False))
            returns[start : start + count] += np.where(live, reward, 0.0)[:count]
            lengths[start : start + count] += live[:count]
            live &= ~(terminated | truncated)
    return Evaluation(returns, lengths)


def fitted_vector(agent: type[Agent], recipe: Recipe, num_envs: int, config: Any) -> FittedVectorEnv:
    """`num_envs` streams of an environment, as an agent class wants them: the native vector form where there is one."""
    from rlbook.registry import fit_to

    env = recipe.make_native_vector(num_envs)
    if env is None:
        if recipe.id is None and num_envs > 1:
            raise RequestError(f"environment {recipe.name!r} was not made by an id, so there can be only one of it; num_envs must be 1, got {num_envs}")
        env = SyncStreams([recipe.make] * num_envs)
    return FittedVectorEnv(env, fit_to(agent, env, config))
