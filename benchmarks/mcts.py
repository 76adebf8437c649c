"""Tree search: simulations per second beside a search that deep-copies its environment, and beside
the package `mcts` from PyPI.

All play from the start of the 5 × 5 maze, or of CartPole, with rollouts of 10 random moves. The
copying search is the one in every tutorial: it copies the environment for every action that it
expands and for every rollout, and is written out below. The environment is the same on both sides.
How much of the ratio is the price of copying a gymnasium environment, the note says: a bare class
with a map and a position is copied some twenty times faster.
"""

from __future__ import annotations

import copy
import random
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

import rlbook
from benchmarks.timing import Comparison, run_in_turn, seconds
from rlbook.algorithms.planning.search.mcts import MCTS, MCTSConfig
from rlbook.algorithms.planning.search.tree_arrays import empty_tree
from rlbook.algorithms.planning.table_model import TableModel
from rlbook.envs import Maze
from rlbook.fast.tabular import table_search

DEPTH, GAMMA, ROUNDS = 10, 0.99, 9
CHANCE = random.Random(0)
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


class BareMaze:
    """The 5 × 5 maze and nothing else: no spaces, no generator."""

    num_actions = 4

    def __init__(self) -> None:
        self.map = ["S..#G", ".#.#.", ".#...", "...#.", ".#..."]
        self.position = (0, 0)

    def step(self, action: int) -> tuple[float, bool]:
        row, column = self.position[0] + MOVES[action][0], self.position[1] + MOVES[action][1]
        if not (0 <= row < 5 and 0 <= column < 5) or self.map[row][column] == "#":
            return -5.0, False
        self.position = (row, column)
        return (10.0, True) if self.map[row][column] == "G" else (-1.0, False)


class Unwrapped:
    """A gymnasium environment without wrappers, at the beginning of an episode."""

    def __init__(self, env_id: str) -> None:
        self.env: Any = rlbook.make(env_id).unwrapped
        self.env.reset(seed=0)
        self.num_actions = int(self.env.action_space.n)

    def step(self, action: int) -> tuple[float, bool]:
        _, reward, terminated, _, _ = self.env.step(action)
        return float(reward), terminated


class Node:
    """A node of the copying search."""

    def __init__(self, env: Any, parent: Node | None, reward: float, over: bool) -> None:
        self.env, self.parent, self.reward, self.over = env, parent, reward, over
        self.children: list[Node] = []
        self.visits, self.total = 0, 0.0

    def score(self, c: float) -> float:
        if self.visits == 0 or self.parent is None:
            return float("inf")
        return self.total / self.visits + c * np.sqrt(np.log(self.parent.visits) / self.visits)


def copying_search(env: Any, simulations: int, c: float = 1.0) -> int:
    """The action whose child is visited most."""
    root = Node(copy.deepcopy(env), None, 0.0, False)
    for _ in range(simulations):
        node = root
        while node.children:
            node = max(node.children, key=lambda child: child.score(c))
        if not node.over:
            for action in range(env.num_actions):
                successor = copy.deepcopy(node.env)
                node.children.append(Node(successor, node, *successor.step(action)))
            node = CHANCE.choice(node.children)
        value, here = 0.0 if node.over else _rollout(copy.deepcopy(node.env)), node
        while here is not None:
            value = here.reward + GAMMA * value
            here.visits, here.total = here.visits + 1, here.total + value
            here = here.parent
    return int(np.argmax([child.visits for child in root.children]))


def _rollout(env: Any) -> float:
    total, discount = 0.0, 1.0
    for _ in range(DEPTH):
        reward, over = env.step(CHANCE.randrange(env.num_actions))
        total, discount = total + discount * reward, discount * GAMMA
        if over:
            break
    return total


class TableState:
    """The maze as the package `mcts` wants it: a state number, the moves made, and the return so
    far."""

    tables = Maze().tables
    next_state, reward, terminal = (
        tables.next_state.tolist(),
        tables.reward.tolist(),
        tables.terminal.tolist(),
    )

    def __init__(self, state: int, total: float, left: int) -> None:
        self.state, self.total, self.left = state, total, left

    def getPossibleActions(self) -> tuple[int, ...]:
        return (0, 1, 2, 3)

    def takeAction(self, action: int) -> TableState:
        total = self.total + self.reward[self.state][action]
        return TableState(self.next_state[self.state][action], total, self.left - 1)

    def isTerminal(self) -> bool:
        return self.left == 0 or self.terminal[self.state]

    def getReward(self) -> float:
        return self.total


