"""rlbook: reinforcement learning as a book that runs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from rlbook.agent import Agent as Agent
    from rlbook.agent import Planner as Planner
    from rlbook.agent import Step as Step
    from rlbook.errors import RequestError as RequestError
    from rlbook.errors import TrainingError as TrainingError
    from rlbook.evaluation.comparison import compare as compare
    from rlbook.evaluation.episodes import evaluate as evaluate
    from rlbook.interaction.environments import environments as environments
    from rlbook.interaction.environments import make as make
    from rlbook.registry import algorithms as algorithms
    from rlbook.runs.run import Run as Run
    from rlbook.runs.run import load as load
    from rlbook.training import train as train

_HOME = {
    "Agent": "agent",
    "Planner": "agent",
    "Step": "agent",
    "environments": "interaction.environments",
    "make": "interaction.environments",
    "RequestError": "errors",
    "TrainingError": "errors",
    "evaluate": "evaluation.episodes",
    "algorithms": "registry",
    "Run": "runs.run",
    "compare": "evaluation.comparison",
    "load": "runs.run",
    "train": "training",
    "PPO": "algorithms.policy.ppo",
    "GRPO": "algorithms.policy.grpo",
    "DPO": "algorithms.policy.dpo",
    "DQN": "algorithms.value.dqn",
    "QLearning": "algorithms.tabular.q_learning",
    "ValueIteration": "algorithms.planning.value_iteration",
}
_MODULES = (
    "agent",
    "algorithms",
    "book",
    "data",
    "diagnosis",
    "envs",
    "evaluation",
    "functional",
    "interaction",
    "llm",
    "networks",
    "plots",
    "recipes",
    "registry",
    "runs",
    "sandbox",
    "training",
)

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    """Loads on first use, so that `import rlbook` loads neither torch nor transformers."""
    if name in _HOME:
        return getattr(importlib.import_module(f"rlbook.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"rlbook.{name}")
    if name.startswith("_") or importlib.util.find_spec(f"rlbook.{name}") is not None:
        raise AttributeError(f"module 'rlbook' has no attribute {name!r}")  # `import` looks further
    registry = importlib.import_module("rlbook.registry")
    if name in (classes := registry.class_names()):  # `from rlbook import SAC`
        return registry.agent_class(classes[name])
    from rlbook.errors import missing_name

    raise missing_name("rlbook", name, _hint(name), sys._getframe(1))


def _hint(name: str) -> str:
    """What a name of another library is here, for the end of an error message."""
    from rlbook.checks import name_hint
    from rlbook.registry import algorithm_hint
    from rlbook.runs.other_libraries import OF_THE_PACKAGE
    from rlbook.runs.run import Run

    if name not in OF_THE_PACKAGE and hasattr(Run, name):
        return f"; it is a method of a run: run.{name}()"
    if name not in OF_THE_PACKAGE and (found := algorithm_hint(name)):
        return found
    return name_hint(name, OF_THE_PACKAGE, [each for each in __dir__() if not each.startswith("_")])


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})


class _GymnasiumImportHook:
    """An import finder that imports `rlbook.envs` after gymnasium, so that the environment ids are
    registered.

    gymnasium 1.0 dropped the entry points by which a package could do so uninvited, and to import
    gymnasium here would take longer than all of `import rlbook`.
    """

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Finds gymnasium as the other finders do; None, meaning not found, for any other module.

        A caller may only want to know whether it is installed, so this stays in place until
        gymnasium has been imported.
        """
        if fullname != "gymnasium":
            return None
        for finder in sys.meta_path:
            spec = None if finder is cls else finder.find_spec(fullname, path, target)
            if spec is not None:
                _import_envs_after(spec.loader)
                return spec
        return None


def _import_envs_after(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        if _GymnasiumImportHook in sys.meta_path:
            sys.meta_path.remove(_GymnasiumImportHook)  # type: ignore[arg-type]
        importlib.import_module("rlbook.envs")

    loader.exec_module = exec_module


if "gymnasium" in sys.modules:
    importlib.import_module("rlbook.envs")
else:
    sys.meta_path.insert(0, _GymnasiumImportHook)  # type: ignore[arg-type]


def _complete_in_notebooks() -> None:
    """Adds the completions of `rlbook.training.completions` to IPython's Tab, because no signature
    lists them."""
    from IPython.core.completer import SimpleCompletion, context_matcher
    from IPython.core.getipython import get_ipython

    @context_matcher(identifier="rlbook.train")
    def matcher(context: Any) -> Any:
        lines = context.full_text.split("\n")[: context.cursor_line]
        before = "\n".join([*lines, context.line_with_cursor[: context.cursor_position]])
        found = []
        if "train(" in before:
            found = importlib.import_module("rlbook.training").completions(before)
        return {"completions": [SimpleCompletion(text, type="param") for text in found]}

    shell = get_ipython()
    if shell is not None:
        shell.Completer.custom_matchers.append(matcher)


if "IPython" in sys.modules:
    _complete_in_notebooks()
