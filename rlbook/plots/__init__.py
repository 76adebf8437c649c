"""Plots: learning curves, value maps with policy arrows, GIFs, and watching in the terminal.

    plot_curves(folders, "curves.png")       several seeds become a mean with a 95 % band
    plot_value_map(run, out="map.png")       what an agent thinks of a maze
    search_tree_svg(agent, "tree.svg")       the tree of an MCTS agent's last search
    animate_planning("value_iteration", "Maze-v0", out="sweeps.html")     a planner's sweeps; animate_learning: a table filling
    inspect(folder)                          a page with every number of each token or step, through training
    play("grid", "play.html")                a page to draw worlds on, and to see them solved step by step
    watch(run)                               the agent plays in the terminal; watch(run, gif="film.gif") writes a GIF

Nothing here needs a window, and matplotlib is loaded when the first figure is made.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlbook.plots.curves import plot_curves as plot_curves
    from rlbook.plots.curves import save_curve as save_curve
    from rlbook.plots.films.animation import save_gif as save_gif
    from rlbook.plots.films.value_films import animate as animate
    from rlbook.plots.films.value_films import animate_learning as animate_learning
    from rlbook.plots.films.value_films import animate_planning as animate_planning
    from rlbook.plots.films.watch import film_in_cell as film_in_cell
    from rlbook.plots.films.watch import watch as watch
    from rlbook.plots.map_drawing import plot_value_map as plot_value_map
    from rlbook.plots.pages.inspector import inspect as inspect
    from rlbook.plots.pages.play_pages import play as play
    from rlbook.plots.search_tree import draw_search as draw_search
    from rlbook.plots.search_tree import search_frames as search_frames
    from rlbook.plots.search_tree import search_tree_svg as search_tree_svg
    from rlbook.plots.value_map import ValueMap as ValueMap

_HOME = {
    "ValueMap": "value_map",
    "animate": "films.value_films",
    "animate_learning": "films.value_films",
    "animate_planning": "films.value_films",
    "plot_curves": "curves",
    "plot_value_map": "map_drawing",
    "save_curve": "curves",
    "save_gif": "films.animation",
    "film_in_cell": "films.watch",
    "inspect": "pages.inspector",
    "play": "pages.play_pages",
    "draw_search": "search_tree",
    "search_frames": "search_tree",
    "search_tree_svg": "search_tree",
    "watch": "films.watch",
}

__all__ = [
    "ValueMap",
    "animate",
    "animate_learning",
    "animate_planning",
    "draw_search",
    "film_in_cell",
    "inspect",
    "play",
    "plot_curves",
    "plot_value_map",
    "save_curve",
    "save_gif",
    "search_frames",
    "search_tree_svg",
    "watch",
]


def __getattr__(name: str) -> Any:
    """Loads on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'rlbook.plots' has no attribute {name!r}")
    return getattr(import_module(f"rlbook.plots.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
