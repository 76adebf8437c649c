"""Dyna-Q: learn from each real step, store it in a model, and learn from simulated steps in
between.

    Q ← 0;   Model ← empty
    for each step
        a ← a random action with probability ε, otherwise argmax_a Q(s, a)
        take a, see r and s'
        Q(s, a) ← Q(s, a) + α [ r + γ max_a' Q(s', a') - Q(s, a) ]        Q-learning
        Model(s, a) ← r, s', and whether the episode terminated
        repeat n times
            s ← a random state of those met so far
            a ← a random action of those taken in s so far
            r, s' ← Model(s, a)
            Q(s, a) ← Q(s, a) + α [ r + γ max_a' Q(s', a') - Q(s, a) ]    the same update

Learning and planning are the same update, applied to real steps and to steps from the model. With
n = 0 there is no planning, and the algorithm is Q-learning, bit for bit.

The model stores the last outcome of each pair. In a deterministic environment this is exact. If
outcomes are random it is one sample, kept until the pair is tried again; planning repeats it as if
it were certain, so that Q fluctuates more with larger α and n.

Source: Sutton 1990, doi:10.1016/B978-1-55860-141-3.50030-4; Sutton & Barto 2018, section 8.2,
the box on page 164. No deliberate difference; the book leaves open that the model remembers
terminations, and that α = 1/N counts only real steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.agent import Metrics
from rlbook.algorithms.tabular.control_agent import ControlAgent, ControlConfig
from rlbook.algorithms.tabular.q_learning import q_learning_step
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings
from rlbook.checks import non_negative_int


def dyna_q_update(
    memory: DynaMemory,
    settings: DynaSettings,
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
    remember(memory, state, action, reward, next_state, terminated)
    for _ in range(settings.planning_steps):
        s: int = memory.states[int(rng.random() * memory.num_states[0])]
        a: int = memory.tried[s][int(rng.random() * memory.num_tried[s])]
        r, successor, ended = memory.reward[s][a], memory.successor[s][a], memory.ended[s][a]
        q_learning_step(memory, settings.planned, rng, s, a, r, successor, ended, False)
    return size


def remember(
    memory: DynaMemory, state: int, action: int, reward: float, next_state: int, terminated: bool
) -> None:
    """Model(s, a) ← r, s'; adds the pair to those that planning draws from."""
    if memory.successor[state][action] == UNTRIED:
        if memory.num_tried[state] == 0:
            memory.states[memory.num_states[0]] = state
            memory.num_states[0] += 1
        memory.tried[state][memory.num_tried[state]] = action
        memory.num_tried[state] += 1
    memory.reward[state][action] = reward
    memory.successor[state][action] = next_state
    memory.ended[state][action] = terminated


UNTRIED = -1
"""The successor of a pair that was never tried."""


class DynaSettings(ControlSettings):
    """The settings of Q-learning and of planning."""

    planned: ControlSettings  # for planned updates, which are not counted as visits
    planning_steps: int  # n


class DynaMemory(ControlMemory):
    """The tables of Q-learning and the model. Only real updates are counted in `visits`."""

    reward: NDArray[np.float64]  # [S, A]: the last reward of each pair, in reward units
    successor: NDArray[np.int64]  # [S, A]: its last successor, or UNTRIED
    ended: NDArray[np.bool_]  # [S, A]: whether the episode terminated there
    # [S]: the states met so far, in the order of their first visit
    states: NDArray[np.int64]
    num_states: NDArray[np.int64]  # [1]: how many
    # [S, A]: the actions taken in a state so far, in the order of the first time
    tried: NDArray[np.int64]
    num_tried: NDArray[np.int64]  # [S]: how many


@dataclass(frozen=True)
class DynaQConfig(ControlConfig):
    """Hyper-parameters of Dyna-Q."""

    # n, simulated updates after each real step, at least 0; 0 is plain Q-learning
    planning_steps: Annotated[int, non_negative_int] = 10


class DynaQ(ControlAgent):
    """Q-learning with a learned model of the transitions observed so far."""

    budget = {"episodes": 100}
    memory: DynaMemory
    settings: DynaSettings
    Config = DynaQConfig
    METRICS: ClassVar[dict[str, str]] = ControlAgent.METRICS | {
        "known_pairs": "state-action pairs tried so far",
    }
    update = staticmethod(dyna_q_update)

    def make_settings(self) -> DynaSettings:
        settings, steps = super().make_settings(), int(self.config.planning_steps)
        planned = settings._replace(counting=False)
        return DynaSettings(*settings, planned=planned, planning_steps=steps)

    def make_memory(self) -> DynaMemory:
        shape = (self.num_states, self.num_actions)
        return DynaMemory(
            *super().make_memory(),
            reward=np.zeros(shape),
            successor=np.full(shape, UNTRIED),
            ended=np.zeros(shape, dtype=bool),
            states=np.zeros(shape[0], dtype=np.int64),
            num_states=np.zeros(1, dtype=np.int64),
            tried=np.zeros(shape, dtype=np.int64),
            num_tried=np.zeros(shape[0], dtype=np.int64),
        )

    def check_saved(self, tables: dict[str, np.ndarray]) -> None:
        super().check_saved(tables)
        known, met = tables["successor"] != UNTRIED, tables["states"]
        count = int(tables["num_states"][0])
        right = (tables["num_tried"] == known.sum(axis=1)).all()
        right = right and np.array_equal(np.sort(met[:count]), np.flatnonzero(known.any(axis=1)))
        for state in met[:count] if right else ():
            tried = tables["tried"][state, : tables["num_tried"][state]]
            right = right and np.array_equal(np.sort(tried), np.flatnonzero(known[state]))
        if not right:
            raise ValueError(
                "the saved model and the saved lists of what was tried contradict each other"
            )

    def rates(self) -> Metrics:
        return super().rates() | {"known_pairs": float(self.memory.num_tried.sum())}
