"""Checks of the states in a snapshot, which may come from a damaged or forged file."""

from __future__ import annotations

import numpy as np


def check_state(state: int, num_states: int) -> int:
    """The state. Raises ValueError unless it is one of 0, …, `num_states` - 1."""
    if isinstance(state, bool) or not isinstance(state, int | np.integer) or not 0 <= state < num_states:
        raise ValueError(f"a snapshot's state must be an integer from 0 to {num_states - 1}, got {state!r:.40}.")
    return int(state)


def check_states(states: np.ndarray, current: np.ndarray, num_states: int) -> np.ndarray:
    """A copy of the states [N] of N environments. Raises ValueError unless they are shaped like the `current` ones and exist."""
    if not isinstance(states, np.ndarray) or states.dtype != current.dtype or states.shape != current.shape:
        raise ValueError(f"a snapshot's states must be an array {current.dtype} {list(current.shape)}.")
    if states.size and not (states.min() >= 0 and states.max() < num_states):
        raise ValueError(f"a snapshot's states must be integers from 0 to {num_states - 1}.")
    return states.copy()
