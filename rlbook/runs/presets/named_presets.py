"""Reads the named presets, and selects the settings that apply to a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlbook.agent import Agent
from rlbook.checks import did_you_mean
from rlbook.errors import RequestError
from rlbook.registry import agent_class, name_of
from rlbook.runs.options import BUDGETS

FOLDER = Path(__file__).parent
PARTS = ("algorithm", "env", "env_kwargs", "hyperparameters")


@dataclass(frozen=True)
class NamedPreset:
    """The settings of a published recipe."""

    name: str
    algorithm: str
    env: str  # an id, short
    env_kwargs: dict[str, Any]
    """The arguments of the preset's environment; a run in another one ignores them."""
    options: dict[str, Any]
    """The options of a run, by the names of `rlbook.runs.options.RunOptions`."""
    hyperparameters: dict[str, Any]

    def for_run(
        self,
        algorithm: str | type[Agent],
        env: object,
        user_options: Mapping[str, Any],
        *,
        allow_import: bool = False,
    ) -> NamedPreset:
        """The settings that apply to a run: without arguments of another environment, and without
        those that the user overrides.

        Args:
            algorithm: of the run.
            env: of the run, an id or an environment.
            user_options: a budget replaces this one's, and a model's folder is joined with what is
                trained of it here.
            allow_import: let the algorithm's name import a module.

        Raises:
            RequestError: it is made for another algorithm.
        """
        agent = (
            algorithm
            if isinstance(algorithm, type)
            else agent_class(algorithm, allow_import=allow_import)
        )
        if agent is not agent_class(self.algorithm):
            raise RequestError(
                f"preset {self.name} is for {self.algorithm}, got {name_of(agent)}"
                f" (presets of {name_of(agent)}: {_list_presets(agent)})"
            )
        options = dict(self.options)
        if any(user_options.get(name) is not None for name in BUDGETS):
            options = {name: value for name, value in options.items() if name not in BUDGETS}
        folder, model = user_options.get("model"), options.get("model")
        if isinstance(folder, str | Path) and model is not None:
            options["model"] = {**model, "folder": str(folder)}
        elif folder is not None:
            options.pop("model", None)
        others = {
            name: value
            for name, value in user_options.items()
            if name != "model" or "model" not in options
        }
        same = isinstance(env, str) and env.removeprefix("rlbook/") == self.env
        kwargs = self.env_kwargs if same else {}
        return dataclasses.replace(self, env_kwargs=kwargs, options=options | others)


def preset_names() -> list[str]:
    """The names of all presets."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def named_preset(name: str) -> NamedPreset:
    """The preset of a name.

    Raises:
        RequestError: there is none; the nearest name is given.
    """
    if name not in preset_names():
        hint = did_you_mean(name.lower().replace("-", "_"), preset_names())
        raise RequestError(f"unknown preset {name!r}{hint} (known: {', '.join(preset_names())})")
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    options = {key: value for key, value in content.items() if key not in PARTS}
    return NamedPreset(
        name,
        content["algorithm"],
        content["env"],
        content.get("env_kwargs", {}),
        options,
        content["hyperparameters"],
    )


def _list_presets(agent: type[Agent]) -> str:
    """The presets for an algorithm, as a message lists them."""
    found = [name for name in preset_names() if agent_class(named_preset(name).algorithm) is agent]
    return ", ".join(found) or "none"
