"""The last n steps of an episode and their n-step returns: what n-step methods share.

    G_{τ:τ+n} = R_{τ+1} + γ R_{τ+2} + ... + γ^{n-1} R_{τ+n} + γ^n (value after n steps)

A memory with a window has `time` and rows, which step t fills at t mod K: `states`, `rewards` and
other quantities as needed. K is n, or for a large n the length needed so far in the episode, so
that nothing has been overwritten yet.

Source: Sutton & Barto 2018, eq. 7.1.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rlbook.agent import State
from rlbook.algorithms.tabular.records import NamedRecord, Settings


class Window(NamedRecord):
    """The tables of a memory with a window."""

    time: NDArray[np.int64]  # [1]: steps of the episode so far
    states: NDArray[np.int64]  # [K]
    rewards: NDArray[np.float64]  # [K], in reward units


WithWindow = TypeVar("WithWindow", bound=Window)


def n_step_return(memory: Window, settings: Settings, steps: int, bootstrap: float) -> float:
    """The return of the last `steps` steps and what follows them, in reward units. Summed from
    the end, as γ(...) + R.
    """
    room, total = len(memory.rewards), bootstrap
    slot = (memory.time[0] - 1) % room
    for _ in range(steps):
        total = memory.rewards[slot] + settings.gamma * total
        slot = slot - 1 if slot > 0 else room - 1
    return total


def rewards_to_returns(memory: Window, settings: Settings, steps: int, bootstrap: float) -> None:
    """Puts into the last `steps` rows of `rewards` the return from that step to the episode's
    end.
    """
    room, total = len(memory.rewards), bootstrap
    slot = (memory.time[0] - 1) % room
    for _ in range(steps):
        total = memory.rewards[slot] + settings.gamma * total
        memory.rewards[slot] = total
        slot = slot - 1 if slot > 0 else room - 1


def no_window() -> dict[str, np.ndarray]:
    """The fields of `Window` before the first step."""
    none = np.zeros(0, dtype=np.int64)
    return {"time": np.zeros(1, dtype=np.int64), "states": none, "rewards": np.zeros(0)}


def with_room(memory: WithWindow, rows: tuple[str, ...], most: int, steps: int) -> WithWindow:
    """The memory with room for `steps` further steps, or for `most` where that is less."""
    room, needed = len(memory.rewards), min(most, int(memory.time[0]) + steps)
    if room >= needed:
        return memory
    extra = min(most, max(needed, 2 * room)) - room
    tables = {name: getattr(memory, name) for name in rows}
    return memory._replace(
        **{
            name: np.concatenate([table, np.zeros(extra, table.dtype)])
            for name, table in tables.items()
        }
    )


def without_spare_room(state: State, rows: tuple[str, ...]) -> State:
    """A `state_dict` without the rows that this episode has not used."""
    used = int(state["memory"]["time"][0])
    kept = {name: state["memory"][name][:used] for name in rows}
    return state | {"memory": state["memory"] | kept}


def check_rows(tables: dict[str, np.ndarray], rows: tuple[str, ...], most: int) -> None:
    """Raises ValueError unless a saved window holds the last steps of its episode, `most` of
    them or as many as there were.
    """
    wanted = min(int(tables["time"][0]), most)
    for name in rows:
        if len(tables[name]) != wanted:
            raise ValueError(
                f"the saved {name} must have {wanted} entries, one for each step kept, "
                f"got {len(tables[name])}"
            )
