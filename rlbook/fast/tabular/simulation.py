"""The inner loops of tabular learning. One agent's `choose` and `update` are linked into a loop
that is written once (see `compiled`).

`simulate` samples a `TabularMDP`: no environment is stepped, and the whole loop compiles.
`interact` steps any gymnasium environment. Both do what the loop of `rlbook.training` does, and the
same generators give the same table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain
from operator import length_hint
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rlbook.algorithms.tabular.exploration import explore
from rlbook.algorithms.tabular.q_learning import q_learning_step
from rlbook.algorithms.tabular.records import Memory, Settings
from rlbook.algorithms.tabular.tabular_agent import Choose, Update
from rlbook.envs.tabular.outcomes import Outcomes, draw, standard_normal
from rlbook.interaction.action_masks import ACTION_MASK
from rlbook.interaction.episodes import Episode
from rlbook.interaction.guards import METRICS, BadAnswer, finite_number, unpack_step

CHUNK = 16_384
"""The largest number of steps between two returns to Python."""
EPISODES = 1_024
"""The largest number of episodes between two returns to Python."""

NUMBERS, INTEGERS = frozenset([float, int, np.float64, np.int64]), frozenset([int, np.int64])
"""Types of rewards and states that need no further check."""

choose: Choose = explore
update: Update = q_learning_step
"""In the linked copies of the loops, this is the agent's function."""

Chunk = tuple[int, float, int, int, int, float, int, bool]
"""What a loop returns; see `simulate`."""


class UniformDraws(Protocol):
    """A `Generator`, or its numbers drawn in advance."""

    def random(self) -> float: ...


class SimulationClock(NamedTuple):
    """The progress of the run, and when to return to Python."""

    steps: int  # environment steps taken
    episodes: int  # episodes finished
    last_step: int  # come back when so many steps are taken
    last_episode: int  # or so many episodes are finished
    budget_steps: float  # inf: no such budget
    budget_episodes: float  # inf: no such budget
    time_limit: int  # steps of an episode
    noisy: bool  # whether rewards have noise on top
    sure: bool  # whether nothing is left to chance: one outcome a row, one start, no noise


def simulate(
    model: Outcomes,
    memory: Memory,
    settings: Settings,
    rng: UniformDraws,
    world_rng: UniformDraws,
    state: int,
    episode_return: float,
    length: int,
    clock: SimulationClock,
    finished: NDArray[np.float64] | list[list[float]],
) -> Chunk:
    """Acts, samples and learns until the chunk is full.

    Args:
        model: an `Outcomes`, as arrays or as lists. Each step draws one number from `world_rng`,
            and so does each start; where nothing is left to chance (`clock.sure`) the caller skips
            as many.
        memory, settings, rng: the agent's.
        world_rng: what the environment draws from.
        state, episode_return, length: where the episode in progress stands, in reward units and
            steps.
        clock: how far the run is, and when to stop.
        finished: [E][3], takes the step, return and length of each episode that ends.

    Returns:
        state, episode_return, length; steps and episodes in all; Σ |δ| and the number of updates of
        this chunk; and whether the last step ended an episode, so that the next one begins at
        `state`.
    """
    steps, episodes, error, idle, count, over, chance = (
        clock.steps,
        clock.episodes,
        0.0,
        0,
        0,
        False,
        not clock.sure,
    )
    first, cumulative, successor, rewards, ends = (
        model.first,
        model.cumulative,
        model.successor,
        model.reward,
        model.ends,
    )
    spread, num_actions, noisy, limit, moving = (
        model.reward_std,
        model.num_actions,
        clock.noisy,
        clock.time_limit,
        settings.moving,
    )
    by_episodes = episodes / clock.budget_episodes
    for steps in range(clock.steps, clock.last_step):
        if moving:
            memory.clock[0] = max(steps / clock.budget_steps, by_episodes)
        action = choose(memory, settings, rng, state)
        outcome: int = first[state * num_actions + action]
        if chance:
            uniform = world_rng.random()
            while cumulative[outcome] <= uniform:
                outcome += 1
        next_state, reward, terminated = successor[outcome], rewards[outcome], ends[outcome]
        if noisy and spread[outcome] > 0.0:
            reward += spread[outcome] * standard_normal(world_rng.random(), world_rng.random())
        length += 1
        episode_return += reward
        over = terminated or length >= limit
        size = update(
            memory,
            settings,
            rng,
            state,
            action,
            reward,
            next_state,
            terminated,
            over and not terminated,
        )
        if size is None:  # nothing was learned yet
            idle += 1
        else:
            error += size
        state = next_state
        if over:
            row = finished[count]
            row[0], row[1], row[2] = steps + 1, episode_return, length
            count += 1
            episodes += 1
            by_episodes = episodes / clock.budget_episodes
            episode_return, length = 0.0, 0
            state = (
                model.start_state[draw(model.start_cumulative, 0, world_rng)]
                if chance
                else model.start_state[0]
            )
            if episodes == clock.last_episode:
                break
    return (
        state,
        episode_return,
        length,
        steps + 1,
        episodes,
        error,
        steps + 1 - clock.steps - idle,
        over,
    )


