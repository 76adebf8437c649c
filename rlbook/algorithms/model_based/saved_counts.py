"""The transition counts in a checkpoint, validated against the run's states and actions before
use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlbook.agent import State
from rlbook.checks import saved_array, saved_number


def saved_counts(saved: State, num_states: int, num_actions: int) -> State:
    """The counts that `TransitionCounts` restores; `keys` number the outcomes (s, a, s', end).

    Raises ValueError, one sentence, where they are not those of S states and A actions.
    """
    outcomes = num_states * num_actions * num_states * 2
    keys = saved_array("keys", saved["keys"], np.int64, low=0, high=outcomes)
    if (np.diff(keys) <= 0).any():
        raise ValueError("the saved keys must be strictly increasing")
    forbidden = saved.get("forbidden", np.zeros(0, dtype=np.int64))
    return {
        "keys": keys,
        "counts": saved_array("counts", saved["counts"], np.int64, keys.shape, low=1),
        "rewards": saved_array("rewards", saved["rewards"], np.float64, keys.shape),
        "starts": saved_array("starts", saved["starts"], np.int64, (num_states,), low=0),
        "largest_reward": saved_number("largest_reward", saved["largest_reward"]),
        "forbidden": saved_pairs(forbidden, num_states, num_actions),
    }


def saved_pairs(saved: object, num_states: int, num_actions: int) -> np.ndarray:
    """Pairs that masks forbid, s · A + a. Raises ValueError where a state has none left."""
    pairs = saved_array("forbidden", saved, np.int64, low=0, high=num_states * num_actions)
    if (np.bincount(np.unique(pairs) // num_actions) >= num_actions).any():
        raise ValueError("the saved forbidden pairs leave a state without an action")
    return pairs


def saved_steps(rows: object, num_states: int, num_actions: int) -> list[tuple[Any, ...]]:
    """Steps that are not counted yet, from [n, 5] numbers.

    Raises ValueError, one sentence, where one is not a step of S states and A actions.
    """
    found = np.asarray(rows)
    columns = saved_array("fresh", found.reshape(-1), np.float64).reshape(-1, 5).T
    sizes = {"state": num_states, "action": num_actions, "successor": num_states}
    for name, column in zip(sizes, columns[[0, 1, 3]], strict=True):
        saved_array(f"fresh {name}", column, np.float64, column.shape, low=0, high=sizes[name])
        if (column % 1).any():
            raise ValueError(f"the saved fresh {name} must be whole numbers")
    return [(int(s), int(a), r, int(t), bool(end)) for s, a, r, t, end in columns.T.tolist()]
