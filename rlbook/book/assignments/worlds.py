"""The hidden environments: known ones with renumbered actions, and two whose values are known by
hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from rlbook.envs.catch import Catch, catch_frames
from rlbook.envs.gridworlds.maze import Maze
from rlbook.envs.tabular.mdp import TabularMDP


def tables_of(model: TabularMDP, order: np.ndarray, limit: int) -> dict[str, Any]:
    """A deterministic model as the tables of `probes.TableWorld`.

    Args:
        model: S states, A actions.
        order: [A], the model's action for each action of the world.
        limit: the time limit, in steps.
    """
    states, actions = model.num_states, model.num_actions
    following = model.transitions.toarray().reshape(states, actions, states).argmax(axis=2)
    initial = model.initial / model.initial.sum()
    return {
        "next_state": following[:, order].tolist(),
        "reward": np.maximum(model.rewards, -1e9)[:, order].tolist(),
        "terminated": (model.ends > 0)[:, order].tolist(),
        "initial": initial.tolist(),
        "limit": limit,
    }


def catch_world(rng: Generator) -> dict[str, Any]:
    """Catch with its actions in another order."""
    tables = tables_of(Catch(pixels=False).model(), rng.permutation(3), 100)
    return tables | {"pixels": catch_frames().tolist()}


def maze_world(rng: Generator) -> dict[str, Any]:
    """The maze with its actions in another order."""
    return tables_of(Maze().model(), rng.permutation(4), 100)


def endless_world(rng: Generator, *, pixels: bool) -> dict[str, Any]:
    """Two states: from the first, where every episode begins, any step leads to the second, which
    is never left and gives reward 1 per step. Only the time limit ends an episode.

    V(second) = 1 / (1 − γ) and V(first) = γ V(second), whatever is done.
    """
    world: dict[str, Any] = {
        "next_state": [[1, 1], [1, 1]],
        "reward": [[0.0, 0.0], [1.0, 1.0]],
        "terminated": [[False, False], [False, False]],
        "initial": [1.0, 0.0],
        "limit": int(rng.integers(4, 7)),
    }
    if pixels:
        frames = np.zeros((2, 10, 5, 1), dtype=np.uint8)
        frames[0, 0], frames[1, -1] = 255, 255
        world["pixels"] = frames.tolist()
    return world


def endless_values(gamma: float) -> np.ndarray:
    """The exact values of `endless_world`, [2]."""
    return np.array([gamma, 1.0]) / (1 - gamma)


def return_of(world: dict[str, Any], policy: np.ndarray) -> float:
    """The expected undiscounted return of a policy [S, A] within the time limit, by backward
    induction."""
    following, reward, ends = (
        np.array(world[name]) for name in ("next_state", "reward", "terminated")
    )
    values = np.zeros(len(following))
    for _ in range(world["limit"]):
        values = (policy * (reward + np.where(ends, 0.0, values[following]))).sum(axis=1)
    return float(np.array(world["initial"]) @ values)


def greedy_policy(action_values: np.ndarray) -> np.ndarray:
    """The deterministic policy [S, A] that takes the best action."""
    return np.eye(action_values.shape[1])[action_values.argmax(axis=1)]
