"""Growing a search tree in a model that is a table: the loop of `mcts.py` without a call per step, and compiled where that pays.

Both forms draw from the same stream and grow the same tree, to the last bit.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from rlbook.algorithms.planning.search_tree import SearchTree, Tree, add_child, as_arrays, as_lists, back_up, find_child, select
from rlbook.envs.mdp import TabularMDP
from rlbook.fast.compiled import available, linked

WORTH_COMPILING = 200_000
"""Simulations after which a search goes on in compiled code: about a second of plain ones, which is what loading numba takes."""
BLOCK = 512


class Table(NamedTuple):
    """`rlbook.envs.outcomes.Outcomes` as this loop reads it: lists or arrays. Noise on a reward is left out: its mean is 0."""

    first: Any                               # [S·A + 1] int; row s * A + a owns the outcomes first[row] : first[row + 1]
    cumulative: Any                          # [K] float; their probabilities, added up
    successor: Any                           # [K] int
    reward: Any                              # [K] float, in reward units
    ends: Any                                # [K] int; 1 where the episode ends
    value: Any                               # [S] float; what a state counts where a simulation stops, in reward units


def grow(
    tree: Any, table: Any, root: int, num_actions: int, simulations: int, gamma: float, exploration: float, depth: int,
    open_loop: bool, rng: Any,
) -> None:  # fmt: skip
    """Adds `simulations` simulations from state `root`; see `rlbook.algorithms.planning.mcts`. Draws from `rng.random()` alone."""
    keys, sibling, visits, child, count, mean, used, bounds, path, rewards = tree
    first, cumulative, successor, reward, ends, _ = table
    for _ in range(simulations):
        node, state, length, over, new = 0, root, 0, 0, False
        while not new and over == 0:
            edge = select(node, num_actions, visits, count, mean, bounds, exploration, rng)
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


def rollout(table: Any, state: int, num_actions: int, depth: int, gamma: float, rng: Any) -> float:
    """The discounted return of `depth` uniformly random actions, and what the state counts in which they end."""
    first, cumulative, successor, reward, ends, value = table
    total, discount = 0.0, 1.0
    for _ in range(depth):
        k = first[state * num_actions + int(rng.random() * num_actions)]
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


class Uniforms:
    """`rng.random()`, drawn in blocks, since a call for each number takes ten times as long. `close` gives back what was not used."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._block: Iterator[float] = iter(())
        self.random = chain.from_iterable(self._blocks()).__next__

    def _blocks(self) -> Iterator[Iterator[float]]:
        while True:
            self._block = iter(self._rng.random(BLOCK).tolist())
            yield self._block

    def close(self) -> None:
        """Puts the generator where it would be had each number been drawn alone."""
        bits: Any = self._rng.bit_generator
        bits.advance(-operator.length_hint(self._block))


class TableModel:
    """Searches in a `TabularMDP` of S states, which are its observations. The environment is never touched."""

    saves = True                             # what is met in it can be kept in a checkpoint

    def __init__(self, model: TabularMDP, start: int = 0) -> None:
        outcomes = model.outcomes
        self.num_actions, self._start, self._searched = model.num_actions, start, 0
        self._arrays = Table(
            outcomes.first, outcomes.cumulative, outcomes.successor, outcomes.reward, outcomes.ends.astype(np.int64),
            np.zeros(model.num_states),
        )  # fmt: skip
        self._lists = Table(*(field.tolist() for field in self._arrays))

    def __deepcopy__(self, memo: Any) -> TableModel:
        return self

    @property
    def observations(self) -> range:
        """One for each of the S states."""
        return range(self._start, self._start + len(self._lists.value))

    def set_value(self, value: Any) -> None:
        """What states count where a simulation stops: a function of the observation, asked once for each state."""
        values = [0.0 if value is None else float(value(observation)) for observation in self.observations]
        self._arrays, self._lists = self._arrays._replace(value=np.array(values)), self._lists._replace(value=values)

    def key(self, observation: Any, mode: str, ending: int) -> int:
        """What tells the outcome of an action that leads to this observation from its others; `ending` is 1 where it ends the episode."""
        return 0 if mode == "open-loop" else 2 * (int(observation) - self._start) + ending

    def prepare(self, found: SearchTree, rng: np.random.Generator) -> None:
        """Nothing: the observation is the state."""

    def drew(self) -> bool:
        """Whether a deterministic search met with chance: there is none in a table."""
        return False

    def grow(self, found: SearchTree, observation: Any, simulations: int, config: Any, rng: np.random.Generator) -> None:
        """Adds simulations from the state that this observation is, to the tree in `found`."""
        self._searched += simulations
        plain = self._searched <= WORTH_COMPILING or not available()
        run, table = (grow_plain, self._lists) if plain else (grow_compiled, self._arrays)
        found.tree = run(
            found.tree, table, int(observation) - self._start, self.num_actions, simulations, config.gamma, config.c, config.depth,
            found.mode == "open-loop", rng,
        )  # fmt: skip


def grow_plain(tree: Tree, table: Table, *arguments: Any) -> Tree:
    """`grow` on lists; the last argument is a `np.random.Generator`. Returns the tree, as lists."""
    *settings, rng = arguments
    uniforms, tree = Uniforms(rng), tree if isinstance(tree.key, list) else as_lists(tree)
    grow(tree, table, *settings, uniforms)  # type: ignore[call-arg]
    uniforms.close()
    return tree


def grow_compiled(tree: Tree, table: Table, *arguments: Any) -> Tree:
    """The same, compiled. Returns the tree, as arrays."""
    tree = tree if isinstance(tree.key, np.ndarray) else as_arrays(tree)
    linked(grow, "compiled")(tree, table, *arguments)
    return tree
