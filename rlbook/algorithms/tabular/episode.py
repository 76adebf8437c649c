"""The episode in progress, from which Monte Carlo methods learn when it ends.

At the end `to_returns` turns the rewards into returns, in place:

    G_t = R_{t+1} + γ G_{t+1}

A terminated episode ends with G_T = 0. The rewards of an episode truncated by a time limit are not
the whole return, so G_T is then the table's value of the last state. With 0 instead, the agent
would learn that a time limit is a terminal state.

Source: Sutton & Barto 2018, eq. 3.9. Bootstrapping at truncation is ours: the book has no time
limits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlbook.algorithms.tabular.records import Memory, NamedRecord, StepTables
from rlbook.algorithms.tabular.tabular_agent import TableAgent

EPISODE = ("states", "actions", "rewards")
"""The fields of a memory that grow during an episode."""
FIRST, EVERY = "first", "every"
VISITS = (FIRST, EVERY)
"""The possible values of `visits`: an episode updates an entry at its first visit only, or at every
visit."""


class EpisodeArrays(NamedRecord):
    """The episode in progress."""

    states: NDArray[np.int64]  # [T]
    actions: NDArray[np.int64]  # [T]
    rewards: NDArray[np.float64]  # [T], in reward units; at the end the returns
    recorded: NDArray[np.int64]  # [1]: how many of these entries count


class EpisodeMemory(EpisodeArrays, Memory):
    """The tables of an agent that stores the episode in progress."""


def empty_episode() -> dict[str, np.ndarray]:
    """The fields of `EpisodeArrays` before the first step."""
    none = np.zeros(0, dtype=np.int64)
    recorded = np.zeros(1, dtype=np.int64)
    return {"states": none, "actions": none, "rewards": np.zeros(0), "recorded": recorded}


def record(memory: EpisodeArrays, state: int, action: int, reward: float) -> int:
    """Appends a step. Returns the episode's length so far."""
    time = memory.recorded[0]
    memory.states[time] = state
    memory.actions[time] = action
    memory.rewards[time] = reward
    memory.recorded[0] = time + 1
    return time + 1


def to_returns(memory: EpisodeArrays, beyond: float, gamma: float) -> int:
    """Makes `rewards` the returns G_t, in reward units, and empties the memory. Returns T.

    Args:
        memory: of an episode that ended.
        beyond: G_T, the value of the last state; 0 where the episode terminated.
        gamma: γ, discount per step.
    """
    length = memory.recorded[0]
    for time in range(length - 1, -1, -1):
        beyond = memory.rewards[time] + gamma * beyond
        memory.rewards[time] = beyond
    memory.recorded[0] = 0
    return length


class EpisodeAgent(TableAgent):
    """An agent that stores the episode in progress."""

    memory: EpisodeMemory
    marks: tuple[str, ...] = ()
    """Tables that are 0 between episodes, and are cleared with the episode."""

    per_step: tuple[str, ...] = EPISODE
    """Tables with a row for each step of the episode."""

    def step_tables(self) -> tuple[StepTables, ...]:
        return (StepTables(self.per_step, "recorded"),)

    def begin(self) -> None:
        self.memory.recorded[0] = 0
        for name in self.marks:
            getattr(self.memory, name)[...] = 0

    def check_saved(self, tables: dict[str, np.ndarray]) -> None:
        super().check_saved(tables)
        recorded = int(tables["recorded"][0])
        for name in self.marks:
            if tables[name].max() > recorded:
                raise ValueError(
                    f"the saved {name} refers to step {tables[name].max()}, but the episode has "
                    f"{recorded} steps"
                )
