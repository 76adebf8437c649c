"""The tree of a Monte Carlo tree search, as flat lists, and the arithmetic on it.

A node is a state (closed loop) or a sequence of actions (open loop); its A edges are the actions.
Edge `node * A + action` leads to the children that followed this action, one for each outcome met,
as a linked list. Node 0 is the root. In plain Python the fields are lists, compiled they are
arrays; both grow the same tree from the same random numbers.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import State
from rlbook.seeding import Uniform

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
    rewards: Floats  # [C]; scratch: what they paid


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
    """For compiled code."""
    floats = (False, False, False, False, False, True, False, True, False, True)
    fields: list[Any] = [
        np.array(field, dtype=np.float64 if real else np.int64)
        for field, real in zip(tree, floats, strict=True)
    ]
    return Tree(*fields)


def as_lists(tree: Tree) -> Tree:
    """For plain Python."""
    return Tree(*(np.asarray(field).tolist() for field in tree))


# ---- the arithmetic; compiled too


def select(
    node: int,
    num_actions: int,
    visits: Ints,
    count: Ints,
    mean: Floats,
    bounds: Floats,
    exploration: float,
    rng: Uniform,
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
    rng: Uniform,
    allowed: Ints,
    row: int,
) -> int:
    """`select` among the actions that a mask allows; N(s) counts those alone.

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


def draw_allowed(allowed: Ints, row: int, num_actions: int, rng: Uniform) -> int:
    """One of the allowed actions, all equally likely. Arguments as in `select_allowed`."""
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


def visit_policy(counts: ArrayLike, temperature: float = 1.0) -> NDArray[np.float64]:
    """What a search recommends: π(a) = N(a)^(1/τ) / Σ_b N(b)^(1/τ), [A].

    Args:
        counts: [A], how often each action was chosen at the root; at least one was.
        temperature: τ, at least 0; 0 is the limit, all actions of the largest count alike.

    Source: Silver et al. 2017, doi:10.1038/nature24270, "Play".
    """
    share = np.asarray(counts, dtype=np.float64)
    share = share / share.max()
    share = (share == 1.0).astype(np.float64) if temperature == 0.0 else share ** (1 / temperature)
    return share / share.sum()


def with_noise(prior: list[float], noise: NDArray[np.float64], fraction: float) -> list[float]:
    """(1 - ε) P + ε η over the actions of prior above 0: [A].

    What is left of a Dirichlet variable η on some of its components, made to add up to 1, is
    Dirichlet there too.
    """
    share = np.asarray(prior)
    noise = noise * (share > 0.0)
    return ((1.0 - fraction) * share + fraction * noise / noise.sum()).tolist()


def find_child(edge: int, key: int, child: Ints, sibling: Ints, keys: Ints) -> int:
    """The node that this outcome of an edge leads to, or -1."""
    node = child[edge]
    while node >= 0 and keys[node] != key:
        node = sibling[node]
    return node


def add_child(edge: int, key: int, child: Ints, sibling: Ints, keys: Ints, used: Ints) -> int:
    """A new node for an outcome of an edge."""
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


# ---- reading a tree


class Met(NamedTuple):
    """What a search in a simulated environment remembers of a node."""

    reward: float  # paid on the way in, in reward units
    ending: int  # whether the episode went on there; see `table_model`
    state: Any  # where the simulator can go on from; of a node that was cut off, what it shows
    mask: Ints | None = None  # 1 for each action allowed there; None: all are


class SearchTree:
    """A tree, and how to read it. Nodes are numbered from the root, 0, in the order in which they
    were met.

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
        self, tree: Tree, num_actions: int, mode: str, met: list[Met] | None = None
    ) -> None:
        self.tree, self.num_actions, self.mode = tree, num_actions, mode
        self.met = [] if met is None else met
        self.prior: list[float] = []
        self.estimate: list[float] = []

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return int(self.tree.used[0])

    @property
    def depth(self) -> int:
        """Actions from the root to the deepest node."""
        return int(self.tree.used[1])

    @property
    def simulations(self) -> int:
        """How many simulations went through the root: Σ_a N(root, a)."""
        return int(self.tree.visits[0])

    def counts(self, node: int = 0) -> list[int]:
        """N(s, a): [A], how many simulations chose each action here."""
        first = node * self.num_actions
        return [int(n) for n in self.tree.count[first : first + self.num_actions]]

    def values(self, node: int = 0) -> list[float]:
        """Q(s, a): [A], mean discounted return of those simulations from here on, in reward units;
        0 where there was none.
        """
        first = node * self.num_actions
        return [float(q) for q in self.tree.mean[first : first + self.num_actions]]

    def children(self, node: int, action: int) -> list[int]:
        """The nodes that followed an action, the first one met first."""
        found, child = [], self.tree.child[node * self.num_actions + action]
        while child >= 0:
            found.append(int(child))
            child = self.tree.sibling[child]
        return found[::-1]

    def best_actions(self) -> list[int]:
        """The actions that were chosen most often at the root; among those, the ones of the highest
        value.
        """
        counts, values = self.counts(), self.values()
        most = max(counts)
        highest = max(q for n, q in zip(counts, values, strict=True) if n == most)
        return [
            action
            for action in range(self.num_actions)
            if counts[action] == most and values[action] == highest
        ]

    def below(self, node: int, spare: int) -> SearchTree:
        """The part of the tree under a node, which becomes the root, with room for `spare` more
        nodes.
        """
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
            Met(*item)
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
    """A snapshot as a checkpoint takes it: some of gymnasium's hold tuples of numbers."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return np.array(value) if isinstance(value, tuple) else value
