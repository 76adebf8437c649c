"""The result of a search: its tree and the data of each node; how to read and save it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlbook.agent import State
from rlbook.algorithms.planning.search.tree_arrays import (
    Ints,
    Tree,
    as_arrays,
    as_lists,
    back_up,
    empty_tree,
)


class NodeRecord(NamedTuple):
    """What a search in a simulated environment stores for each node."""

    reward: float  # reward of the step that led here, in reward units
    ending: int  # whether the episode went on there; see `table_model`
    state: Any  # where the simulator can go on from; of a node that was cut off, what it shows
    mask: Ints | None = None  # 1 for each action allowed there; None: all are


class SearchTree:
    """A tree, and methods to read it. Nodes are numbered from the root, 0, in the order of their
    creation.

    Attributes:
        tree: the lists.
        num_actions: A.
        mode: "closed" (a child an action), "chance" (a child an outcome) or "open-loop" (a child an
            action, whatever the outcome).
        met: one for each node where the search is in a simulated environment, otherwise empty.
        prior: [C·A], P(s, a), where a network says which actions are likely good; otherwise empty.
        estimate: [C], what the network says each node is worth, in reward units; otherwise empty.
    """

    def __init__(
        self, tree: Tree, num_actions: int, mode: str, records: list[NodeRecord] | None = None
    ) -> None:
        self.tree, self.num_actions, self.mode = tree, num_actions, mode
        self.met = [] if records is None else records
        self.prior: list[float] = []
        self.estimate: list[float] = []

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return int(self.tree.used[0])

    @property
    def depth(self) -> int:
        """Actions from the root to the deepest node."""
        return int(self.tree.used[1])

    @property
    def simulations(self) -> int:
        """The number of simulations through the root: Σ_a N(root, a)."""
        return int(self.tree.visits[0])

    def counts(self, node: int = 0) -> list[int]:
        """N(s, a): [A], the number of simulations that chose each action."""
        first = node * self.num_actions
        return [int(n) for n in self.tree.count[first : first + self.num_actions]]

    def values(self, node: int = 0) -> list[float]:
        """Q(s, a): [A], mean discounted return of those simulations from here on, in reward units;
        0 if there were none.
        """
        first = node * self.num_actions
        return [float(q) for q in self.tree.mean[first : first + self.num_actions]]

    def children(self, node: int, action: int) -> list[int]:
        """The nodes that followed an action, in the order of their creation."""
        found, child = [], self.tree.child[node * self.num_actions + action]
        while child >= 0:
            found.append(int(child))
            child = self.tree.sibling[child]
        return found[::-1]

    def best_actions(self) -> list[int]:
        """The most visited actions at the root; among those, the ones with the highest value."""
        counts, values = self.counts(), self.values()
        most = max(counts)
        highest = max(q for n, q in zip(counts, values, strict=True) if n == most)
        return [
            action
            for action in range(self.num_actions)
            if counts[action] == most and values[action] == highest
        ]

    def back_up(self, value: float, length: int, discount: float) -> None:
        """Backs up the value of a leaf, `length` edges below the root: `value`, in reward units.
        See `tree_arrays.back_up`.
        """
        _, _, visits, _, count, mean, used, bounds, path, rewards = self.tree
        size = self.num_actions
        back_up(value, length, path, rewards, size, visits, count, mean, used, bounds, discount)

    def subtree(self, node: int, spare: int) -> SearchTree:
        """The subtree below a node, which becomes the root, with room for `spare` more nodes."""
        order, depths, new = [node], [0], {node: 0}
        for old, depth in zip(order, depths, strict=False):  # both grow while they are read
            for action in range(self.num_actions):
                for child in self.children(old, action):
                    new[child] = len(order)
                    order.append(child)
                    depths.append(depth + 1)
        part, size = empty_tree(len(order) + spare, self.num_actions), self.num_actions
        for number, old in enumerate(order):
            part.key[number], part.visits[number] = (
                int(self.tree.key[old]),
                int(self.tree.visits[old]),
            )
            part.sibling[number] = new.get(int(self.tree.sibling[old]), -1) if number else -1
            for action in range(size):
                edge = old * size + action
                part.child[number * size + action] = new.get(int(self.tree.child[edge]), -1)
                part.count[number * size + action] = int(self.tree.count[edge])
                part.mean[number * size + action] = float(self.tree.mean[edge])
        part.used[:] = [len(order), max(depths)]
        part.bounds[:] = [float(bound) for bound in self.tree.bounds]
        rest = SearchTree(
            part, size, self.mode, [self.met[old] for old in order] if self.met else []
        )
        if self.estimate:
            rest.estimate = [self.estimate[old] for old in order] + [0.0] * spare
            edges = [old * size + action for old in order for action in range(size)]
            rest.prior = [self.prior[edge] for edge in edges] + [0.0] * (spare * size)
        return rest

    def state_dict(self) -> State:
        """Everything that `from_state` needs."""
        rewards, endings = (
            np.array([met.reward for met in self.met]),
            np.array([met.ending for met in self.met], dtype=np.int64),
        )
        states = [None if met.state is None else _plain(met.state) for met in self.met]
        fields = as_arrays(self.tree)._asdict()
        masks = [met.mask for met in self.met]
        return {
            **fields,
            **({} if all(mask is None for mask in masks) else {"masks": masks}),
            "num_actions": self.num_actions,
            "mode": self.mode,
            "paid": rewards,
            "endings": endings,
            "states": states,
        }

    @classmethod
    def from_state(cls, state: State) -> SearchTree:
        """The inverse of `state_dict`."""
        tree = as_lists(Tree(*(state[name] for name in Tree._fields)))
        met = [
            NodeRecord(*item)
            for item in zip(
                state["paid"].tolist(),
                state["endings"].tolist(),
                state["states"],
                state.get("masks", [None] * len(state["states"])),
                strict=True,
            )
        ]
        return cls(tree, int(state["num_actions"]), state["mode"], met)


def _plain(value: object) -> object:
    """A snapshot in a form that a checkpoint can store: some of gymnasium's contain tuples of
    numbers."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return np.array(value) if isinstance(value, tuple) else value
