"""Evaluates a policy by in-place sweeps in the order in which information propagates; for planning
without numba.

On a large map a synchronous sweep carries a reward one step further. A sweep in place carries it
across the whole map, if each state comes after those that it leads to. So the states are put in the
order of their distance from where values are known already:

    d(s)  ← steps from s to a known state, at least                          breadth first, backwards
    π(s)  ← argmin_a E[ d(s') | s, a ]                                       a first policy: towards what is known
    in the order of d, again and again:
        V(s) ← [ r(s, π(s)) + γ Σ_{s' ≠ s} P(s'|s, π(s)) V(s') ] / [ 1 - γ P(s|s, π(s)) ]

The last line is one call for all states: a product of a sparse matrix with the old values and the
new ones, one after the other, which writes each new value before the next row is read. Row i takes
the new values of the states before i and the old ones of the rest.

The order decides only how soon the values are found; that they are right is proved by the sweep
over all actions that follows.

Source: Gauss-Seidel evaluation of a policy: Puterman 1994, section 6.3.3. The order and the first
policy are ours.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order

from rlbook.algorithms.planning.bounds import largest_absolute
from rlbook.fast.tabular.sparse_product import add_product

Floats = NDArray[np.float64]
Ints = NDArray[np.integer]

PERIOD = 4
"""The number of sweeps between two checks of the change."""


def distances(
    rows: sparse.csr_array, num_actions: int, origin: NDArray[np.bool_]
) -> tuple[Ints, Floats]:
    """The states in the order of their distance from the known ones, and the distance of each.

    Args:
        rows: [S·A, S] CSR, row `s * A + a`: P(s'|s, a) without what ends the episode.
        origin: [S] bool, the states of distance 1; those that never lead there come last.

    Returns:
        [S] int, each state once, and [S] float64, in steps.
    """
    num_states, sources = len(origin), np.flatnonzero(origin)
    # probabilities do not matter, and take memory
    links = np.ones(len(rows.indices), dtype=np.int8)
    forwards = sparse.csr_array(
        (links, rows.indices, rows.indptr[::num_actions]), shape=(num_states, num_states)
    )
    back = sparse.csc_array(forwards)  # from a state to those that lead to it
    starts = np.append(back.indptr, back.indptr[-1:] + back.indptr.dtype.type(len(sources)))
    leads = np.concatenate([back.indices, sources.astype(back.indices.dtype)])
    del links, forwards, back
    graph = sparse.csr_array(
        (np.ones(len(leads)), leads, starts), shape=(num_states + 1, num_states + 1)
    )
    # from one more state, which leads to the known ones
    order, via = breadth_first_order(graph, num_states)
    place = np.empty(num_states + 1, dtype=np.int64)
    place[order] = np.arange(len(order))
    # where each begins that is one step further away
    from_place, first = (
        place[via[order[1:]]].tolist(),
        [0, 1],
    )
    while first[-1] < len(order):
        first.append(1 + bisect_left(from_place, first[-1]))
    distance = np.full(num_states + 1, float(len(first)))
    distance[order] = np.repeat(np.arange(len(first) - 1.0), np.diff(first))
    lost = np.ones(num_states, dtype=bool)
    lost[order[1:]] = False
    return np.concatenate([order[1:], np.flatnonzero(lost)]), distance[:-1]


def evaluate_in_order(
    rows: sparse.csr_array,
    rewards: Floats,
    gamma: float,
    order: Ints,
    policy: Ints,
    values: Floats,
    times: int,
    enough: float,
) -> None:
    """Up to `times` sweeps over a policy in place, until one changes no value by more than
    `enough`.

    Args:
        rows: as for `distances`.
        rewards: [S, A], in reward units.
        gamma: γ, below 1.
        order: [S] int, each state once.
        policy: [S] int, the action in each state.
        values: V [S], changed in place.
        enough: in reward units.
    """
    num_states = len(order)
    place = np.empty(num_states, dtype=rows.indices.dtype)
    place[order] = np.arange(num_states, dtype=place.dtype)
    chosen = order * rewards.shape[1] + policy[order]
    chain, paid = rows[chosen], rewards.ravel()[chosen]
    columns, numbers = place[chain.indices], gamma * chain.data
    state = np.repeat(np.arange(num_states, dtype=columns.dtype), np.diff(chain.indptr))
    stays = np.flatnonzero(columns == state)
    if len(stays):
        scale = 1.0 / (1.0 - np.bincount(state[stays], numbers[stays], minlength=num_states))
        numbers[stays] = 0.0
        numbers *= scale[state]
        paid *= scale
    columns += np.multiply(columns < state, num_states, dtype=columns.dtype)
    both = np.concatenate([values[order], paid])
    old, new = both[:num_states], both[num_states:]
    for sweep in range(1, times + 1):
        add_product(chain.indptr, columns, numbers, both, new)
        if sweep % PERIOD == 0 and largest_absolute(np.subtract(new, old, out=old)) <= enough:
            break
        old[:] = new
        new[:] = paid
    else:
        new = old
    values[order] = new