class World(NamedTuple):
    """An environment as `interact` uses it."""

    step: Callable[[Any], Any]  # as gymnasium has it
    reset: Callable[[], int]  # → the next episode's first state
    remember: Callable[[Any], None]  # called with the action before each step
    # called with a step's info where that holds named numbers
    note: Callable[[dict[str, Any]], None]
    # called with the state after a step, its info where that holds an action mask, and the two
    # flags
    allow: Callable[[int, dict[str, Any], bool, bool], None]
    has_masks: bool  # whether a mask was shown before
    num_states: int


def interact(
    world: World,
    memory: Memory,
    settings: Settings,
    rng: UniformDraws,
    state: int,
    episode_return: float,
    length: int,
    clock: SimulationClock,
    finished: list[Episode],
) -> Chunk:
    """As `simulate`, in an environment given as a `World`.

    Raises:
        FloatingPointError, BadAnswer: a reward that is not finite, or a state that there is
            not; and whatever `step` raises.
    """
    step, reset, remember, num_states, named, masked = (
        world.step,
        world.reset,
        world.remember,
        world.num_states,
        METRICS,
        ACTION_MASK,
    )
    steps, episodes, error, idle, over, has_masks = (
        clock.steps,
        clock.episodes,
        0.0,
        0,
        False,
        world.has_masks,
    )
    moving, infinity, limit, by_episodes = (
        settings.moving,
        math.inf,
        clock.time_limit,
        episodes / clock.budget_episodes,
    )
    for steps in range(clock.steps, clock.last_step):
        if moving:
            memory.clock[0] = max(steps / clock.budget_steps, by_episodes)
        action = choose(memory, settings, rng, state)
        remember(action)
        answer = step(action)
        try:
            next_state, reward, terminated, truncated, info = answer
            usual = (
                reward.__class__ in NUMBERS
                and -infinity < reward < infinity
                and terminated.__class__ is bool
                and truncated.__class__ is bool
                and next_state.__class__ in INTEGERS
                and 0 <= next_state < num_states
                and info.__class__ is dict
            )
        except (TypeError, ValueError):
            usual = False
        if not usual:
            next_state, reward, terminated, truncated, info = checked_step(answer, num_states)
        if named in info:
            world.note(info)
        if masked in info or has_masks:
            has_masks = True
            world.allow(next_state, info, terminated, truncated)
        length += 1
        episode_return += reward
        over = terminated or truncated or length >= limit
        size = update(
            memory,
            settings,
            rng,
            state,
            action,
            reward,
            next_state,
            terminated,
            over and not terminated,
        )
        if size is None:  # nothing was learned yet
            idle += 1
        else:
            error += size
        state = next_state
        if over:
            finished.append((steps + 1, float(episode_return), length))
            episodes += 1
            by_episodes = episodes / clock.budget_episodes
            episode_return, length = 0.0, 0
            state = reset()
            if episodes == clock.last_episode:
                break
    return (
        state,
        episode_return,
        length,
        steps + 1,
        episodes,
        error,
        steps + 1 - clock.steps - idle,
        over,
    )


def checked_step(answer: object, num_states: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
    """The return value of `step` as Python numbers. Raises if it is invalid."""
    state, reward, terminated, truncated, info = unpack_step(answer)
    paid, index = finite_number(reward), np.asarray(state)
    if index.ndim or index.dtype.kind not in "iub" or not 0 <= index < num_states:
        raise BadAnswer(f"the observation {state!r} is outside Discrete({num_states})")
    return int(index), paid, terminated, truncated, info


def skip(rng: np.random.Generator, count: int) -> None:
    """Advances the generator by `count` uniform numbers."""
    bits: Any = rng.bit_generator
    bits.advance(count)


class BufferedUniforms:
    """A generator's uniform numbers, drawn in advance in blocks: the same numbers as
    `rng.random()`, several times faster from Python."""

    def __init__(self, rng: np.random.Generator, block: int = 512) -> None:
        self._rng, self._block = rng, block
        self._left: Iterator[float] = iter(())
        self.random = chain.from_iterable(self._blocks()).__next__

    def _blocks(self) -> Iterator[Iterator[float]]:
        while True:
            self._left = iter(self._rng.random(self._block).tolist())
            yield self._left

    def put_back(self) -> None:
        """Leaves the generator in the state that drawing the numbers one by one would have
        given."""
        if left := length_hint(self._left):
            skip(self._rng, -left)
