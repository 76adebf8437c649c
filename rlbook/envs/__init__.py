"""Environments, and the finite models that planning uses. Depends only on NumPy, SciPy and
Gymnasium, never on torch.

Importing this package registers rlbook's environments, so
`gymnasium.make("rlbook.envs:rlbook/Maze-v0")` works too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlbook.envs.registration import register

if TYPE_CHECKING:
    from rlbook.envs.gridworlds.maze import Maze as Maze
    from rlbook.envs.gridworlds.maze_vector import MazeVector as MazeVector
    from rlbook.envs.tabular.mdp import TabularMDP as TabularMDP
    from rlbook.envs.tabular.tabular_env import TabularEnv as TabularEnv
    from rlbook.envs.tabular.tabular_vector import TabularVectorEnv as TabularVectorEnv

_HOME = {
    "Maze": "rlbook.envs.gridworlds.maze",
    "MazeVector": "rlbook.envs.gridworlds.maze_vector",
    "TabularEnv": "rlbook.envs.tabular.tabular_env",
    "TabularMDP": "rlbook.envs.tabular.mdp",
    "TabularVectorEnv": "rlbook.envs.tabular.tabular_vector",
}

__all__ = ["Maze", "MazeVector", "TabularEnv", "TabularMDP", "TabularVectorEnv"]

register()


def __getattr__(name: str) -> Any:
    """Imports classes on first use, so that `import rlbook.envs` does not load SciPy."""
    if name not in _HOME:
        raise AttributeError(f"module 'rlbook.envs' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
