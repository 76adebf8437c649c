"""The tree of a search as a picture: how often each action was tried, what it returned, and how the tree grew, one frame a simulation.

A circle is a state. On the line to it stands the action; the line is as thick as the action was tried often. In the circle stands how many
simulations came through, below it their mean return from the action on (at the root and after a diamond: from the state on), which is its
colour too. A diamond is an action with more than one outcome: what chance did is the next line.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from rlbook.algorithms.planning.mcts import MCTS
from rlbook.algorithms.planning.search_tree import SearchTree
from rlbook.errors import RequestError
from rlbook.interaction.environments import Recipe
from rlbook.interaction.spaces import AdaptedEnv, adapt_to
from rlbook.plots.colours import GREY, INK, PALE, PAPER, Colour, ramp, readable_on
from rlbook.plots.figure import FONT, save_bytes
from rlbook.plots.player import player_page
from rlbook.runs.run import load

ACROSS, DOWN, RADIUS, MARGIN = 46, 84, 17, 34      # pixels: between neighbours, between levels, of a circle, around
WIDEST = 9.0                                       # pixels, the line of an action that every simulation took
STYLE = """.picture g.now circle, .picture g.now polygon { stroke: #cc5c3c; stroke-width: 3; }
  .picture g.now line { stroke: #cc5c3c; }
  .picture rect { fill: var(--paper); }
  .picture text[stroke] { fill: var(--ink); stroke: var(--paper); }
  .picture :is(circle, polygon) { stroke: var(--ink); }
  @media (max-width: 30rem) { .picture { overflow-x: auto; } .picture svg { max-width: none; width: auto; height: 20rem; } }"""


@dataclass
class Item:
    """A circle or a diamond."""

    node: int                                # of the tree; -1 for a diamond
    edge: int                                # the action that leads here; -1 at the root and after a diamond
    label: str = ""                          # on the line from above
    parent: Item | None = None
    children: list[Item] = field(default_factory=list)
    outcomes: tuple[int, ...] = ()           # of a diamond: the nodes that followed
    x: float = 0.0                           # pixels
    y: float = 0.0


def search_tree_svg(
    found: SearchTree | MCTS, path: str | Path, *, most: int = 60, actions: Sequence[str] | None = None,
) -> Path:  # fmt: skip
    """Writes the tree of a search.

    Args:
        found: a tree, or an agent, whose last search is drawn.
        path: the file, its name ending in .svg.
        most: how many circles and diamonds at most, those that were visited most.
        actions: names of the A actions; None: their numbers.

    Raises:
        RequestError: an agent that has not searched yet, another ending, or a file that cannot be written.
    """
    tree, path = found.tree if isinstance(found, MCTS) else found, Path(path)
    if tree is None:
        raise RequestError("this agent has not searched yet: let it act first")
    if path.suffix.lower() != ".svg":
        raise RequestError(f"the name of a search tree must end in .svg, got {str(path)!r}")
    items = _chosen(tree, most, actions)
    return save_bytes(path, drawn(tree, items, _scale(tree, items)).encode())


def search_frames(
    agent: MCTS, observation: ArrayLike, path: str | Path, *, most: int = 60, actions: Sequence[str] | None = None, seed: int = 0,
) -> Path:  # fmt: skip
    """Searches once, as `agent` would, and writes the tree after every simulation. Nothing in the agent changes.

    Args:
        agent: whose environment is where the search is to begin.
        observation: what the environment shows there.
        path: a page, its name ending in .html, with buttons to play and step, that needs no server; or a folder, which gets frame_0001.svg
            and so on.
        most, actions: as for `search_tree_svg`; every node has its place from the first frame on.
        seed: decides what is tried.

    Raises:
        RequestError: a file that cannot be written.
    """
    path, simulations = Path(path), agent.config.simulations
    whole = agent.search(observation, np.random.default_rng(seed))
    items = _chosen(whole, most, actions)
    scale, rng = _scale(whole, items), np.random.default_rng(seed)
    found = agent.prepare(rng, random=whole.mode != "closed")
    frames: list[list[tuple[int, float | None]]] = []
    for number in range(1, simulations + 1):
        agent.grow(found, observation, 1, rng)
        frames.append([_numbers(found, item) for item in items])
        if path.suffix.lower() != ".html":
            save_bytes(path / f"frame_{number:04}.svg", drawn(found, items, scale).encode())
    return save_bytes(path, _page(drawn(whole, items, scale), items, frames, scale).encode()) if path.suffix.lower() == ".html" else path


def draw_search(folder: str | Path, path: str | Path, *, seed: int = 0) -> Path:
    """The search that the agent of an `mcts` run makes at the start of an episode: a picture (.svg), or a page that plays it (.html).

    Args:
        folder: a run's folder.
        path: where to write it.
        seed: of the reset, and of what is tried.

    Raises:
        RequestError: a run of another algorithm, another ending, or a file that cannot be written.
    """
    run = load(folder)
    if not isinstance(run.agent, MCTS):
        raise RequestError(f"{folder} has no search to draw: it was trained with {run.request.algorithm}, not mcts")
    if Path(path).suffix.lower() not in (".svg", ".html"):
        raise RequestError(f"a search is written to a file ending in .svg or .html, got {path}")
    return first_search(run.agent, run.request.recipe, path, seed=seed)


def first_search(agent: MCTS, recipe: Recipe, path: str | Path, *, seed: int = 0) -> Path:
    """The search at the start of an episode, as `draw_search` draws it."""
    env = recipe.make()
    env = AdaptedEnv(env, adapt_to(MCTS, env, agent.config))
    agent = agent.bind_env(env)
    observation, _ = env.reset(seed=seed)
    actions = getattr(env.unwrapped, "action_names", None) or None
    if Path(path).suffix.lower() == ".html":
        return search_frames(agent, observation, path, actions=actions, seed=seed)
    return search_tree_svg(agent.search(observation, np.random.default_rng(seed)), path, actions=actions)


# ---- what is drawn, and where

def _chosen(found: SearchTree, most: int, actions: Sequence[str] | None) -> list[Item]:
    """The most visited part of a tree, laid out; a parent comes before its children."""
    root = Item(0, -1)
    waiting, chosen, pushed = [(-found.simulations, 0, root)], [], 0
    while waiting and len(chosen) < most:
        _, _, item = heappop(waiting)
        chosen.append(item)
        if item.parent is not None:
            item.parent.children.append(item)
        for child in _below(found, item, actions):
            pushed += 1
            heappush(waiting, (-_numbers(found, child)[0], pushed, child))
    for item in chosen:
        item.children.sort(key=lambda child: (child.edge, child.node))
    _lay_out(root)
    left = min(item.x for item in chosen)
    for item in chosen:
        item.x, item.y = item.x - left + MARGIN, item.y + MARGIN
    return chosen


def _below(found: SearchTree, item: Item, actions: Sequence[str] | None) -> list[Item]:
    """What follows: actions after a state, outcomes after a diamond."""
    if item.node < 0:
        return [Item(node, -1, "", item) for node in item.outcomes]
    below = []
    for action, count in enumerate(found.counts(item.node)):
        if count > 0:
            outcomes = tuple(found.children(item.node, action))
            label = str(action) if actions is None else actions[action]
            edge = item.node * found.num_actions + action
            below.append(Item(outcomes[0] if len(outcomes) == 1 else -1, edge, label, item, outcomes=outcomes))
    return below


def _lay_out(item: Item, depth: int = 0) -> list[tuple[float, float]]:
    """Places a subtree with its leftmost leaf at 0, children side by side as close as they fit, parents in the middle above.

    Returns:
        For each level from `depth` on, the leftmost and the rightmost place. Source: the idea of Reingold & Tilford 1981.
    """
    item.x, item.y = 0.0, depth * DOWN
    outline: list[tuple[float, float]] = []
    for child in item.children:
        below = _lay_out(child, depth + 1)
        shift = max((mine[1] + ACROSS - other[0] for mine, other in zip(outline, below, strict=False)), default=0.0)
        _move(child, shift)
        moved = [(left + shift, right + shift) for left, right in below]
        deeper = max(outline, moved, key=len)[min(len(outline), len(moved)) :]
        outline = [(mine[0], other[1]) for mine, other in zip(outline, moved, strict=False)] + deeper
    if item.children:
        item.x = (item.children[0].x + item.children[-1].x) / 2
    return [(item.x, item.x), *outline]


def _move(item: Item, shift: float) -> None:
    item.x += shift
    for child in item.children:
        _move(child, shift)


def _numbers(found: SearchTree, item: Item) -> tuple[int, float | None]:
    """Visits and value of an item in a tree that may not have grown so far yet."""
    if item.edge >= 0:
        count = int(found.tree.count[item.edge])
        return count, float(found.tree.mean[item.edge]) if count else None
    counts, values = found.counts(item.node), found.values(item.node)
    value = sum(n * q for n, q in zip(counts, values, strict=True)) / sum(counts) if sum(counts) else None
    if item.parent is None:
        return sum(counts), value
    if item.node >= found.num_nodes:
        return 0, None
    if _ended(found, item.node):
        return int(found.tree.visits[item.node]), None
    return sum(counts) + 1, value                            # one simulation stopped here, when the node was added


def _ended(found: SearchTree, node: int) -> bool:
    return bool(found.met[node].ending if found.met else int(found.tree.key[node]) % 2)


def _scale(found: SearchTree, items: list[Item]) -> tuple[float, float]:
    """The lowest and the highest value in the picture."""
    values = [value for item in items if (value := _numbers(found, item)[1]) is not None]
    return min(values, default=0.0), max(values, default=0.0)


# ---- drawing

def drawn(found: SearchTree, items: list[Item], scale: tuple[float, float]) -> str:
    """The picture as SVG; what the tree has not reached yet is left out of sight, in its place."""
    width, height = max(item.x for item in items) + MARGIN, max(item.y for item in items) + MARGIN + 14
    total = max(1, found.simulations)
    numbers = {id(item): (index, *_numbers(found, item)) for index, item in enumerate(items)}
    lines = [_line(item, numbers[id(item)], total) for item in items if item.parent is not None]
    marks = [_mark(item, numbers[id(item)], scale) for item in items]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="{FONT}, sans-serif" text-anchor="middle">',
        f'<rect width="100%" height="100%" fill="{_hex(PAPER)}"/>', *lines, *marks, "</svg>",
    ])  # fmt: skip


def _line(item: Item, numbers: tuple[int, int, float | None], total: int) -> str:
    assert item.parent is not None
    index, visits, _ = numbers
    above, x, y = item.parent, item.x, item.y
    label = ""
    if item.label:
        at, up = above.x + 0.55 * (x - above.x), above.y + 0.55 * (y - above.y)
        label = (
            f'<text x="{at:.1f}" y="{up + 4:.1f}" font-size="11" fill="{_hex(INK)}" stroke="{_hex(PAPER)}" stroke-width="3" '
            f'paint-order="stroke">{html.escape(item.label)}</text>'
        )
    return (
        f'<g id="l{index}" opacity="{int(visits > 0)}"><line x1="{above.x:.1f}" y1="{above.y:.1f}" x2="{x:.1f}" y2="{y:.1f}" '
        f'stroke="{_hex(GREY)}" stroke-linecap="round" stroke-width="{1 + (WIDEST - 1) * visits / total:.2f}"/>{label}</g>'
    )


def _mark(item: Item, numbers: tuple[int, int, float | None], scale: tuple[float, float]) -> str:
    index, visits, value = numbers
    fill = _fill(value, scale)
    x, y, r = item.x, item.y, RADIUS
    points = f"{x:.1f},{y - r:.1f} {x + r:.1f},{y:.1f} {x:.1f},{y + r:.1f} {x - r:.1f},{y:.1f}"
    shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}"' if item.node >= 0 else f'<polygon points="{points}"'
    return (
        f'<g id="m{index}" opacity="{int(visits > 0)}">{shape} fill="{_hex(fill)}" stroke="{_hex(INK)}"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}" font-size="11" fill="{_hex(readable_on(fill))}">{visits}</text>'
        f'<text x="{x:.1f}" y="{y + r + 12:.1f}" font-size="10" fill="{_hex(INK)}" stroke="{_hex(PAPER)}" stroke-width="3" '
        f'paint-order="stroke">{_written(value)}</text></g>'
    )


def _fill(value: float | None, scale: tuple[float, float]) -> Colour:
    low, high = scale
    return PALE if value is None else ramp((value - low) / (high - low) if high > low else 0.5)


def _written(value: float | None) -> str:
    """Three digits, with a minus sign that is as wide as a plus."""
    return "" if value is None else f"{value:.3g}".replace("-", "−")


def _hex(colour: Colour) -> str:
    return "#" + "".join(f"{channel:02x}" for channel in colour)


def _page(svg: str, items: list[Item], frames: list[list[tuple[int, float | None]]], scale: tuple[float, float]) -> str:
    """The picture with buttons: what changes from frame to frame is kept as data, and a few lines of script put it into the picture."""
    changes, before = [], [(0, None)] * len(items)
    for now in frames:
        changes.append([
            [index, visits, _written(value), _hex(_fill(value, scale)), _hex(readable_on(_fill(value, scale)))]
            for index, (visits, value) in enumerate(now) if (visits, value) != before[index]
        ])  # fmt: skip
        before = now
    data = {"changes": changes, "widest": WIDEST, "items": len(items), "pale": _hex(PALE)}
    return player_page("A tree search, one simulation at a time", svg, data, "search_page.js", unit="simulation", style=STYLE)
