"""The layout of a search tree's picture: the position of each circle and diamond, and its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeAlias

from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.plots.colours import PALE, Colour, ramp

# pixels: between neighbours, between levels, of a circle, around
ACROSS, DOWN, RADIUS, MARGIN = (
    46,
    84,
    17,
    34,
)
WIDEST = 9.0  # pixels, the line of an action that every simulation took
Seen: TypeAlias = tuple[int, float | None]
"""Visits and value of an item."""


@dataclass
class Item:
    """A circle or a diamond."""

    node: int  # of the tree; -1 for a diamond
    edge: int  # the action that leads here; -1 at the root and after a diamond
    label: str = ""  # on the line from above
    parent: Item | None = None
    children: list[Item] = field(default_factory=list)
    outcomes: tuple[int, ...] = ()  # of a diamond: the nodes that followed
    x: float = 0.0  # pixels
    y: float = 0.0


def lay_out(search_tree: SearchTree, most: int, actions: Sequence[str] | None) -> list[Item]:
    """The layout of the most visited part of a tree; a parent comes before its children."""
    root = Item(0, -1)
    waiting, chosen, pushed = [(-search_tree.simulations, 0, root)], [], 0
    while waiting and len(chosen) < most:
        _, _, item = heappop(waiting)
        chosen.append(item)
        if item.parent is not None:
            item.parent.children.append(item)
        for child in _place_children(search_tree, item, actions):
            pushed += 1
            heappush(waiting, (-item_statistics(search_tree, child)[0], pushed, child))
    for item in chosen:
        item.children.sort(key=lambda child: (child.edge, child.node))
    _lay_out(root)
    left = min(item.x for item in chosen)
    for item in chosen:
        item.x, item.y = item.x - left + MARGIN, item.y + MARGIN
    return chosen


def _place_children(
    search_tree: SearchTree, item: Item, actions: Sequence[str] | None
) -> list[Item]:
    """Places the children: actions after a state, outcomes after a diamond."""
    if item.node < 0:
        return [Item(node, -1, "", item) for node in item.outcomes]
    below = []
    for action, count in enumerate(search_tree.counts(item.node)):
        if count > 0:
            outcomes = tuple(search_tree.children(item.node, action))
            label = str(action) if actions is None else actions[action]
            edge = item.node * search_tree.num_actions + action
            below.append(
                Item(
                    outcomes[0] if len(outcomes) == 1 else -1, edge, label, item, outcomes=outcomes
                )
            )
    return below


def _lay_out(item: Item, depth: int = 0) -> list[tuple[float, float]]:
    """Places a subtree with its leftmost leaf at 0, children side by side as close as they fit,
    parents centred above.

    Returns:
        For each level from `depth` on, the leftmost and the rightmost place. Source: the idea of
        Reingold & Tilford 1981.
    """
    item.x, item.y = 0.0, depth * DOWN
    outline: list[tuple[float, float]] = []
    for child in item.children:
        below = _lay_out(child, depth + 1)
        shift = max(
            (mine[1] + ACROSS - other[0] for mine, other in zip(outline, below, strict=False)),
            default=0.0,
        )
        _move(child, shift)
        moved = [(left + shift, right + shift) for left, right in below]
        deeper = max(outline, moved, key=len)[min(len(outline), len(moved)) :]
        outline = [
            (mine[0], other[1]) for mine, other in zip(outline, moved, strict=False)
        ] + deeper
    if item.children:
        item.x = (item.children[0].x + item.children[-1].x) / 2
    return [(item.x, item.x), *outline]


def _move(item: Item, shift: float) -> None:
    item.x += shift
    for child in item.children:
        _move(child, shift)


def item_statistics(search_tree: SearchTree, item: Item) -> tuple[int, float | None]:
    """Visits and value of an item in a tree that may not have grown that far yet."""
    if item.edge >= 0:
        count = int(search_tree.tree.count[item.edge])
        return count, float(search_tree.tree.mean[item.edge]) if count else None
    counts, values = search_tree.counts(item.node), search_tree.values(item.node)
    value = (
        sum(n * q for n, q in zip(counts, values, strict=True)) / sum(counts)
        if sum(counts)
        else None
    )
    if item.parent is None:
        return sum(counts), value
    if item.node >= search_tree.num_nodes:
        return 0, None
    if _is_terminal(search_tree, item.node):
        return int(search_tree.tree.visits[item.node]), None
    return sum(counts) + 1, value  # one simulation stopped here, when the node was added


def _is_terminal(search_tree: SearchTree, node: int) -> bool:
    return bool(
        search_tree.met[node].ending if search_tree.met else int(search_tree.tree.key[node]) % 2
    )


def value_range(search_tree: SearchTree, items: list[Item]) -> tuple[float, float]:
    """The lowest and the highest value in the picture."""
    values = [
        value for item in items if (value := item_statistics(search_tree, item)[1]) is not None
    ]
    return min(values, default=0.0), max(values, default=0.0)


def fill(value: float | None, scale: tuple[float, float]) -> Colour:
    low, high = scale
    return PALE if value is None else ramp((value - low) / (high - low) if high > low else 0.5)


def format_value(value: float | None) -> str:
    """A number with three digits, with a minus sign as wide as a plus sign."""
    return "" if value is None else f"{value:.3g}".replace("-", "−")


def size_of(items: list[Item]) -> tuple[float, float]:
    """Width and height of a picture, in pixels."""
    return max(item.x for item in items) + MARGIN, max(item.y for item in items) + MARGIN + 14
