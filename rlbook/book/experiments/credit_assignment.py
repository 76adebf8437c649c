"""Which step earned the return? Three estimates beside the exact answer: the group's, a critic's,
and one from new episodes that start in the same state.

    found = run()
    found["vine, 16"].error                  # root mean square distance from the exact advantage, in reward units
    found["vine, 16"].bias                   # of that, what stays in the mean over episodes
    found["vine, 16"].steps                  # environment steps for one step that is learned from

GRPO gives every step of an episode the same advantage. A critic tells steps apart as well as it has
been learned. `vine_value` goes back to a state and plays on from there, K times: it needs no
critic, only an environment that can be put back, as a text can by keeping its beginning.

Source: Kazemnejad et al. 2024 (VinePPO), arXiv:2410.01679, section 4; Schulman et al. 2015 (TRPO),
arXiv:1502.05477, section 5.2 (vine).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.random import Generator
from numpy.typing import NDArray

import rlbook
from rlbook.agent import State
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.functional.advantages import gae, leave_one_out_advantage
from rlbook.functional.bandits import softmax
from rlbook.interaction.resumable import ResumableEnv
from rlbook.seeding import rng_for

Array = NDArray[np.float64]
Act = Callable[[Any, Generator], Any]
"""Observation and a generator → an action sampled from the policy."""

GROUP, GROUPS, CRITIC, SLIP, SHARPNESS = 8, 30, 20, 0.2, 1.0
ROLLOUTS = (1, 4, 16)


def vine_value(
    env: ResumableEnv, state: State, act: Act, rollouts: int, rng: Generator
) -> tuple[float, int]:
    """V of a state by Monte Carlo: the mean undiscounted return of new episodes that start there.

    A snapshot holds the environment's generator as well; each episode gets a new one, or all of
    them would slip alike.

    Args:
        env: is left wherever the last episode ended.
        state: a snapshot of it.
        act: the policy.
        rollouts: K, at least 1.
        rng: draws actions and the environment's generators.

    Returns:
        The value in reward units, and how many environment steps it took.
    """
    total, steps = 0.0, 0
    for _ in range(rollouts):
        env.restore(state)
        env.unwrapped.np_random = np.random.default_rng(int(rng.integers(2**63)))
        over = False
        while not over:
            _, reward, terminated, truncated, _ = env.step(act(env.obs, rng))
            total, steps, over = total + float(reward), steps + 1, terminated or truncated
    return total / rollouts, steps


class ResumableEpisode(NamedTuple):
    """An episode, with the snapshots needed to restart from any of its steps."""

    state: NDArray[np.int64]  # [T]
    action: NDArray[np.int64]  # [T]
    reward: Array  # [T]
    snapshots: list[State]  # T, taken in front of each step

    @property
    def steps(self) -> int:
        return len(self.reward)


def play_episode(env: ResumableEnv, act: Act, rng: Generator) -> ResumableEpisode:
    """One episode from the start; the environment's observation is the number of its state."""
    env.reset(seed=int(rng.integers(2**31)))
    rows: list[tuple[int, int, float]] = []
    snapshots, over = [], False
    while not over:
        snapshots.append(env.snapshot())
        state, action = int(env.obs), int(act(env.obs, rng))
        _, reward, terminated, truncated, _ = env.step(action)
        rows.append((state, action, float(reward)))
        over = terminated or truncated
    state, action, reward = zip(*rows, strict=True)
    return ResumableEpisode(np.array(state), np.array(action), np.array(reward), snapshots)


@dataclass(frozen=True)
class AdvantageErrors:
    """The errors of one kind of advantage estimate against the exact advantages, over the steps of
    all episodes."""

    error: float  # root mean square, in reward units
    bias: float  # of the means for each state and action, weighted by visits
    steps: float  # environment steps for each that is learned from


def world() -> tuple[ResumableEnv, TabularMDP, Array]:
    """The maze with slips and no time limit, its model, and a policy between random and optimal:
    softmax of the optimal Q, [S, A]."""
    env = rlbook.make("Maze-v0", slip=SLIP, observation="index", max_episode_steps=-1)
    model = TabularMDP.from_env(env)
    run = rlbook.train("value_iteration", model, gamma=1.0)
    best: Any = run.agent
    return ResumableEnv(env), model, softmax(SHARPNESS * best.action_values())


