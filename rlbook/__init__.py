"""rlbook: reinforcement learning as a book that runs."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rlbook.agent import Agent as Agent
    from rlbook.agent import Planner as Planner
    from rlbook.agent import Step as Step
    from rlbook.errors import RequestError as RequestError
    from rlbook.errors import TrainingError as TrainingError
    from rlbook.evaluation import evaluate as evaluate
    from rlbook.interaction.environments import environments as environments
    from rlbook.interaction.environments import make as make
    from rlbook.registry import algorithms as algorithms
    from rlbook.runs.comparison import compare as compare
    from rlbook.runs.run import Run as Run
    from rlbook.runs.run import load as load
    from rlbook.training import train as train

_HOME = {
    "Agent": "agent", "Planner": "agent", "Step": "agent", "environments": "interaction.environments", "make": "interaction.environments",
    "RequestError": "errors", "TrainingError": "errors", "evaluate": "evaluation", "algorithms": "registry", "Run": "runs.run",
    "compare": "runs.comparison", "load": "runs.run", "train": "training", "PPO": "algorithms.policy.ppo", "GRPO": "algorithms.policy.grpo",
    "DPO": "algorithms.policy.dpo", "DQN": "algorithms.value.dqn", "QLearning": "algorithms.tabular.q_learning",
    "ValueIteration": "algorithms.planning.value_iteration",
}  # fmt: skip
_MODULES = (
    "agent", "algorithms", "book", "data", "envs", "evaluation", "functional", "interaction", "llm", "plots",
    "policies", "registry", "runs", "training",
)  # fmt: skip

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    """Loads on first use, so that `import rlbook` loads neither torch nor transformers."""
    if name in _HOME:
        return getattr(importlib.import_module(f"rlbook.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"rlbook.{name}")
    raise AttributeError(f"module 'rlbook' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})


if "gymnasium" in sys.modules:               # then its `make` knows rlbook's ids at once; otherwise `rlbook.make` tells it
    importlib.import_module("rlbook.envs")
