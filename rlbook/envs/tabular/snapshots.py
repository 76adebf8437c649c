"""Validates the states in a snapshot, which may come from a damaged or forged file."""

from __future__ import annotations

import numpy as np


def check_state(state: int, num_states: int) -> int:
    """Returns the state. Raises ValueError unless it is one of 0, …, `num_states` - 1."""
    if (
        isinstance(state, bool)
        or not isinstance(state, int | np.integer)
        or not 0 <= state < num_states
    ):
        raise ValueError(
            f"a snapshot's state must be an integer from 0 to {num_states - 1}, got {state!r:.40}."
        )
    return int(state)


def check_array(
    name: str, value: object, current: np.ndarray, *, low: float = -np.inf, high: float = np.inf
) -> np.ndarray:
    """A copy of an array in a snapshot. Raises ValueError unless its shape and dtype match
    `current` and its values lie in [low, high]."""
    if (
        not isinstance(value, np.ndarray)
        or value.dtype != current.dtype
        or value.shape != current.shape
    ):
        raise ValueError(
            f"a snapshot's {name} must be an array {current.dtype} {list(current.shape)}."
        )
    if value.size and value.dtype != np.bool_ and not (value.min() >= low and value.max() <= high):
        raise ValueError(f"a snapshot's {name} must be in [{low:g}, {high:g}].")
    return value.copy()


def saved_steps(name: str, value: object) -> int:
    """A step count in a snapshot. Raises ValueError unless it is one."""
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"a snapshot's {name} must be an integer of at least 0.")
    return value


def check_states(states: np.ndarray, current: np.ndarray, num_states: int) -> np.ndarray:
    """A copy of the states [N] of N environments. Raises ValueError unless their shape matches
    `current` and they exist."""
    if (
        not isinstance(states, np.ndarray)
        or states.dtype != current.dtype
        or states.shape != current.shape
    ):
        raise ValueError(
            f"a snapshot's states must be an array {current.dtype} {list(current.shape)}."
        )
    if states.size and not (states.min() >= 0 and states.max() < num_states):
        raise ValueError(f"a snapshot's states must be integers from 0 to {num_states - 1}.")
    return states.copy()
