"""Eligibility traces of a table: how much the current TD error updates each entry visited before.

    e(x) ← γ λ e(x)                           for all entries x, after each step
    e(s) ← e(s) + α                           accumulating, for the entry visited
    e(s) ← α                                  replacing
    e(s) ← e(s) + α (1 - e(s))                true online (the Dutch trace)

The step size is part of the trace, so that each visit keeps the step size it was made with. With a
constant α the trace is α times the book's.

A memory with traces keeps a list of the entries whose trace is above 0. A step costs as many
operations as there are such entries. The traces are exact: an entry leaves the list when its
trace is 0, at the end of an episode or because λ, γ or the precision of the numbers says so. For
a table V, A is 1.

Source: Sutton & Barto 2018, eq. 12.5, 12.11 and 12.12, and p. 301 for replacing traces; van
Seijen et al. 2016, arXiv:1512.04087, for the step size inside the trace.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlbook.algorithms.tabular.records import (
    ControlMemory,
    ControlSettings,
    Memory,
    NamedRecord,
    StepTables,
)
from rlbook.algorithms.tabular.tabular_agent import TableAgent

ACCUMULATING, REPLACING, TRUE_ONLINE, OFFLINE = range(4)
NAMES = ("accumulating", "replacing", "true-online", "offline")
LISTED = ("traced_states", "traced_actions", "traces")


class Traces(NamedRecord):
    """The tables of a memory with traces."""

    place: NDArray[np.int64]  # [S, A]: an entry's place in the list, from 1; 0: none
    active: NDArray[np.int64]  # [1]: K, the length of the list
    traced_states: NDArray[np.int64]  # [K]
    traced_actions: NDArray[np.int64]  # [K]
    traces: NDArray[np.float64]  # [K], each above 0


class TraceSettings(NamedRecord):
    """What the traces do at a visit and between two steps."""

    decay: float  # γλ
    traces: int  # ACCUMULATING, REPLACING, TRUE_ONLINE or OFFLINE


class TraceMemory(Traces, Memory):
    """The tables of an agent with traces."""


class TracedControlSettings(TraceSettings, ControlSettings):
    """The settings, including those of the traces."""


class TracedControlMemory(Traces, ControlMemory):
    """The tables, including the traces of Q."""


def visit(memory: Traces, kind: int, state: int, action: int, alpha: float) -> float:
    """The trace of an entry after a visit with step size `alpha`, in [0, ...)."""
    if memory.place[state][action] == 0:
        last = memory.active[0]
        memory.traced_states[last], memory.traced_actions[last] = state, action
        memory.traces[last] = 0.0
        memory.active[0] = memory.place[state][action] = last + 1
    place: int = memory.place[state][action] - 1
    if kind == REPLACING:
        memory.traces[place] = alpha
    elif kind == TRUE_ONLINE:
        memory.traces[place] += alpha * (1.0 - memory.traces[place])
    else:
        memory.traces[place] += alpha
    return memory.traces[place]


def spread_error(memory: TracedControlMemory, error: float) -> None:
    """Moves every entry of Q by its trace's share of the error, in reward units."""
    for place in range(memory.active[0]):
        state, action = memory.traced_states[place], memory.traced_actions[place]
        memory.q[state][action] += error * memory.traces[place]


def decay_traces(memory: Traces, decay: float) -> None:
    """Multiplies all traces by `decay`, in [0, 1], and removes those that become 0."""
    if decay == 0.0:
        reset_traces(memory)
    place = 0
    while place < memory.active[0]:
        memory.traces[place] *= decay
        if memory.traces[place] > 0.0:
            place += 1
        else:
            _remove(memory, place)


def reset_traces(memory: Traces) -> None:
    """Sets all traces to 0."""
    for place in range(memory.active[0]):
        memory.place[memory.traced_states[place]][memory.traced_actions[place]] = 0
    memory.active[0] = 0


def _remove(memory: Traces, place: int) -> None:
    """Moves the last entry of the list to this place."""
    last = memory.active[0] - 1
    memory.place[memory.traced_states[place]][memory.traced_actions[place]] = 0
    if place < last:
        state, action = memory.traced_states[last], memory.traced_actions[last]
        memory.traced_states[place], memory.traced_actions[place] = state, action
        memory.traces[place] = memory.traces[last]
        memory.place[state][action] = place + 1
    memory.active[0] = last


def empty_traces(num_states: int, num_actions: int) -> dict[str, np.ndarray]:
    """The fields of `Traces` before the first step."""
    none = np.zeros(0, dtype=np.int64)
    return {
        "place": np.zeros((num_states, num_actions), dtype=np.int64),
        "active": np.zeros(1, dtype=np.int64),
        "traced_states": none,
        "traced_actions": none,
        "traces": np.zeros(0),
    }


class TracedAgent(TableAgent):
    """An agent with eligibility traces."""

    memory: TraceMemory

    def step_tables(self) -> tuple[StepTables, ...]:
        return (StepTables(LISTED, "active", self.memory.place.size),)

    def begin(self) -> None:
        reset_traces(self.memory)

    def check_saved(self, tables: dict[str, np.ndarray]) -> None:
        """Raises ValueError unless the saved list and the saved places agree, too.

        Entry i of the list has place i + 1; no other entry has a place.
        """
        super().check_saved(tables)
        place, active = tables["place"], int(tables["active"][0])
        states, actions = tables["traced_states"], tables["traced_actions"]
        right = np.count_nonzero(place) == active and (actions < place.shape[1]).all()
        if not right or (place[states, actions] != np.arange(1, active + 1)).any():
            raise ValueError("the saved traces contradict each other")
