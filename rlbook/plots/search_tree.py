"""A picture of a search tree: how often each action was tried, its mean return, and how the tree
grew, one frame per simulation.

A circle is a state. On the line to it stands the action; the line is as thick as the action was
tried often. In the circle stands how many simulations came through, below it their mean return from
the action on (at the root and after a diamond: from the state on), which is its colour too. A
diamond is an action with more than one outcome: what chance did is the next line.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbook.algorithms.planning.search.mcts import MCTS
from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.errors import RequestError
from rlbook.interaction.action_masks import MaskReader
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.spaces import AdaptedEnv, adapt_to
from rlbook.plots.boards import boards_of
from rlbook.plots.colours import GREY, INK, PALE, PAPER, Colour, readable_ink
from rlbook.plots.figure import FONT, drawing, save_bytes
from rlbook.plots.films.film import thin_stills
from rlbook.plots.films.player_page import player_page
from rlbook.plots.search_layout import (
    RADIUS,
    WIDEST,
    Item,
    Seen,
    fill,
    format_value,
    item_statistics,
    lay_out,
    size_of,
    value_range,
)
from rlbook.runs.run import load

MOST, MOST_IN_GIF = 60, 40  # circles and diamonds, those that were visited most
MOST_PICTURES = 60  # of a GIF, where nobody says how many
STYLE = """.picture g.now circle, .picture g.now polygon { stroke: #cc5c3c; stroke-width: 3; }
  .picture g.now line { stroke: #cc5c3c; }
  .picture rect { fill: var(--paper); }
  .picture text[stroke] { fill: var(--ink); stroke: var(--paper); }
  .picture :is(circle, polygon) { stroke: var(--ink); }
  @media (max-width: 30rem) {
    .picture { overflow-x: auto; }
    .picture svg { max-width: none; width: auto; height: 20rem; }
    .picture::before { content: "← the tree is wider: scroll it →"; display: block; position: sticky; left: 0; text-align: center; }
  }"""


def search_tree_svg(
    search_tree: SearchTree | MCTS,
    path: str | Path,
    *,
    most: int = MOST,
    actions: Sequence[str] | None = None,
) -> Path:
    """Writes the tree of a search.

    Args:
        search_tree: a tree, or an agent, whose last search is drawn.
        path: the file, its name ending in .svg.
        most: how many circles and diamonds at most, those that were visited most.
        actions: names of the A actions; None: their numbers.

    Raises:
        RequestError: an agent that has not searched yet, another ending, or a file that cannot be
            written.
    """
    tree, path = search_tree.tree if isinstance(search_tree, MCTS) else search_tree, Path(path)
    if tree is None:
        raise RequestError("this agent has not searched yet: let it act first")
    if path.suffix.lower() != ".svg":
        raise RequestError(f"the name of a search tree must end in .svg, got {str(path)!r}")
    items = lay_out(tree, most, actions)
    return save_bytes(path, draw_tree(tree, items, value_range(tree, items)).encode())


def search_frames(
    agent: MCTS,
    observation: ArrayLike,
    path: str | Path,
    *,
    most: int = MOST,
    actions: Sequence[str] | None = None,
    seed: int = 0,
    pictures: int | None = None,
    action_mask: NDArray[np.bool_] | None = None,
) -> Path:
    """Searches once, as `agent` would, and records the tree after every simulation. The agent is
    not changed.

    Args:
        agent: whose environment is where the search is to begin.
        observation: what the environment shows there.
        path: a page, its name ending in .html, with buttons to play and step, that needs no server;
            a .gif; or a folder, which gets frame_0001.svg and so on.
        most, actions: as for `search_tree_svg`; every node has its place from the first frame on.
        seed: decides what is tried.
        pictures: of a GIF, how many at most; None is 60.
        action_mask: [A], what the environment allows where the search begins; None: everything, or
            what its method says.

    Raises:
        RequestError: a file that cannot be written.
    """
    path, simulations = Path(path), agent.config.simulations
    kind = path.suffix.lower()
    random = (
        agent.search(observation, np.random.default_rng(seed), action_mask=action_mask).mode
        != "closed"
    )
    rng = np.random.default_rng(seed)
    whole = agent.prepare(rng, random=random)
    agent.grow(whole, observation, simulations, rng)
    items = lay_out(whole, most, actions)
    scale, rng = value_range(whole, items), np.random.default_rng(seed)
    found = agent.prepare(rng, random=random)
    frames: list[list[Seen]] = []
    for number in range(1, simulations + 1):
        agent.grow(found, observation, 1, rng)
        frames.append([item_statistics(found, item) for item in items])
        if kind not in (".html", ".gif"):
            save_bytes(path / f"frame_{number:04}.svg", draw_tree(found, items, scale).encode())
    if kind == ".gif":
        from rlbook.plots.films.search_gif import gif_of_search

        with drawing(str(path)):
            return save_bytes(
                path,
                gif_of_search(
                    items,
                    frames,
                    scale,
                    thin_stills(list(range(simulations)), pictures or MOST_PICTURES),
                ),
            )
    return (
        save_bytes(path, _page(draw_tree(whole, items, scale), items, frames, scale).encode())
        if kind == ".html"
        else path
    )


def draw_search(
    folder: str | Path, path: str | Path, *, seed: int = 0, allow_import: bool = False
) -> Path:
    """Draws the search that the agent of an `mcts` run makes at the start of an episode: a picture
    (.svg), or how its tree grew (.html, .gif).

    Args:
        folder: a run's folder.
        path: where to write it.
        seed: of the reset, and of what is tried.
        allow_import: as for `rlbook.load`.

    Raises:
        RequestError: a run of another algorithm, another ending, or a file that cannot be written.
    """
    run = load(folder, allow_import=allow_import)
    if not isinstance(run.agent, MCTS):
        raise RequestError(
            f"{folder} has no search to draw: it was trained with {run.request.algorithm}, not mcts"
        )
    if Path(path).suffix.lower() not in (".svg", ".html", ".gif"):
        raise RequestError(
            f"a search is written to a file ending in .svg, .html or .gif, got {path}"
        )
    return first_search(run.agent, run.request.recipe, path, seed=seed)


def first_search(
    agent: MCTS, recipe: EnvRecipe, path: str | Path, *, seed: int = 0, pictures: int | None = None
) -> Path:
    """The search at the start of an episode, as `draw_search` draws it."""
    env = recipe.make()
    env = AdaptedEnv(env, adapt_to(MCTS, env, agent.config))
    agent = agent.bind_env(env)
    observation, info = env.reset(seed=seed)
    actions, action_mask = _action_names(recipe), MaskReader(env).read_mask(info, None)
    if Path(path).suffix.lower() == ".svg":
        found = agent.search(observation, np.random.default_rng(seed), action_mask=action_mask)
        return search_tree_svg(found, path, actions=actions)
    most = MOST_IN_GIF if Path(path).suffix.lower() == ".gif" else MOST
    return search_frames(
        agent,
        observation,
        path,
        most=most,
        actions=actions,
        seed=seed,
        pictures=pictures,
        action_mask=action_mask,
    )


def _action_names(recipe: EnvRecipe) -> Sequence[str] | None:
    try:
        return boards_of(recipe)[0].actions or None
    except RequestError:  # the states have no places in a picture
        return getattr(recipe.make().unwrapped, "action_names", None) or None


# ---- drawing


def draw_tree(search_tree: SearchTree, items: list[Item], scale: tuple[float, float]) -> str:
    """The picture as SVG; parts that the tree has not reached yet are hidden, but keep their
    place."""
    width, height = size_of(items)
    total = max(1, search_tree.simulations)
    numbers = {
        id(item): (index, *item_statistics(search_tree, item)) for index, item in enumerate(items)
    }
    lines = [_line(item, numbers[id(item)], total) for item in items if item.parent is not None]
    marks = [_mark(item, numbers[id(item)], scale) for item in items]
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
                f' width="{width:.0f}" height="{height:.0f}" font-family="{FONT}, sans-serif"'
                ' text-anchor="middle">'
            ),
            f'<rect width="100%" height="100%" fill="{_hex(PAPER)}"/>',
            *lines,
            *marks,
            "</svg>",
        ]
    )


def _line(item: Item, numbers: tuple[int, int, float | None], total: int) -> str:
    assert item.parent is not None
    index, visits, _ = numbers
    above, x, y = item.parent, item.x, item.y
    label = ""
    if item.label:
        at, up = above.x + 0.55 * (x - above.x), above.y + 0.55 * (y - above.y)
        label = (
            f'<text x="{at:.1f}" y="{up + 4:.1f}" font-size="11" fill="{_hex(INK)}"'
            f' stroke="{_hex(PAPER)}" stroke-width="3"'
            f' paint-order="stroke">{html.escape(item.label)}</text>'
        )
    return (
        f'<g id="l{index}" opacity="{int(visits > 0)}"><line x1="{above.x:.1f}" y1="{above.y:.1f}"'
        f' x2="{x:.1f}" y2="{y:.1f}" stroke="{_hex(GREY)}" stroke-linecap="round"'
        f' stroke-width="{1 + (WIDEST - 1) * visits / total:.2f}"/>{label}</g>'
    )


def _mark(item: Item, numbers: tuple[int, int, float | None], scale: tuple[float, float]) -> str:
    index, visits, value = numbers
    ground = fill(value, scale)
    x, y, r = item.x, item.y, RADIUS
    points = f"{x:.1f},{y - r:.1f} {x + r:.1f},{y:.1f} {x:.1f},{y + r:.1f} {x - r:.1f},{y:.1f}"
    shape = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}"'
        if item.node >= 0
        else f'<polygon points="{points}"'
    )
    return (
        f'<g id="m{index}" opacity="{int(visits > 0)}">{shape} fill="{_hex(ground)}"'
        f' stroke="{_hex(INK)}"/><text x="{x:.1f}" y="{y + 4:.1f}" font-size="11"'
        f' fill="{_hex(readable_ink(ground))}">{visits}</text><text x="{x:.1f}" y="{y + r + 12:.1f}"'
        f' font-size="10" fill="{_hex(INK)}" stroke="{_hex(PAPER)}" stroke-width="3"'
        f' paint-order="stroke">{format_value(value)}</text></g>'
    )


def _hex(colour: Colour) -> str:
    return "#" + "".join(f"{channel:02x}" for channel in colour)


def _page(svg: str, items: list[Item], frames: list[list[Seen]], scale: tuple[float, float]) -> str:
    """The picture with buttons: the changes between frames are stored as data, and a short script
    applies them."""
    changes, before = [], [(0, None)] * len(items)
    for now in frames:
        changes.append(
            [
                [
                    index,
                    visits,
                    format_value(value),
                    _hex(fill(value, scale)),
                    _hex(readable_ink(fill(value, scale))),
                ]
                for index, (visits, value) in enumerate(now)
                if (visits, value) != before[index]
            ]
        )
        before = now
    data = {"changes": changes, "widest": WIDEST, "items": len(items), "pale": _hex(PALE)}
    return player_page(
        "A tree search, one simulation at a time",
        svg,
        data,
        "pages/search_page.js",
        unit="simulation",
        style=STYLE,
    )
