"""n-step TD: move V(s) towards the next n rewards and the value of the state after them.

    V ← initial value, π ← the given policy
    for each episode
        T ← ∞
        for t = 0, 1, 2, ... until τ = T - 1
            if t < T
                take an action of π(·|s_t), see r_{t+1} and s_{t+1}
                if s_{t+1} ends the episode: T ← t + 1
            τ ← t - n + 1                            the step to learn from now
            if τ ≥ 0
                G ← r_{τ+1} + γ r_{τ+2} + ... up to r_{min(τ+n, T)}
                if τ + n < T:  G ← G + γ^n V(s_{τ+n})
                V(s_τ) ← V(s_τ) + α [ G - V(s_τ) ]

n = 1 is TD(0). n ≥ T is Monte Carlo with a constant step size. Often an intermediate n is best:
less biased by its own estimates than TD(0), less noisy than whole returns.

Source: Sutton & Barto 2018, section 7.1, the box on page 144. Deliberate differences: a time
limit is not a termination, so the returns of the last n steps end in V of the last state; and when
an episode ends, the remaining n targets are all computed before the first of them is learned, which
matters only after a time limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from numpy.random import Generator

from rlbook.algorithms.tabular.prediction.prediction_agent import (
    PredictionAgent,
    PredictionConfig,
    PredictionMemory,
    state_step_size,
)
from rlbook.algorithms.tabular.records import Settings, StepTables
from rlbook.algorithms.tabular.windows import (
    Window,
    empty_window,
    n_step_return,
    rewards_to_returns,
)
from rlbook.checks import ENDLESS, positive_int


def n_step_td_update(
    memory: NStepTDMemory,
    settings: NStepTDSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float | None:
    """Learns from the step n - 1 before this one, in place on V; at the end, from all left.

    Returns |δ| in reward units, at an episode's end the mean, or None.
    """
    slot = memory.time[0] % len(memory.rewards)
    memory.states[slot], memory.rewards[slot] = state, reward
    memory.time[0] += 1
    bootstrap = 0.0 if terminated else memory.v[next_state]
    if terminated or truncated:
        return update_remaining_steps(memory, settings, bootstrap)
    if memory.time[0] < settings.n:
        return None
    target = n_step_return(memory, settings, settings.n, bootstrap)
    return move_to_target(memory, settings, memory.time[0] - settings.n, target)


def update_remaining_steps(
    memory: NStepTDMemory, settings: NStepTDSettings, bootstrap: float
) -> float:
    """Learns from the last n steps of an episode, in order; their returns go up to its end.

    Returns the mean |δ|, in reward units.
    """
    last, total = memory.time[0], 0.0
    first = max(0, last - settings.n)
    rewards_to_returns(memory, settings, last - first, bootstrap)
    for time in range(first, last):
        total += move_to_target(memory, settings, time, memory.rewards[time % len(memory.rewards)])
    memory.time[0] = 0
    return total / (last - first)


def move_to_target(memory: NStepTDMemory, settings: Settings, time: int, target: float) -> float:
    """Moves V of the state at step `time` towards its target. Returns |δ| in reward units."""
    state: int = memory.states[time % len(memory.rewards)]
    error = target - memory.v[state]
    memory.v[state] += state_step_size(memory, settings, state) * error
    return abs(error)


ROWS = ("states", "rewards")
"""The fields of the memory that make up the window."""


class NStepTDSettings(Settings):
    """The settings, including n."""

    n: int  # rewards in a target, in steps


class NStepTDMemory(Window, PredictionMemory):
    """The tables, including the last n steps of the episode (see `windows`)."""


@dataclass(frozen=True)
class NStepTDConfig(PredictionConfig):
    """Hyper-parameters of n-step TD prediction."""

    # n, steps of reward in a target, at least 1; longer than an episode: Monte Carlo
    n: Annotated[int, positive_int] = 4


class NStepTD(PredictionAgent):
    """n-step TD on a table V. Acts in one environment; learns with a delay of n - 1 steps."""

    memory: NStepTDMemory
    settings: NStepTDSettings
    Config = NStepTDConfig
    METRICS: ClassVar[dict[str, str]] = PredictionAgent.METRICS | {
        "td_error": "mean of |G - V(s)|, in reward units; the updates at an episode's end "
        "count as one",
    }
    update = staticmethod(n_step_td_update)

    def make_settings(self) -> NStepTDSettings:
        return NStepTDSettings(*super().make_settings(), n=min(int(self.config.n), ENDLESS))

    def make_memory(self) -> NStepTDMemory:
        return NStepTDMemory(*super().make_memory(), **empty_window())

    def step_tables(self) -> tuple[StepTables, ...]:
        return (StepTables(ROWS, "time", self.settings.n),)

    def begin(self) -> None:
        self.memory.time[0] = 0
