"""A run of the page `rlbook play grid`, reproduced by this package's own planners and agents.

    read ← what `rlbookPlay.read()` returned on the page, as JSON
    replay(read).Q                                     the same table

The page draws all its random numbers from one generator, mulberry32; `PageRandom` draws the same
ones, and decides here what the agent tries, where it slips, and what a search simulates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete

from rlbook.agent import Step
from rlbook.algorithms.planning.search.mcts import MCTS, MCTSConfig
from rlbook.envs.gridworlds.layouts import MOVES, Layout
from rlbook.envs.gridworlds.maze_model import maze_model
from rlbook.envs.gridworlds.maze_tables import NUM_ACTIONS, MazeTables, apply_slip
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.fast_forms import use_plain_forms
from rlbook.functional.bandits import softmax
from rlbook.functional.policy_gradients import score_function_gradient
from rlbook.functional.returns import discounted_returns
from rlbook.functional.schedules import Constant, Linear
from rlbook.registry import agent_class

PRICES = {"step": -1.0, "bump": -5.0, "goal": 10.0, "pit": -10.0, "cliff": -100.0}
"""The default rewards of a cell, where the page's world states none."""
PLANNERS = ("value_iteration", "policy_iteration")


class PageRandom:
    """The page's random numbers. Source: Tommy Ettinger's mulberry32."""

    def __init__(self, seed: int) -> None:
        self.state = seed % 2**32

    def random(self) -> float:
        """The next number, in [0, 1)."""
        self.state = (self.state + 0x6D2B79F5) % 2**32
        mixed = (self.state ^ self.state >> 15) * (self.state | 1) % 2**32
        mixed ^= (mixed + (mixed ^ mixed >> 7) * (mixed | 61)) % 2**32
        return (mixed ^ mixed >> 14) / 2**32


@dataclass
class ReplayResult:
    """The result of a run, with S states and A actions.

    Attributes:
        Q: [S, A], in reward units; of a search only the present state's row is filled, of
            `reinforce` it is H, the preferences.
        V: [S], in reward units; of a search 0.
        returns: what each finished episode paid.
        state: where the agent stands.
        visits: [S, A]: how often each action was taken; of a search, how often it was tried in the
            present state.
    """

    Q: np.ndarray
    V: np.ndarray
    state: int
    returns: list[float] = field(default_factory=list)
    visits: np.ndarray = field(default_factory=lambda: np.zeros(0))


def page_tables(world: Mapping[str, Any]) -> MazeTables:
    """A world of the page in the format of the book's maze: the successors and rewards of moves,
    before slips.

    `TabularEnv(maze_model(page_tables(world)))` is an environment of it, without the limit on
    steps.
    """
    lines = world["map"].strip("\n").replace(" ", ".").split("\n")
    rows, columns, cells = len(lines), len(lines[0]), "".join(lines)
    pays, rewards = {**PRICES, **world}, world.get("rewards", {})
    next_state, reward = (
        np.zeros((rows * columns, NUM_ACTIONS), dtype=np.int64),
        np.zeros((rows * columns, NUM_ACTIONS)),
    )
    terminal = np.array([cell in "#GP" for cell in cells])
    for state, action in np.ndindex(*next_state.shape):
        row, column = np.array(divmod(state, columns)) + MOVES[action]
        inside = 0 <= row < rows and 0 <= column < columns and cells[row * columns + column] != "#"
        if terminal[state] or not inside:
            next_state[state, action], reward[state, action] = (
                state,
                0.0 if terminal[state] else pays["bump"],
            )
            continue
        cell = cells[row * columns + column]
        next_state[state, action] = cells.index("S") if cell == "C" else row * columns + column
        reward[state, action] = rewards.get(
            f"{row},{column}", pays[{"G": "goal", "P": "pit", "C": "cliff"}.get(cell, "step")]
        )
    layout = Layout(
        np.array([cell == "#" for cell in cells]).reshape(rows, columns),
        start=cells.index("S"),
        goal=cells.find("G"),
    )
    return MazeTables(
        layout,
        float(world.get("slip", 0.0)),
        next_state,
        reward,
        terminal,
        Discrete(rows * columns),
        None,
    )


