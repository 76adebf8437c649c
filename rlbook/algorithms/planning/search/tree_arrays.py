"""The tree of a Monte Carlo tree search as flat arrays, and the arithmetic on it.

A node is a state (closed loop) or a sequence of actions (open loop); its A edges are the actions.
Edge `node * A + action` leads to the children that followed this action, one for each outcome met,
as a linked list. Node 0 is the root. In plain Python the fields are lists, compiled they are
arrays; both grow the same tree from the same random numbers.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = list[int] | NDArray[np.int64]
Floats = list[float] | NDArray[np.float64]


class Tree(NamedTuple):
    """Room for C nodes of A actions. Lists, or numpy arrays of int64 and float64."""

    key: Ints  # [C]; what tells an outcome of an edge from its others
    sibling: Ints  # [C]; the next outcome of the same edge, or -1
    visits: Ints  # [C]; simulations that chose an action here, Σ_a count; or that ended here
    child: Ints  # [C·A]; the outcome met last, or -1
    count: Ints  # [C·A]; simulations through this edge
    mean: Floats  # [C·A]; their mean return from here on, in reward units
    used: Ints  # [2]; how many nodes there are, and the length of the longest simulation in
    # the tree
    bounds: Floats  # [2]; the smallest and the largest return so far of any edge, in reward
    # units
    path: Ints  # [C]; scratch: the edges of the simulation under way
    rewards: Floats  # [C]; scratch: their rewards


def empty_tree(capacity: int, num_actions: int) -> Tree:
    """A root, and room for `capacity` nodes in all."""
    edges = capacity * num_actions
    return Tree(
        [0] * capacity,
        [-1] * capacity,
        [0] * capacity,
        [-1] * edges,
        [0] * edges,
        [0.0] * edges,
        [1, 0],
        [math.inf, -math.inf],
        [0] * capacity,
        [0.0] * capacity,
    )


def as_arrays(tree: Tree) -> Tree:
    """The tree as arrays, for compiled code."""
    floats = (False, False, False, False, False, True, False, True, False, True)
    fields: list[Any] = [
        np.array(field, dtype=np.float64 if real else np.int64)
        for field, real in zip(tree, floats, strict=True)
    ]
    return Tree(*fields)


def as_lists(tree: Tree) -> Tree:
    """The tree as lists, for plain Python."""
    return Tree(*(np.asarray(field).tolist() for field in tree))


def find_child(edge: int, key: int, child: Ints, sibling: Ints, keys: Ints) -> int:
    """The child for this outcome of an edge, or -1."""
    node = child[edge]
    while node >= 0 and keys[node] != key:
        node = sibling[node]
    return node


def add_child(edge: int, key: int, child: Ints, sibling: Ints, keys: Ints, used: Ints) -> int:
    """Adds a node for an outcome of an edge."""
    node = used[0]
    used[0] = node + 1
    keys[node] = key
    sibling[node] = child[edge]
    child[edge] = node
    return node


def back_up(
    value: float,
    length: int,
    path: Ints,
    rewards: Floats,
    num_actions: int,
    visits: Ints,
    count: Ints,
    mean: Floats,
    used: Ints,
    bounds: Floats,
    gamma: float,
) -> None:
    """From the leaf to the root: G ← r + γ G, and Q(s, a) ← Q(s, a) + (G - Q(s, a)) / N(s, a) at
    each of the `length` edges of the path.

    Args:
        value: G at the leaf, in reward units.
    """
    if length > used[1]:
        used[1] = length
    low, high = bounds[0], bounds[1]
    for i in range(length - 1, -1, -1):
        edge = path[i]
        value = rewards[i] + gamma * value
        visits[edge // num_actions] += 1
        count[edge] += 1
        mean[edge] += (value - mean[edge]) / count[edge]
        if value < low:
            low = value
        if value > high:
            high = value
    bounds[0], bounds[1] = low, high
