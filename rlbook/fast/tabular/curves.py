"""A table after every episode, in one compiled call: the data of the book's figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rlbook.algorithms.tabular.records import Memory, Settings
from rlbook.envs.tabular.outcomes import Outcomes
from rlbook.fast.tabular.simulation import Chunk, SimulationClock, UniformDraws, simulate

run: Callable[..., Chunk] = simulate
"""In the linked copy, this is `simulation.simulate`, linked to an agent's functions."""


def record(
    model: Outcomes,
    memory: Memory,
    settings: Settings,
    rng: UniformDraws,
    world_rng: UniformDraws,
    state: int,
    episode_return: float,
    length: int,
    clock: SimulationClock,
    row: NDArray[np.float64],
    table: NDArray[np.float64],
    curve: NDArray[np.float64],
) -> tuple[int, float, int, int, int]:
    """Learns until `clock` says stop, and records the table after each episode.

    Args:
        model, memory, settings, rng, world_rng, state, episode_return, length, clock: as for
        `simulate`. row: [1, 3], scratch. table: [K], what is recorded; learning changes it in
        place. curve: [E, K], E ≥ the episodes until `clock.last_episode`; row 0 takes the table
        after the next episode.

    Returns:
        state, return and length of the episode in progress; steps and episodes in all.
    """
    steps, episodes = clock.steps, clock.episodes
    while steps < clock.last_step and episodes < clock.last_episode:
        here = SimulationClock(steps, episodes, clock.last_step, episodes + 1, *clock[4:])
        out = run(model, memory, settings, rng, world_rng, state, episode_return, length, here, row)
        state, episode_return, length, steps = out[0], out[1], out[2], out[3]
        if out[4] > episodes:
            for entry in range(len(table)):
                curve[episodes - clock.episodes][entry] = table[entry]
            episodes += 1
    return state, episode_return, length, steps, episodes