def keep_reachable(tables: MazeTables) -> MazeTables:
    """The same without unreachable states, whose values are infinite with γ = 1 if no episode ends
    there."""
    known, open_states = np.zeros(len(tables.terminal), dtype=bool), [int(tables.layout.start)]
    while open_states:
        state = open_states.pop()
        open_states += [] if known[state] else tables.next_state[state].tolist()
        known[state] = True
    away = ~known | tables.terminal
    next_state = np.where(away[:, None], np.arange(len(away))[:, None], tables.next_state)
    return replace(
        tables,
        next_state=next_state,
        reward=np.where(away[:, None], 0.0, tables.reward),
        terminal=away,
    )


def replay(read: Mapping[str, Any]) -> ReplayResult:
    """Runs the same world, method, settings, seed and number of steps with this package.

    Args:
        read: what `rlbookPlay.read()` returned; its `world`, `method`, `settings`, `seed` and
            `steps` are read. A run whose world or settings were changed on the way cannot be made
            again.

    Raises:
        ValueError, TrainingError: a planner with γ = 1 in a world without finite values.
    """
    tables = page_tables(read["world"])
    with use_plain_forms():
        if read["method"] in PLANNERS:
            return _replay_planner(read, tables)
        walk = _Walk(tables, int(read["world"].get("limit", 100)), PageRandom(read["seed"]))
        if read["method"] == "mcts":
            return _replay_search(read, walk)
        return (
            _replay_reinforce(read, walk)
            if read["method"] == "reinforce"
            else _replay_learner(read, walk)
        )


class _Walk:
    """Takes steps in a world of the page."""

    def __init__(self, tables: MazeTables, limit: int, rng: PageRandom) -> None:
        self.tables, self.limit, self.rng = tables, limit, rng
        self.start = self.state = int(tables.layout.start)
        self.time, self.total, self.returns = 0, 0.0, list[float]()
        self.visits = np.zeros(tables.reward.shape, dtype=np.int64)

    def step(self, action: int) -> Step:
        """One step; after the end of an episode the agent is at the start again."""
        tables, state = self.tables, self.state
        taken = int(apply_slip(action, self.rng.random(), tables.slip)) if tables.slip else action
        reward, following = float(tables.reward[state, taken]), int(tables.next_state[state, taken])
        terminated = bool(tables.terminal[following])
        self.visits[state, action] += 1
        self.time, self.total, self.state = self.time + 1, self.total + reward, following
        truncated = not terminated and self.time >= self.limit
        if terminated or truncated:
            self.returns.append(self.total)
            self.time, self.total, self.state = 0, 0.0, self.start
        return Step(state, action, reward, following, terminated, truncated)

    def to_replayed(
        self, Q: np.ndarray, V: np.ndarray, visits: np.ndarray | None = None
    ) -> ReplayResult:
        return ReplayResult(
            Q, V, self.state, self.returns, self.visits if visits is None else visits
        )


def _spaces(tables: MazeTables) -> SimpleNamespace:
    return SimpleNamespace(
        observation_space=tables.observation_space, action_space=Discrete(NUM_ACTIONS)
    )


def _replay_planner(read: Mapping[str, Any], tables: MazeTables) -> ReplayResult:
    gamma = read["settings"]["gamma"]
    model = maze_model(keep_reachable(tables) if gamma == 1 else tables)
    kind: Any = agent_class(read["method"])
    only = {"sweep": "synchronous", "tolerance": 0.0} if read["method"] == "value_iteration" else {}
    agent = kind(_spaces(tables), kind.Config(gamma=gamma, **only))
    for _ in zip(range(read["steps"]), agent.plan(model), strict=False):
        pass
    V = agent.values()
    return ReplayResult(model.backup(V, gamma), V, int(tables.layout.start))


