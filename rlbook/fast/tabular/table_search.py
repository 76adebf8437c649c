"""Grows a search tree in a tabular model: the loop of `mcts.py` without a call per step, and
compiled where that pays.

All forms draw the same random numbers and grow the same tree, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlbook.algorithms.planning.search import mcts
from rlbook.algorithms.planning.search.mcts import MCTSConfig, World
from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.algorithms.planning.search.tree_arrays import (
    Tree,
    add_child,
    as_arrays,
    as_lists,
    back_up,
    find_child,
)
from rlbook.algorithms.planning.search.ucb_selection import draw_allowed, select, select_allowed
from rlbook.algorithms.planning.table_model import OutcomeTable, TableModel
from rlbook.fast.compiled import available, link_globals
from rlbook.fast.tabular.simulation import BufferedUniforms, UniformDraws

WORTH_COMPILING = 200_000
"""The number of simulations after which a search continues in compiled code: about a second of
plain ones, which is the time to load numba."""


def grow(
    tree: Tree,
    table: OutcomeTable,
    root: int,
    num_actions: int,
    simulations: int,
    gamma: float,
    exploration: float,
    depth: int,
    open_loop: bool,
    rng: UniformDraws,
) -> None:
    """Adds `simulations` simulations from state `root`; see `rlbook.algorithms.planning.search.mcts`.
    Draws from `rng.random()` alone."""
    keys, sibling, visits, child, count, mean, used, bounds, path, rewards = tree
    first, cumulative, successor, reward, ends, _, allowed = table
    for _ in range(simulations):
        node, state, length, over, new = 0, root, 0, 0, False
        while not new and over == 0:
            if len(allowed) == 0:
                edge = select(node, num_actions, visits, count, mean, bounds, exploration, rng)
            else:
                edge = select_allowed(
                    node,
                    num_actions,
                    count,
                    mean,
                    bounds,
                    exploration,
                    rng,
                    allowed,
                    state * num_actions,
                )
            k = first[(state - node) * num_actions + edge]
            if cumulative[k] < 1.0:
                uniform = rng.random()
                while cumulative[k] <= uniform:
                    k += 1
            state, over = successor[k], ends[k]
            path[length], rewards[length] = edge, reward[k]
            length += 1
            key = 0 if open_loop else 2 * state + over
            node = find_child(edge, key, child, sibling, keys)
            if node < 0:
                node, new = add_child(edge, key, child, sibling, keys, used), True
        if over == 1 and not open_loop:
            visits[node] += 1
        value = 0.0 if over == 1 else rollout(table, state, num_actions, depth, gamma, rng)
        back_up(value, length, path, rewards, num_actions, visits, count, mean, used, bounds, gamma)


def rollout(
    table: OutcomeTable, state: int, num_actions: int, depth: int, gamma: float, rng: UniformDraws
) -> float:
    """The discounted return of `depth` random actions, all allowed ones equally likely, plus the
    value of the final state."""
    first, cumulative, successor, reward, ends, value, allowed = table
    total, discount = 0.0, 1.0
    for _ in range(depth):
        row = state * num_actions
        k = first[
            row
            + (
                int(rng.random() * num_actions)
                if len(allowed) == 0
                else draw_allowed(allowed, row, num_actions, rng)
            )
        ]
        if cumulative[k] < 1.0:
            uniform = rng.random()
            while cumulative[k] <= uniform:
                k += 1
        total += discount * reward[k]
        if ends[k] == 1:
            return total
        state = successor[k]
        discount *= gamma
    return total + discount * value[state]


def grow_tree(
    search_tree: SearchTree,
    world: World,
    observation: int,
    simulations: int,
    config: MCTSConfig,
    rng: np.random.Generator,
) -> None:
    """See `rlbook.algorithms.planning.search.mcts.grow`. Outside tables, only the random numbers
    are faster."""
    if type(world) is not TableModel:
        uniforms: Any = BufferedUniforms(rng)
        mcts.grow.plain(search_tree, world, observation, simulations, config, uniforms)  # type: ignore[attr-defined]
        uniforms.put_back()
        return
    world.searched += simulations
    plain = world.searched <= WORTH_COMPILING or not available()
    run, table = (grow_plain, world.table) if plain else (grow_compiled, arrays_of(world))
    search_tree.tree = run(
        search_tree.tree,
        table,
        int(observation) - world.start,
        world.num_actions,
        simulations,
        config.gamma,
        config.c,
        config.depth,
        search_tree.mode == "open-loop",
        rng,
    )


def arrays_of(world: TableModel) -> OutcomeTable:
    """The table as arrays, made once."""
    made: tuple[OutcomeTable, OutcomeTable] | None = vars(world).get("_arrays")
    if made is None or made[0] is not world.table:
        kinds = (np.int64, np.float64, np.int64, np.float64, np.int64, np.float64, np.int64)
        columns: list[Any] = [
            np.array(field, dtype=kind) for field, kind in zip(world.table, kinds, strict=True)
        ]
        made = world.table, OutcomeTable(*columns)
        world._arrays = made  # type: ignore[attr-defined]
    return made[1]


def grow_plain(
    tree: Tree,
    table: OutcomeTable,
    root: int,
    num_actions: int,
    simulations: int,
    gamma: float,
    exploration: float,
    depth: int,
    open_loop: bool,
    rng: np.random.Generator,
) -> Tree:
    """`grow` on lists. Returns the tree as lists."""
    uniforms, tree = BufferedUniforms(rng), tree if isinstance(tree.key, list) else as_lists(tree)
    grow(
        tree, table, root, num_actions, simulations, gamma, exploration, depth, open_loop, uniforms
    )
    uniforms.put_back()
    return tree


def grow_compiled(
    tree: Tree,
    table: OutcomeTable,
    root: int,
    num_actions: int,
    simulations: int,
    gamma: float,
    exploration: float,
    depth: int,
    open_loop: bool,
    rng: np.random.Generator,
) -> Tree:
    """`grow`, compiled. Returns the tree as arrays."""
    tree = tree if isinstance(tree.key, np.ndarray) else as_arrays(tree)
    link_globals(grow, "compiled")(
        tree, table, root, num_actions, simulations, gamma, exploration, depth, open_loop, rng
    )
    return tree
