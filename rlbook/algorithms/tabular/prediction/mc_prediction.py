"""Monte Carlo prediction: the value of a state is the average of the returns that followed it.

    V ← 0
    for each episode
        play it with the given policy
        G_t ← R_{t+1} + γ G_{t+1}, from the last step to the first
        for each step t:  V(S_t) ← V(S_t) + α [ G_t - V(S_t) ]

First-visit: only the first visit to a state in an episode counts; the averaged returns are then
independent and V is unbiased. Every-visit: each visit counts; biased while there are few episodes,
but uses more of each. Both converge to the same values. With α = 1/N, the default, V is the
average; a constant α forgets old episodes.

Source: Sutton & Barto 2018, section 5.1, the box on page 92, and eq. 6.1 for constant α; Singh
& Sutton 1996, doi:10.1007/BF00114726, on the bias. Differences: the updates run from the first
step to the last, which matters for a constant α if a state is visited twice, so that every-visit is
n-step TD with n ≥ T; a truncated episode ends with V of its last state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.algorithms.tabular.episode import (
    EVERY,
    VISITS,
    EpisodeAgent,
    EpisodeArrays,
    empty_episode,
    record,
    to_returns,
)
from rlbook.algorithms.tabular.prediction.prediction_agent import (
    PredictionAgent,
    PredictionConfig,
    PredictionMemory,
    state_step_size,
)
from rlbook.algorithms.tabular.records import Settings
from rlbook.checks import one_of
from rlbook.functional.schedules import Inverse, Schedule


def mc_prediction_update(
    memory: MCPredictionMemory,
    settings: MCPredictionSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float | None:
    """Records the step; at the end of an episode, makes all updates in place on V.

    Returns their mean |G - V| in reward units, or None before that.
    """
    time = record(memory, state, action, reward)
    if memory.first[state] == 0:
        memory.first[state] = time
    if not (terminated or truncated):
        return None
    beyond = 0.0 if terminated else memory.v[next_state]
    length, error, updates = to_returns(memory, beyond, settings.gamma), 0.0, 0
    for time in range(length):
        state = memory.states[time]
        if memory.first[state] == time + 1:
            memory.first[state] = 0
        elif not settings.every_visit:
            continue
        difference = memory.rewards[time] - memory.v[state]
        memory.v[state] += state_step_size(memory, settings, state) * difference
        error += abs(difference)
        updates += 1
    return error / updates


class MCPredictionSettings(Settings):
    """The settings, including which visits count."""

    every_visit: bool  # whether every visit of an episode counts, or only the first


class MCPredictionMemory(EpisodeArrays, PredictionMemory):
    """The tables, including the episode in progress."""

    # [S]: the step of this episode, from 1, that first came from the state; 0 where none did
    first: NDArray[np.int64]


@dataclass(frozen=True)
class MCPredictionConfig(PredictionConfig):
    """Hyper-parameters of Monte Carlo prediction."""

    # step size α, in (0, 1]; inverse(1.0) averages all returns
    alpha: Schedule = Inverse(1.0)
    # which visits in an episode count: first or every
    visits: Annotated[str, one_of(*VISITS)] = "first"


class MCPrediction(EpisodeAgent, PredictionAgent):
    """Monte Carlo prediction with a table. Acts in one environment; learns when an episode ends."""

    memory: MCPredictionMemory
    settings: MCPredictionSettings
    Config = MCPredictionConfig
    METRICS: ClassVar[dict[str, str]] = PredictionAgent.METRICS | {
        "td_error": "mean of |G - V(s)| over an episode's updates, in reward units",
    }
    update = staticmethod(mc_prediction_update)
    marks = ("first",)

    def make_settings(self) -> MCPredictionSettings:
        return MCPredictionSettings(
            *super().make_settings(), every_visit=self.config.visits == EVERY
        )

    def make_memory(self) -> MCPredictionMemory:
        first = np.zeros(self.num_states, dtype=np.int64)
        return MCPredictionMemory(*super().make_memory(), **empty_episode(), first=first)