def run(seed: int = 0, groups: int = GROUPS) -> dict[str, AdvantageErrors]:
    """Plays groups of episodes, and estimates the advantages of all their steps in each way.

    Args:
        seed: of everything that is drawn.
        groups: of `GROUP` episodes; a critic, the mean return from each state on, is learned from
            `CRITIC` others first.
    """
    env, model, policy = world()
    rng = rng_for(seed, "environment")
    value = model.policy_values(policy, 1.0)
    exact = model.backup(value, 1.0).reshape(policy.shape) - value[:, None]

    def act(state: Any, rng: Generator) -> int:
        return int(min((policy[state].cumsum() <= rng.random()).sum(), policy.shape[1] - 1))

    critic = mean_returns([play_episode(env, act, rng) for _ in range(CRITIC)], len(value))
    walks = [play_episode(env, act, rng) for _ in range(groups * GROUP)]
    returns = torch.tensor([walk.reward.sum() for walk in walks])
    compared = leave_one_out_advantage(returns, GROUP).tolist()
    kinds = {"group": [np.full(walk.steps, one) for walk, one in zip(walks, compared, strict=True)]}
    critics = {
        "learned critic, λ .95": (critic, 0.95),
        "exact critic, λ .95": (value, 0.95),
        "exact critic, λ 0": (value, 0.0),
    }
    for name, (table, gae_lambda) in critics.items():
        kinds[name] = [
            advantages(walk, np.append(table[walk.state], 0.0), gae_lambda) for walk in walks
        ]
    cost = dict.fromkeys(kinds, 1.0)
    for count in ROLLOUTS:
        branched = [
            [vine_value(env, state, act, count, rng) for state in walk.snapshots] for walk in walks
        ]
        values = [np.array([each for each, _ in values] + [0.0]) for values in branched]
        kinds[name := f"vine, {count}"] = [
            advantages(walk, each, 0.0) for walk, each in zip(walks, values, strict=True)
        ]
        cost[name] = 1.0 + sum(steps for values in branched for _, steps in values) / sum(
            walk.steps for walk in walks
        )
    return {name: estimate_errors(walks, found, exact, cost[name]) for name, found in kinds.items()}


def mean_returns(walks: list[ResumableEpisode], states: int) -> Array:
    """The mean return from each visit to a state, 0 for states not visited: [S]."""
    total, count = np.zeros(states), np.zeros(states)
    for walk in walks:
        np.add.at(total, walk.state, walk.reward[::-1].cumsum()[::-1])
        np.add.at(count, walk.state, 1.0)
    return total / np.maximum(count, 1.0)


def advantages(walk: ResumableEpisode, values: Array, gae_lambda: float) -> Array:
    """GAE of an episode that terminated: [T], from V of its states and 0 after them [T + 1]. λ = 0
    is r + V(s') - V(s)."""
    ends = torch.zeros(walk.steps, dtype=torch.bool)
    ends[-1] = True
    reward, value = torch.from_numpy(walk.reward), torch.from_numpy(values)
    return gae(
        reward,
        value[:-1],
        value[1:],
        ends,
        torch.zeros_like(ends),
        gamma=1.0,
        gae_lambda=gae_lambda,
    ).numpy()


def estimate_errors(
    walks: list[ResumableEpisode], advantages: list[Array], exact: Array, steps: float
) -> AdvantageErrors:
    """The errors of advantages against the exact ones [S, A]."""
    pairs = np.concatenate([walk.state * exact.shape[1] + walk.action for walk in walks])
    error = np.concatenate(advantages) - exact.ravel()[pairs]
    count = np.bincount(pairs)
    mean = np.bincount(pairs, weights=error) / np.maximum(count, 1)
    spread = np.bincount(pairs, weights=(error - mean[pairs]) ** 2)
    often = count > 1
    # a mean of n errors with variance s² is itself off by s² / n in the square
    squared = mean[often] ** 2 - spread[often] / (count[often] - 1) / count[often]
    bias = max(0.0, float(np.average(squared, weights=count[often]))) ** 0.5
    return AdvantageErrors(float(np.sqrt((error**2).mean())), bias, steps)


def measurements(result: dict[str, AdvantageErrors]) -> dict[str, float]:
    """Error, bias and cost of each kind."""
    return {
        f"{name}: {what}": getattr(each, what)
        for name, each in result.items()
        for what in ("error", "bias", "steps")
    }


def draw(result: dict[str, AdvantageErrors]) -> Figure:
    """Error and bias by kind, and the steps that they cost."""
    from rlbook.book.figures.axes import curve_colour, label_axes, legend
    from rlbook.plots.figure import new_figure

    figure = new_figure(7.5, 0.8 + 0.4 * len(result))
    axes, rows = figure.subplots(), np.arange(len(result))
    label_axes(axes, "distance from the exact advantage (reward units)", "")
    axes.barh(
        rows - 0.18,
        [each.error for each in result.values()],
        0.34,
        color=curve_colour(0),
        label="error",
    )
    axes.barh(
        rows + 0.18,
        [each.bias for each in result.values()],
        0.34,
        color=curve_colour(1),
        label="of that, bias",
    )
    axes.set_yticks(rows, [f"{name} ({each.steps:.0f} steps)" for name, each in result.items()])
    axes.invert_yaxis()
    legend(axes, "lower right")
    return figure
