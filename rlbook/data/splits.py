"""A random split into held-out and training rows in which rows with one prompt stay together."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def split_rows(
    count: int, held_out: int, rng: np.random.Generator, key: Callable[[int], Hashable]
) -> tuple[Rows, Rows]:
    """Draws rows to hold out, in a random order. Rows with equal keys are all on one side, so that
    no held-out prompt is one that was trained on.

    Where there is only one key, the rows are split all the same.

    Args:
        count: n, the number of rows.
        held_out: how many are held out, below n: exactly as many if all keys differ, otherwise as
            many as whole groups come to, and at least one group.
        rng: draws the order.
        key: what a row has in common with those that stay beside it.

    Returns:
        The indices of the rows held out, and of the others, both in the order drawn.
    """
    order, keys = rng.permutation(count), [key(row) for row in range(count)]
    groups: dict[Hashable, list[int]] = {}
    for row in order.tolist():
        groups.setdefault(keys[row], []).append(row)
    if len(groups) == 1:
        return order[:held_out], order[held_out:]
    chosen: list[int] = []
    for group in groups.values():
        if len(chosen) + len(group) <= held_out:
            chosen += group
    chosen = chosen or min(groups.values(), key=len)
    is_held = np.isin(order, chosen)
    return order[is_held], order[~is_held]
