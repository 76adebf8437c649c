"""Dyna-Q+: Dyna-Q with a planning bonus for actions that have not been tried for a long time.

    as Dyna-Q, but planning draws
        s ← a random state of those met so far
        a ← any allowed action, tried or not
        r, s' ← Model(s, a)                       an action never tried leads back to s and pays 0
        r ← r + κ √τ(s, a)                        τ: real steps since the pair was last tried
        Q(s, a) ← Q(s, a) + α [ r + γ max_a' Q(s', a') - Q(s, a) ]

Only planning updates get the bonus. It grows while a pair is not tried, and planning propagates it
to other states, so that the agent goes a long way to try the pair again. In a changing environment
it discovers improvements this way; in a stationary one the exploration costs a little. τ counts
real steps, for pairs that were never tried from the beginning.

As in Dyna-Q, the model stores the last outcome of each pair: exact in a deterministic environment,
one sample if outcomes are random.

Source: Sutton 1990, doi:10.1016/B978-1-55860-141-3.50030-4; Sutton & Barto 2018, section 8.3,
page 168, and its footnote on actions never tried. No deliberate difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.agent import Metrics
from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.exploration import random_action
from rlbook.algorithms.tabular.q_learning import q_learning_step
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings
from rlbook.checks import non_negative, non_negative_int, positive_fraction
from rlbook.functional.schedules import Constant, Schedule


def dyna_q_plus_update(
    memory: DynaPlusMemory,
    settings: DynaPlusSettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float:
    """One real step and n planned ones, in place on Q and the model.

    Returns |δ| of the real one in reward units.
    """
    size = q_learning_step(
        memory, settings, rng, state, action, reward, next_state, terminated, truncated
    )
    remember_with_time(memory, state, action, reward, next_state, terminated)
    for _ in range(settings.planning_steps):
        s = memory.states[int(rng.random() * memory.num_states[0])]
        a = random_action(memory.q[s], rng)
        bonus = settings.kappa * math.sqrt(memory.time[0] - memory.last_tried[s][a])
        imagined = memory.reward[s][a] + bonus
        successor, ended = memory.successor[s][a], memory.ended[s][a]
        q_learning_step(memory, settings.planned, rng, s, a, imagined, successor, ended, False)
    return size


def remember_with_time(
    memory: DynaPlusMemory,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
) -> None:
    """Model(s, a) ← r, s', and the time of this visit."""
    if not memory.met[state]:
        memory.met[state] = True
        memory.states[memory.num_states[0]] = state
        memory.num_states[0] += 1
    memory.time[0] += 1
    memory.last_tried[state][action] = memory.time[0]
    memory.reward[state][action] = reward
    memory.successor[state][action] = next_state
    memory.ended[state][action] = terminated


class DynaPlusSettings(ControlSettings):
    """The settings of Q-learning and of planning with the bonus."""

    planned: ControlSettings  # for planned updates, which are not counted as visits
    planning_steps: int  # n
    kappa: float  # κ, in reward units


class DynaPlusMemory(ControlMemory):
    """The tables of Q-learning and the model. Only real updates are counted in `visits`."""

    # [S, A]: the last reward of each pair, in reward units; 0 before
    reward: NDArray[np.float64]
    # [S, A]: its last successor; before that the state itself
    successor: NDArray[np.int64]
    ended: NDArray[np.bool_]  # [S, A]: whether the episode terminated there
    # [S]: the states met so far, in the order of their first visit
    states: NDArray[np.int64]
    num_states: NDArray[np.int64]  # [1]: how many
    met: NDArray[np.bool_]  # [S]: whether a state is among them
    time: NDArray[np.int64]  # [1]: real steps so far
    # [S, A]: the real step a pair was last tried at; 0 for never
    last_tried: NDArray[np.int64]


@dataclass(frozen=True)
class DynaQPlusConfig(ControlConfig):
    """Hyper-parameters of Dyna-Q+."""

    # n, simulated updates after each real step, at least 0
    planning_steps: Annotated[int, non_negative_int] = 10
    # weight κ of the bonus κ √τ for a pair last tried τ steps ago, in reward units, at least 0
    kappa: Annotated[float, non_negative] = 1e-4
    # step size α, in (0, 1]; not 1/N, because planning updates pairs that were never visited
    alpha: Annotated[Schedule, positive_fraction] = Constant(0.1)


class DynaQPlus(ControlAgent):
    """Dyna-Q with a bonus for pairs that have not been tried for a long time."""

    budget = {"episodes": 100}
    memory: DynaPlusMemory
    settings: DynaPlusSettings
    Config = DynaQPlusConfig
    METRICS: ClassVar[dict[str, str]] = ControlAgent.METRICS | {
        "known_pairs": "state-action pairs tried so far",
    }
    update = staticmethod(dyna_q_plus_update)

    def make_settings(self) -> DynaPlusSettings:
        settings, config = super().make_settings(), self.config
        return DynaPlusSettings(
            *settings,
            planned=settings._replace(counting=False),
            planning_steps=int(config.planning_steps),
            kappa=float(config.kappa),
        )

    def make_memory(self) -> DynaPlusMemory:
        shape = (self.num_states, self.num_actions)
        return DynaPlusMemory(
            *super().make_memory(),
            reward=np.zeros(shape),
            successor=np.arange(shape[0])[:, None].repeat(shape[1], axis=1),
            ended=np.zeros(shape, dtype=bool),
            states=np.zeros(shape[0], dtype=np.int64),
            num_states=np.zeros(1, dtype=np.int64),
            met=np.zeros(shape[0], dtype=bool),
            time=np.zeros(1, dtype=np.int64),
            last_tried=np.zeros(shape, dtype=np.int64),
        )

    def check_saved(self, tables: dict[str, np.ndarray]) -> None:
        super().check_saved(tables)
        count, met = int(tables["num_states"][0]), tables["states"]
        right = np.array_equal(np.sort(met[:count]), np.flatnonzero(tables["met"]))
        right = right and tables["successor"].min() >= 0
        if not right or tables["last_tried"].max() > tables["time"][0]:
            raise ValueError("the saved model and the saved list of states contradict each other")

    def rates(self) -> Metrics:
        return super().rates() | {"known_pairs": float(np.count_nonzero(self.memory.last_tried))}
