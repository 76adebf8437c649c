"""Monte Carlo control: average the returns that followed each action, and act greedily by them.

    Q ← 0
    for each episode
        play it: in each state a random action with probability ε, otherwise argmax_a Q(s, a)
        G_t ← R_{t+1} + γ G_{t+1}, from the last step to the first
        for each step t:  Q(S_t, A_t) ← Q(S_t, A_t) + α [ G_t - Q(S_t, A_t) ]

First-visit: only the first time that an episode takes this action in this state counts;
every-visit: each time counts. With α = 1/N, the default, Q is the average of the returns. There is
no bootstrapping, so the returns are unbiased, but have high variance.

Exploring starts are the other way to try every pair: "pairs" begins each episode in a random state
with a random action, which requires a model; "actions" makes only the first action random, which is
equivalent if resets reach every state (Blackjack). Set ε to 0 for no other exploration.

Source: Sutton & Barto 2018, sections 5.3 and 5.4, the boxes on pages 99 and 101. Differences:
the updates run from the first step to the last, which matters for a constant α if a state is
visited twice, so that this is n-step SARSA with n ≥ T; a truncated episode ends with the policy's
value of its last state; every-visit and constant α are options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.episode import (
    EVERY,
    VISITS,
    EpisodeAgent,
    EpisodeArrays,
    empty_episode,
    record,
    to_returns,
)
from rlbook.algorithms.tabular.exploration import (
    UCB,
    expected_value,
    explore,
    random_action,
    row_max,
    step_size,
)
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings
from rlbook.algorithms.tabular.tabular_agent import Choose, Update
from rlbook.checks import one_of
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.errors import RequestError
from rlbook.functional.schedules import Constant, Inverse, Schedule


def mc_control_update(
    memory: MCControlMemory,
    settings: MCControlSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float | None:
    """Records the step; at the end of an episode, makes all updates in place on Q.

    Returns their mean |G - Q| in reward units, or None before that.
    """
    time = record(memory, state, action, reward)
    if memory.first[state][action] == 0:
        memory.first[state][action] = time
    if not (terminated or truncated):
        return None
    beyond = 0.0 if terminated else policy_value(memory, settings, next_state)
    length, error, updates = to_returns(memory, beyond, settings.gamma), 0.0, 0
    for time in range(length):
        state, action = memory.states[time], memory.actions[time]
        if memory.first[state][action] == time + 1:
            memory.first[state][action] = 0
        elif not settings.every_visit:
            continue
        difference = memory.rewards[time] - memory.q[state][action]
        memory.q[state][action] += step_size(memory, settings, state, action) * difference
        error += abs(difference)
        updates += 1
    return error / updates


def policy_value(memory: ControlMemory, settings: ControlSettings, state: int) -> float:
    """V(s) under the current policy, from Q, in reward units; UCB counts as greedy."""
    if settings.exploration == UCB:
        return row_max(memory.q[state])
    return expected_value(memory, settings, state)


def start_anywhere(
    memory: MCControlMemory, settings: MCControlSettings, rng: Generator, state: int
) -> int:
    """A uniformly random first action; then as without exploring starts."""
    if memory.recorded[0] == 0:
        return random_action(memory.q[state], rng)
    return explore(memory, settings, rng, state)


NONE, ACTIONS, PAIRS = "none", "actions", "pairs"


class MCControlSettings(ControlSettings):
    """The settings, including which visits count."""

    every_visit: bool  # whether every visit of an episode counts, or only the first


class MCControlMemory(EpisodeArrays, ControlMemory):
    """The tables, including the episode in progress."""

    # [S, A]: the step of this episode, from 1, at which the action was first taken in the state;
    # 0 where it was not
    first: NDArray[np.int64]


@dataclass(frozen=True)
class MCControlConfig(ControlConfig):
    """Hyper-parameters of Monte Carlo control."""

    # step size α, in (0, 1]; inverse(1.0) averages all returns
    alpha: Schedule = Inverse(1.0)
    epsilon: Schedule = Constant(0.1)  # probability ε of a random action, in [0, 1]
    # which visits in an episode count: first or every
    visits: Annotated[str, one_of(*VISITS)] = "first"
    # exploring starts: none, actions (random first action), or pairs (random first state too)
    exploring_starts: Annotated[str, one_of(NONE, ACTIONS, PAIRS)] = NONE


class MCControl(EpisodeAgent, ControlAgent):
    """Monte Carlo control on a table. Acts in one environment; learns when an episode ends."""

    memory: MCControlMemory
    settings: MCControlSettings
    Config = MCControlConfig
    on_policy = True
    METRICS: ClassVar[dict[str, str]] = ControlAgent.METRICS | {
        "td_error": "mean of |G - Q(s, a)| over an episode's updates, in reward units",
    }
    update = staticmethod(mc_control_update)
    marks = ("first",)

    def make_settings(self) -> MCControlSettings:
        return MCControlSettings(*super().make_settings(), every_visit=self.config.visits == EVERY)

    def functions(self) -> tuple[Choose, Update]:
        choose, update = super().functions()
        return (choose if self.config.exploring_starts == NONE else start_anywhere), update

    def make_memory(self) -> MCControlMemory:
        first = np.zeros((self.num_states, self.num_actions), dtype=np.int64)
        return MCControlMemory(*super().make_memory(), **empty_episode(), first=first)

    def sampled_model(self, model: TabularMDP | None) -> TabularMDP | None:
        """The model for training: with exploring starts "pairs", episodes begin in a uniformly
        random state.

        The states are those that can be reached and are not terminal.

        Raises:
            RequestError: where there is no model to begin in.
        """
        if self.config.exploring_starts != PAIRS:
            return model
        if model is None:
            raise RequestError(
                "exploring_starts 'pairs' needs an environment whose model can be sampled from any "
                "state, and simulate true; 'actions' makes the first action random and leaves the "
                "state to the environment's resets"
            )
        states = model.reachable() & ~model.terminal
        return model.with_initial(states / states.sum())
