"""The last n steps of an episode and their n-step returns: what n-step methods share.

    G_{τ:τ+n} = R_{τ+1} + γ R_{τ+2} + ... + γ^{n-1} R_{τ+n} + γ^n (value after n steps)

A memory with a window has `time` and rows, which step t fills at t mod K: `states`, `rewards` and
other quantities as needed. K is n, or for a large n the length needed so far in the episode, so
that nothing has been overwritten yet.

Source: Sutton & Barto 2018, eq. 7.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlbook.algorithms.tabular.records import NamedRecord, Settings


class Window(NamedRecord):
    """The tables of a memory with a window."""

    time: NDArray[np.int64]  # [1]: steps of the episode so far
    states: NDArray[np.int64]  # [K]
    rewards: NDArray[np.float64]  # [K], in reward units


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
    """Replaces the last `steps` rows of `rewards` by the returns from those steps to the episode's
    end.
    """
    room, total = len(memory.rewards), bootstrap
    slot = (memory.time[0] - 1) % room
    for _ in range(steps):
        total = memory.rewards[slot] + settings.gamma * total
        memory.rewards[slot] = total
        slot = slot - 1 if slot > 0 else room - 1


def empty_window() -> dict[str, np.ndarray]:
    """The fields of `Window` before the first step."""
    none = np.zeros(0, dtype=np.int64)
    return {"time": np.zeros(1, dtype=np.int64), "states": none, "rewards": np.zeros(0)}
