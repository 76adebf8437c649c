"""UCB1, the selection rule of Monte Carlo tree search, with returns scaled to [0, 1]."""

from __future__ import annotations

import math

from rlbook.algorithms.planning.search.tree_arrays import Floats, Ints
from rlbook.seeding import UniformSource


def select(
    node: int,
    num_actions: int,
    visits: Ints,
    count: Ints,
    mean: Floats,
    bounds: Floats,
    exploration: float,
    rng: UniformSource,
) -> int:
    """UCB1 with returns scaled to [0, 1]: the edge with the largest (Q - low) / (high - low) + c
    √(ln N(s) / N(s, a)).

    An action that was never tried goes before all others; among several, and among equal scores,
    chance decides. What is compared is the same thing times (high - low), plus low, which saves the
    division and leaves the order as it is.

    Source: Auer et al. 2002, doi:10.1023/A:1013689704352, UCB1; Kocsis & Szepesvári 2006,
    doi:10.1007/11871842_29. The scale is ours.
    """
    edge = node * num_actions
    untried = num_actions - visits[node]
    if untried > 0:
        skipped = int(rng.random() * untried)
        while count[edge] > 0 or skipped > 0:
            if count[edge] == 0:
                skipped -= 1
            edge += 1
        return edge
    span = bounds[1] - bounds[0]
    if span <= 0.0:
        span = 1.0
    bonus = span * exploration * math.sqrt(math.log(visits[node]))
    best, highest, ties = edge, mean[edge] + bonus / math.sqrt(count[edge]), 1
    for other in range(edge + 1, edge + num_actions):
        score = mean[other] + bonus / math.sqrt(count[other])
        if score > highest:
            best, highest, ties = other, score, 1
        elif score == highest:
            ties += 1
            if rng.random() * ties < 1.0:
                best = other
    return best


def select_allowed(
    node: int,
    num_actions: int,
    count: Ints,
    mean: Floats,
    bounds: Floats,
    exploration: float,
    rng: UniformSource,
    allowed: Ints,
    row: int,
) -> int:
    """`select` restricted to the actions that a mask allows; N(s) counts only those.

    Args:
        allowed: 1 for each allowed action, of one state [A] or of all [S·A].
        row: where this state's begin.
    """
    edge, visits, untried = node * num_actions, 0, 0
    for action in range(num_actions):
        if allowed[row + action]:
            visits += count[edge + action]
            untried += 1 if count[edge + action] == 0 else 0
    if untried > 0:
        skipped = int(rng.random() * untried)
        for action in range(num_actions):
            if allowed[row + action] and count[edge + action] == 0:
                if skipped == 0:
                    return edge + action
                skipped -= 1
    span = bounds[1] - bounds[0]
    if span <= 0.0:
        span = 1.0
    bonus = span * exploration * math.sqrt(math.log(visits))
    best, highest, ties = edge, -math.inf, 0
    for action in range(num_actions):
        if allowed[row + action]:
            score = mean[edge + action] + bonus / math.sqrt(count[edge + action])
            if score > highest:
                best, highest, ties = edge + action, score, 1
            elif score == highest:
                ties += 1
                if rng.random() * ties < 1.0:
                    best = edge + action
    return best


def draw_allowed(allowed: Ints, row: int, num_actions: int, rng: UniformSource) -> int:
    """A uniformly random allowed action. Arguments as in `select_allowed`."""
    choices = 0
    for action in range(num_actions):
        if allowed[row + action]:
            choices += 1
    skipped = int(rng.random() * choices)
    for action in range(num_actions):
        if allowed[row + action]:
            if skipped == 0:
                return action
            skipped -= 1
    return 0
