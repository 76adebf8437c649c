"""The inner loops of tabular learning. One agent's `choose` and `update`, linked into a loop that is written once (see `compiled`).

`simulate` samples a `TabularMDP`: no environment is stepped, and the whole loop compiles. `interact` steps any gymnasium environment.
Both do what the loop of `rlbook.training` does, and the same generators give the same table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rlbook.envs.outcomes import normal

CHUNK = 16_384
"""Steps between two returns to Python, at most."""
EPISODES = 1_024
"""Episodes between two returns to Python, at most."""

choose: Any = None
update: Any = None
"""An agent's functions stand here in the linked copies of the loops."""


class Clock(NamedTuple):
    """How far the run is and when to come back."""

    steps: int                               # environment steps taken
    episodes: int                            # episodes finished
    budget_steps: int                        # 0: no such budget
    budget_episodes: int                     # 0: no such budget
    marks: float                             # progress · marks ≥ next_mark ends the chunk
    next_mark: float
    most: int                                # steps of this chunk at most
    time_limit: int                          # steps of an episode


def progress_of(steps: int, episodes: int, budget_steps: int, budget_episodes: int) -> float:
    """The fraction of the budget used, in [0, 1]; as `rlbook.training.Budget.progress`."""
    by_steps = steps / budget_steps if budget_steps > 0 else 0.0
    by_episodes = episodes / budget_episodes if budget_episodes > 0 else 0.0
    return min(1.0, max(by_steps, by_episodes))


def draw(cumulative: Any, first: int, rng: Any) -> int:
    """The first index from `first` on whose cumulative probability is above one uniform number; the last of a row is 1."""
    uniform = rng.random()
    while cumulative[first] <= uniform:
        first += 1
    return first


def simulate(
    model: Any, memory: Any, settings: Any, rng: Any, world_rng: Any, state: int, episode_return: float, length: int, clock: Any,
    finished: Any,
) -> Any:  # fmt: skip
    """Acts, samples and learns until the chunk is full.

    Args:
        model: an `Outcomes`, as arrays or as lists.
        memory, settings, rng: the agent's.
        world_rng: what the environment draws from.
        state, episode_return, length: where the episode in progress stands, in reward units and steps.
        clock: how far the run is, and when to stop.
        finished: [E][3], takes the step, return and length of each episode that ends.

    Returns:
        state, episode_return, length; steps and episodes in all; Σ |δ| and the number of updates of this chunk; and whether the last
        step ended an episode, so that the next one begins at `state`.
    """
    steps, episodes, error, updates, count, over = clock.steps, clock.episodes, 0.0, 0, 0, False
    first, cumulative, successor, rewards, ends = model.first, model.cumulative, model.successor, model.reward, model.ends
    spread, num_actions, most, room, limit = model.reward_std, model.num_actions, clock.most, len(finished), clock.time_limit
    now, budget_steps, budget_episodes = memory.clock, clock.budget_steps, clock.budget_episodes
    marks, next_mark = clock.marks, clock.next_mark
    for _ in range(most):
        progress = progress_of(steps, episodes, budget_steps, budget_episodes)
        if progress * marks >= next_mark or count == room:
            break
        now[0] = progress
        action = choose(memory, settings, rng, state)
        outcome = draw(cumulative, first[state * num_actions + action], world_rng)
        next_state, reward, terminated = successor[outcome], rewards[outcome], ends[outcome]
        if spread[outcome] > 0.0:
            reward += spread[outcome] * normal(world_rng.random(), world_rng.random())
        steps += 1
        length += 1
        episode_return += reward
        truncated = length >= limit and not terminated
        size = update(memory, settings, rng, state, action, reward, next_state, terminated, truncated)
        if size >= 0.0 or size != size:
            error += size
            updates += 1
        state, over = next_state, terminated or truncated
        if over:
            finished[count][0], finished[count][1], finished[count][2] = steps, episode_return, length
            count += 1
            episodes += 1
            episode_return, length = 0.0, 0
            state = model.start_state[draw(model.start_cumulative, 0, world_rng)]
    return state, episode_return, length, steps, episodes, error, updates, over


def interact(
    step: Any, reset: Any, memory: Any, settings: Any, rng: Any, state: int, episode_return: float, length: int, clock: Any, finished: list
) -> Any:
    """As `simulate`, in an environment: `step(action)` as gymnasium has it, `reset()` → the next episode's first state.

    Raises:
        FloatingPointError: a reward that is not finite; and whatever `step` raises.
    """
    steps, episodes, error, updates, over = clock.steps, clock.episodes, 0.0, 0, False
    now, budget_steps, budget_episodes, infinity = memory.clock, clock.budget_steps, clock.budget_episodes, math.inf
    marks, next_mark = clock.marks, clock.next_mark
    for _ in range(clock.most):
        progress = progress_of(steps, episodes, budget_steps, budget_episodes)
        if progress * marks >= next_mark:
            break
        now[0] = progress
        action = choose(memory, settings, rng, state)
        next_state, reward, terminated, truncated, _ = step(action)
        if not -infinity < reward < infinity:
            raise FloatingPointError("reward", reward)
        steps += 1
        length += 1
        episode_return += reward
        size = update(memory, settings, rng, state, action, reward, next_state, terminated, truncated and not terminated)
        if size >= 0.0 or size != size:
            error += size
            updates += 1
        state, over = next_state, terminated or truncated
        if over:
            finished.append((steps, float(episode_return), length))
            episodes += 1
            episode_return, length = 0.0, 0
            state = reset()
    return state, episode_return, length, steps, episodes, error, updates, over


class Uniforms:
    """A generator's uniform numbers, drawn ahead in blocks: the same numbers as `rng.random()`, several times faster from Python."""

    def __init__(self, rng: np.random.Generator, block: int = 1_024) -> None:
        self._rng, self._block, self._before = rng, block, rng.bit_generator.state
        self._left: Iterator[float] = iter(())
        self._used = 0
        self.random = self._numbers().__next__

    def _numbers(self) -> Iterator[float]:
        while True:
            self._before = self._rng.bit_generator.state
            self._left = iter(self._rng.random(self._block).tolist())
            yield from self._left

    def put_back(self) -> None:
        """Leaves the generator where drawing the numbers one by one would have left it."""
        left = sum(1 for _ in self._left)
        if left:
            bits: Any = self._rng.bit_generator
            bits.state = self._before
            bits.advance(self._block - left)
