"""PUCT, the selection rule of AlphaZero's search, and the policy that the search recommends."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.algorithms.planning.search.tree_arrays import Floats, Ints
from rlbook.algorithms.planning.search.world import World
from rlbook.algorithms.planning.table_model import TableModel


def select_puct(
    node: int,
    num_actions: int,
    count: Ints,
    mean: Floats,
    prior: Floats,
    bounds: Floats,
    exploration: float,
    allowed: Ints | None = None,
) -> int:
    """PUCT: the edge with the largest (Q - low) / (high - low) + c P(s, a) √N(s) / (1 + N(s, a)).

    N(s) = 1 + Σ_a N(s, a): the simulation that added the node counts, so that the first choice
    follows the prior. An action that was never tried counts as much as the mean of those that were.
    One whose prior is 0 is never chosen; among equal scores the lowest number is. As in `select`,
    what is compared is the same thing times (high - low), plus low.

    Args:
        prior: [C·A], P(s, a): probabilities.
        allowed: [A], 1 for each allowed action, where P does not say so: a node of an open-loop
            search stands for several states. None: all are.

    Source: Silver et al. 2018, doi:10.1126/science.aar6404, "Search"; the scale: Schrittwieser et
    al. 2020, doi:10.1038/s41586-020-03051-4, eq. 5. What untried actions count is ours.
    """
    first = node * num_actions
    visits, total = 0, 0.0
    for edge in range(first, first + num_actions):
        visits += count[edge]
        total += count[edge] * mean[edge]
    untried = total / visits if visits > 0 else 0.0
    span = bounds[1] - bounds[0]
    if span <= 0.0:
        span = 1.0
    bonus = span * exploration * math.sqrt(1.0 + visits)
    best, highest = first, -math.inf
    for edge in range(first, first + num_actions):
        if prior[edge] > 0.0 and (allowed is None or allowed[edge - first]):
            tries = count[edge]
            score = (mean[edge] if tries > 0 else untried) + bonus * prior[edge] / (1 + tries)
            if score > highest:
                best, highest = edge, score
    return best


def puct_choice(search_tree: SearchTree, world: World, c: float) -> Callable[[int], int]:
    """How a search goes down a tree by PUCT: from a node to one of its edges; see `descend`.

    Args:
        search_tree: the tree, with the prior of its nodes; both may grow while it is used.
        world: where steps are taken.
        c: weight of the prior against returns scaled to [0, 1].
    """
    num_actions, prior = search_tree.num_actions, search_tree.prior
    varies = masks_vary(search_tree, world)
    count, mean, bounds = search_tree.tree.count, search_tree.tree.mean, search_tree.tree.bounds

    def choose(node: int) -> int:
        allowed = world.allowed if varies else None
        return select_puct(node, num_actions, count, mean, prior, bounds, c, allowed)

    return choose


def masks_vary(search_tree: SearchTree, world: World) -> bool:
    """Whether a node may stand for states with different masks, so that the mask is checked when an
    action is chosen; otherwise forbidden actions have prior 0.
    """
    return search_tree.mode != "closed" and not isinstance(world, TableModel)


def visit_policy(counts: ArrayLike, temperature: float = 1.0) -> NDArray[np.float64]:
    """The policy that a search recommends: π(a) = N(a)^(1/τ) / Σ_b N(b)^(1/τ), [A].

    Args:
        counts: [A], how often each action was chosen at the root; at least one was.
        temperature: τ, at least 0; 0 is the limit, all actions of the largest count alike.

    Source: Silver et al. 2017, doi:10.1038/nature24270, "Play".
    """
    share = np.asarray(counts, dtype=np.float64)
    share = share / share.max()
    share = (share == 1.0).astype(np.float64) if temperature == 0.0 else share ** (1 / temperature)
    return share / share.sum()


def mix_noise(prior: list[float], noise: NDArray[np.float64], fraction: float) -> list[float]:
    """(1 - ε) P + ε η over the actions with a positive prior: [A].

    What is left of a Dirichlet variable η on some of its components, made to add up to 1, is
    Dirichlet there too.
    """
    share = np.asarray(prior)
    noise = noise * (share > 0.0)
    return ((1.0 - fraction) * share + fraction * noise / noise.sum()).tolist()
