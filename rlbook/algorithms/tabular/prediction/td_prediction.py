"""TD prediction: after each step, move V(s) towards the reward and the value of the next state.

    V ← initial value, π ← the given policy
    for each step
        a ← an action of π(·|s)
        take a, see r and s'
        V(s) ← V(s) + α [ r + γ V(s') - V(s) ]

V(s') counts as 0 where the episode terminated. It learns before an episode ends, because it
bootstraps from its own estimate V(s'). With `batch`, nothing is learned until an episode ends; then
all transitions so far are replayed until the values converge:

    repeat
        for all s at once:
            V(s) ← V(s) + α · mean over all transitions from s of [ r + γ V(s') - V(s) ]
    until every mean is within the tolerance

Batch TD converges to the values of the maximum-likelihood model of the data: the
certainty-equivalence estimate.

Source: Sutton 1988, doi:10.1007/BF00115009; Sutton & Barto 2018, the box on page 120 and
section 6.3. Deliberate difference: the book sums the increments of a batch, which requires a
smaller step size for more data; we take their mean, which has the same fixed point and converges
for every step size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.algorithms.tabular.prediction.prediction_agent import (
    PredictionAgent,
    PredictionConfig,
    PredictionMemory,
    state_step_size,
)
from rlbook.algorithms.tabular.records import Settings, StepTables
from rlbook.checks import ENDLESS, positive, positive_int


def td_update(
    memory: TDMemory,
    settings: TDSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float | None:
    """One step, in place on V. Returns |δ| in reward units."""
    if settings.batch:
        return batch_td_update(
            memory, settings, state, reward, next_state, terminated, terminated or truncated
        )
    bootstrap = 0.0 if terminated else settings.gamma * memory.v[next_state]
    error = reward + bootstrap - memory.v[state]
    memory.v[state] += state_step_size(memory, settings, state) * error
    return abs(error)


def batch_td_update(
    memory: TDMemory,
    settings: TDSettings,
    state: int,
    reward: float,
    next_state: int,
    terminated: bool,
    done: bool,
) -> float | None:
    """Records the step; when the episode is over, replays all steps until V converges.

    Returns the largest mean TD error before that, in reward units, or None.
    """
    place = memory.kept[0]
    memory.states[place], memory.rewards[place] = state, reward
    memory.successors[place], memory.ends[place] = next_state, terminated
    memory.kept[0] = place + 1
    memory.counts[state] += 1
    if not done:
        return None
    first = largest = replay_batch(memory, settings)
    replays = 1
    while largest > settings.tolerance and replays < settings.max_replays:
        largest = replay_batch(memory, settings)
        replays += 1
    return first


def replay_batch(memory: TDMemory, settings: TDSettings) -> float:
    """Moves every V(s) seen so far towards the mean of its targets, all at once.

    Returns the largest |mean TD error|, in reward units.
    """
    for place in range(memory.kept[0]):
        state = memory.states[place]
        bootstrap = 0.0
        if not memory.ends[place]:
            bootstrap = settings.gamma * memory.v[memory.successors[place]]
        memory.errors[state] += memory.rewards[place] + bootstrap - memory.v[state]
    largest = 0.0
    for state in range(len(memory.v)):
        if memory.counts[state] > 0:
            mean = memory.errors[state] / memory.counts[state]
            largest = max(largest, abs(mean))
            memory.v[state] += state_step_size(memory, settings, state) * mean
            memory.errors[state] = 0.0
    return largest


KEPT = ("states", "rewards", "successors", "ends")
"""The fields of the memory with one entry for each step so far."""


class TDSettings(Settings):
    """The settings, including those of batch replay."""

    batch: bool  # learn from all episodes again whenever one ends
    # largest mean TD error of a state that counts as none, in reward units
    tolerance: float
    max_replays: int  # replays after one episode, at most


class TDMemory(PredictionMemory):
    """The tables, including with `batch` all transitions so far."""

    kept: NDArray[np.int64]  # [1]: steps kept
    states: NDArray[np.int64]  # [K]
    rewards: NDArray[np.float64]  # [K], in reward units
    successors: NDArray[np.int64]  # [K]
    ends: NDArray[np.bool_]  # [K]: terminated
    errors: NDArray[np.float64]  # [S]: sums of TD errors in one replay, in reward units
    counts: NDArray[np.int64]  # [S]: how many of them


@dataclass(frozen=True)
class TDPredictionConfig(PredictionConfig):
    """Hyper-parameters of TD prediction."""

    # batch TD: after each episode, replay all episodes so far until the values converge
    batch: bool = False
    # batch: replay until every state's mean TD error is at most this, in reward units, > 0
    tolerance: Annotated[float, positive] = 1e-6
    # batch: maximum number of replays after an episode, at least 1
    max_replays: Annotated[int, positive_int] = 10_000


class TDPrediction(PredictionAgent):
    """TD(0) or batch TD on a table V. Acts in one environment; learns at every step, or when an
    episode ends.
    """

    memory: TDMemory
    settings: TDSettings
    Config = TDPredictionConfig
    update = staticmethod(td_update)

    def make_settings(self) -> TDSettings:
        config = self.config
        return TDSettings(
            *super().make_settings(),
            batch=config.batch,
            tolerance=float(config.tolerance),
            max_replays=int(config.max_replays),
        )

    def make_memory(self) -> TDMemory:
        none = np.zeros(0, dtype=np.int64)
        return TDMemory(
            *super().make_memory(),
            kept=np.zeros(1, dtype=np.int64),
            states=none,
            rewards=np.zeros(0),
            successors=none,
            ends=np.zeros(0, dtype=bool),
            errors=np.zeros(self.num_states),
            counts=np.zeros(self.num_states, dtype=np.int64),
        )

    def step_tables(self) -> tuple[StepTables, ...]:
        return (StepTables(KEPT, "kept", ENDLESS if self.config.batch else 0),)

    def check_saved(self, tables: dict[str, np.ndarray]) -> None:
        super().check_saved(tables)
        counted = np.bincount(tables["states"], minlength=self.num_states)
        if (counted != tables["counts"]).any():
            kept = int(tables["kept"][0])
            raise ValueError(f"the saved steps must be {kept}, and each state's count must agree")
