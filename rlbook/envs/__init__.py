"""Environments, and the finite models that planning works on. Numpy, scipy and gymnasium only: nothing here imports torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlbook.envs.maze import Maze as Maze
    from rlbook.envs.maze_vector import MazeVector as MazeVector
    from rlbook.envs.mdp import TabularMDP as TabularMDP

_HOME = {"Maze": "rlbook.envs.maze", "MazeVector": "rlbook.envs.maze_vector", "TabularMDP": "rlbook.envs.mdp"}

__all__ = ["Maze", "MazeVector", "TabularMDP"]


def __getattr__(name: str) -> Any:
    """Loads a class when it is first asked for, so that `import rlbook.envs` costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'rlbook.envs' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
