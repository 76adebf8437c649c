"""n-step SARSA: move Q(s, a) towards the next n rewards and the value of the pair after them.

    Q ← 0
    for each episode
        T ← ∞, choose a_0
        for t = 0, 1, 2, ... until τ = T - 1
            if t < T
                take a_t, see r_{t+1} and s_{t+1}
                if s_{t+1} ends the episode: T ← t + 1, otherwise choose a_{t+1}
            τ ← t - n + 1                            the step to learn from now
            if τ ≥ 0
                G ← r_{τ+1} + γ r_{τ+2} + ... up to r_{min(τ+n, T)}
                if τ + n < T:  G ← G + γ^n Q(s_{τ+n}, a_{τ+n})
                Q(s_τ, a_τ) ← Q(s_τ, a_τ) + α [ G - Q(s_τ, a_τ) ]

n = 1 is SARSA. n ≥ T is Monte Carlo control with a constant step size. In between, a reward
reaches n state-action pairs at once.

Source: Sutton & Barto 2018, section 7.2, the box on page 147. Deliberate differences: a time
limit is not a termination, so the returns of the last n steps end in Q of the last state and an
action sampled there; and when an episode ends, the remaining n targets are all computed before the
first of them is learned, which matters only after a time limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.exploration import explore, step_size
from rlbook.algorithms.tabular.records import ControlSettings, StepTables
from rlbook.algorithms.tabular.sarsa import NONE, SarsaMemory, take_pending
from rlbook.algorithms.tabular.windows import (
    Window,
    empty_window,
    n_step_return,
    rewards_to_returns,
)
from rlbook.checks import ENDLESS, positive_int


def n_step_sarsa_update(
    memory: NStepMemory,
    settings: NStepSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float | None:
    """Learns from the step n - 1 before this one, in place on Q; at the end, from all left.

    Returns |δ| in reward units, at an episode's end the mean, or None.
    """
    slot = memory.time[0] % len(memory.rewards)
    memory.states[slot], memory.actions[slot], memory.rewards[slot] = state, action, reward
    memory.time[0] += 1
    bootstrap, over = 0.0, terminated or truncated
    memory.pending[0] = NONE
    if not terminated:
        next_action = explore(memory, settings, rng, next_state)
        bootstrap = memory.q[next_state][next_action]
        if not truncated:
            memory.pending[0] = next_action
    if over:
        return update_remaining_steps(memory, settings, bootstrap)
    if memory.time[0] < settings.n:
        return None
    target = n_step_return(memory, settings, settings.n, bootstrap)
    return move_to_target(memory, settings, memory.time[0] - settings.n, target)


def update_remaining_steps(memory: NStepMemory, settings: NStepSettings, bootstrap: float) -> float:
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


def move_to_target(
    memory: NStepMemory, settings: ControlSettings, time: int, target: float
) -> float:
    """Moves Q of the pair at step `time` towards its target. Returns |δ| in reward units."""
    slot = time % len(memory.rewards)
    state: int = memory.states[slot]
    action: int = memory.actions[slot]
    error = target - memory.q[state][action]
    memory.q[state][action] += step_size(memory, settings, state, action) * error
    return abs(error)


ROWS = ("states", "actions", "rewards")
"""The fields of the memory that make up the window."""


class NStepSettings(ControlSettings):
    """The settings, including n."""

    n: int  # rewards in a target, in steps


class NStepMemory(Window, SarsaMemory):
    """The tables, including the last n steps of the episode (see `windows`)."""

    actions: NDArray[np.int64]  # [K]


@dataclass(frozen=True)
class NStepSarsaConfig(ControlConfig):
    """Hyper-parameters of n-step SARSA."""

    # n, steps of reward in a target, at least 1; longer than an episode: Monte Carlo
    n: Annotated[int, positive_int] = 4


class NStepSarsa(ControlAgent):
    """n-step SARSA on a table. Acts in one environment; learns with a delay of n - 1 steps."""

    memory: NStepMemory
    settings: NStepSettings
    Config = NStepSarsaConfig
    on_policy = True
    METRICS: ClassVar[dict[str, str]] = ControlAgent.METRICS | {
        "td_error": "mean of |G - Q(s, a)|, in reward units; the updates at an episode's end "
        "count as one",
    }
    choose = staticmethod(take_pending)
    update = staticmethod(n_step_sarsa_update)

    def make_settings(self) -> NStepSettings:
        return NStepSettings(*super().make_settings(), n=min(int(self.config.n), ENDLESS))

    def make_memory(self) -> NStepMemory:
        none = np.zeros(0, dtype=np.int64)
        return NStepMemory(
            *super().make_memory(), pending=np.full(1, NONE), **empty_window(), actions=none
        )

    def step_tables(self) -> tuple[StepTables, ...]:
        return (StepTables(ROWS, "time", self.settings.n),)

    def begin(self) -> None:
        self.memory.pending[0], self.memory.time[0] = NONE, 0