def _replay_learner(read: Mapping[str, Any], walk: _Walk) -> ReplayResult:
    settings, name = read["settings"], read["method"]
    epsilon = (
        Linear(settings["epsilon"], 0.0) if settings.get("decay") else Constant(settings["epsilon"])
    )
    more = {
        "sarsa_lambda": {"trace_decay": settings["lambda"], "traces": "replacing"},
        "dyna_q": {"planning_steps": settings["planning"]},
    }
    kind: Any = agent_class(name)
    config = kind.Config(
        gamma=settings["gamma"],
        alpha=Constant(settings["alpha"]),
        epsilon=epsilon,
        **more.get(name, {}),
    )
    agent = kind(_spaces(walk.tables), config)
    agent.rng = walk.rng
    for done in range(read["steps"]):
        agent.progress = min(done / settings["decay"], 1.0) if settings.get("decay") else 0.0
        agent.learn(walk.step(agent.act(walk.state)))
    return walk.to_replayed(agent.q, agent.q.max(axis=1))


def _replay_search(read: Mapping[str, Any], walk: _Walk) -> ReplayResult:
    settings, rng, shape = read["settings"], walk.rng, walk.tables.reward.shape
    given = {name: settings[name] for name in ("gamma", "simulations", "c")}
    config = MCTSConfig(
        **given, rollout_depth=settings["rollout"], reuse_tree=bool(settings["reuse"])
    )
    agent: Any = MCTS(TabularEnv(maze_model(walk.tables)), config)
    agent.rng = rng
    moves, rest = divmod(read["steps"], config.simulations + 1)
    for _ in range(moves):
        step = walk.step(agent.act(walk.state))
        agent.learn(step)
        if step.terminated or step.truncated:
            agent.begin()
    found = agent.prepare(rng, agent._kept, room=rest)
    agent.grow(found, walk.state, rest, rng)
    Q, tried = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    Q[walk.state], tried[walk.state] = found.values(), found.counts()
    return walk.to_replayed(Q, np.zeros(len(Q)), tried)


def _replay_reinforce(read: Mapping[str, Any], walk: _Walk) -> ReplayResult:
    """REINFORCE with tables of preferences and a baseline, from this package's formulas."""
    settings, H = read["settings"], np.zeros(walk.tables.reward.shape)
    v, episode = np.zeros(len(H)), list[Step]()
    for _ in range(read["steps"]):
        left, shares, action = walk.rng.random(), softmax(H[walk.state]), 0
        while action < NUM_ACTIONS - 1 and (left := left - shares[action]) >= 0:
            action += 1
        episode.append(walk.step(action))
        if episode[-1].terminated or episode[-1].truncated:
            H, v = _gradient_step(H, v, episode, settings)
            episode = []
    return walk.to_replayed(H, v)


def _gradient_step(
    H: np.ndarray, v: np.ndarray, episode: list[Step], settings: Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """H and v after one episode."""
    gamma = settings["gamma"]
    state, action, following = (
        np.array([getattr(step, name) for step in episode])
        for name in ("obs", "action", "next_obs")
    )
    reward = torch.tensor([step.reward for step in episode], dtype=torch.float64)
    terminated, truncated = (
        torch.tensor([getattr(step, name) for step in episode])
        for name in ("terminated", "truncated")
    )
    G = discounted_returns(
        reward, terminated, truncated, gamma, next_value=torch.tensor(v[following])
    ).numpy()
    weight = np.asarray(gamma ** np.arange(len(G)) * (G - v[state]), dtype=np.float64)
    gradient = score_function_gradient(
        softmax(H), state[:, None], action[:, None], weight[:, None]
    )[0]
    v = v.copy()
    for visited, value in zip(state, G, strict=True):
        v[visited] += settings["beta"] * (value - v[visited])
    return H + settings["alpha"] * gradient, v