def table_search_once(simulations: int, *, compiled: bool) -> Callable[[], object]:
    """One of our searches in the maze's table."""
    model, rng = TableModel(Maze().model()), np.random.default_rng(0)
    run, table = (table_search.grow_plain, model.table)
    if compiled:
        run, table = table_search.grow_compiled, table_search.arrays_of(model)
    return lambda: run(
        empty_tree(simulations + 1, 4), table, 0, 4, simulations, GAMMA, 1.0, DEPTH, False, rng
    )


def snapshot_search_once(env_id: str, simulations: int) -> Callable[[], object]:
    """One of our searches through snapshots, as an agent makes it."""
    env = rlbook.make(env_id)
    agent, (observation, _) = (
        MCTS(env, MCTSConfig(simulations=simulations, gamma=GAMMA, c=1.0)),
        env.reset(seed=0),
    )
    return lambda: agent.act(observation)


def copying_search_once(env: Any, simulations: int) -> Callable[[], object]:
    """One search of the peer."""
    return lambda: copying_search(env, simulations)


def rate(search: Callable[[], object], simulations: int, searches: int) -> float:
    """Simulations per second."""
    return searches * simulations / seconds(lambda: [search() for _ in range(searches)])


def against_copies(simulations: int, searches: int, goal: float) -> list[Comparison]:
    """The maze."""
    plain, compiled = (
        table_search_once(simulations, compiled=False),
        table_search_once(simulations, compiled=True),
    )
    copies, bare = (
        copying_search_once(Unwrapped("Maze-v0"), simulations),
        copying_search_once(BareMaze(), simulations),
    )
    rates = run_in_turn(
        {
            "plain": lambda: rate(plain, simulations, 40 * searches),
            "compiled": lambda: rate(compiled, simulations, 400 * searches),
            "copies": lambda: rate(copies, simulations, searches),
            "bare": lambda: rate(bare, simulations, 4 * searches),
        },
        ROUNDS,
    )
    name, note = (
        f"mcts, maze, {simulations} simulations",
        f"copying a bare class instead: {statistics.median(rates['bare']):,.0f} sims/s",
    )
    return [
        Comparison(f"{name}, plain Python", "sims/s", rates["plain"], rates["copies"], goal, note),
        Comparison(f"{name}, compiled", "sims/s", rates["compiled"], rates["copies"], goal),
    ]


def against_package(simulations: int = 500) -> Comparison:
    """Both search 10 moves ahead on a table; the package knows no discount."""
    from mcts import mcts

    ours = table_search_once(simulations, compiled=False)
    rates = run_in_turn(
        {
            "ours": lambda: rate(ours, simulations, 20),
            "peer": lambda: rate(
                lambda: mcts(iterationLimit=simulations).search(TableState(0, 0.0, DEPTH)),
                simulations,
                10,
            ),
        },
        ROUNDS,
    )
    return Comparison(
        "mcts, maze, against the package mcts, plain", "sims/s", rates["ours"], rates["peer"], 1.2
    )


def against_copies_of(env_id: str, simulations: int) -> Comparison:
    """A gymnasium environment without a table."""
    ours, copies = (
        snapshot_search_once(env_id, simulations),
        copying_search_once(Unwrapped(env_id), simulations),
    )
    rates = run_in_turn(
        {
            "ours": lambda: rate(ours, simulations, max(1, 1_000 // simulations)),
            "copies": lambda: rate(copies, simulations, max(1, 200 // simulations)),
        },
        ROUNDS,
    )
    return Comparison(
        f"mcts, {env_id}, {simulations} simulations", "sims/s", rates["ours"], rates["copies"], 4
    )


def compare() -> list[Comparison]:
    copies = [*against_copies(50, 10, 60), *against_copies(500, 1, 30)]
    return [
        *copies,
        against_package(),
        *(against_copies_of("CartPole-v1", simulations) for simulations in (50, 500)),
    ]
