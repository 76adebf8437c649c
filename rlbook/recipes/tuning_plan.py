"""The plan of a search: tune.yaml in its folder, from which any process can run a trial of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlbook.agent import Agent
from rlbook.checks import whole_number
from rlbook.errors import RequestError
from rlbook.hyperparameters import as_fields, drop_idle, field_values
from rlbook.networks.model_spec import ModelSpec
from rlbook.recipes.search_space import Choices, Interval, Plain, Space, search_space, settings
from rlbook.registry import agent_class, check_class, name_of
from rlbook.runs.callbacks import Callback
from rlbook.runs.options import NAMES
from rlbook.runs.request import Request
from rlbook.runs.run import Run
from rlbook.runs.storage.files import read_file, replace_file
from rlbook.runs.storage.folder import CONFIG, CONFIG_LIMIT
from rlbook.runs.storage.plain_yaml import PlainDumper, parse_yaml
from rlbook.training import train

PLAN = "tune.yaml"
UNUSED = ("seed", "inspect", "workers")
"""Options that a preset does not include."""


@dataclass(frozen=True)
class TuningPlan:
    """A search as stored in its folder."""

    algorithm: str
    env: str
    env_kwargs: Mapping[str, Any]
    options: Mapping[str, Any]
    """The given options of `rlbook.train`."""
    hyperparameters: Mapping[str, Any]
    """The given hyper-parameters, which stay fixed."""
    space: Space
    seeds: Sequence[int]
    """The seeds of each trial."""
    prune: bool = True

    @classmethod
    def build(
        cls,
        algorithm: str | type[Agent],
        env: str,
        settings: Mapping[str, Any],
        *,
        search: Sequence[str] = (),
        seeds: int,
        env_kwargs: Mapping[str, Any] | None = None,
        prune: bool = True,
        allow_import: bool = False,
    ) -> TuningPlan:
        """A plan whose first run has been validated.

        Args:
            algorithm, env, env_kwargs, allow_import: as in `rlbook.train`.
            settings: run options and hyper-parameters, as in `rlbook.train`.
            search: as in `rlbook.recipes.search_space.search_space`.
            seeds: how many runs a trial is.
            prune: whether a trial may be ended early.

        Raises:
            RequestError: one sentence: what, which value, what is allowed.
        """
        if not isinstance(env, str):
            raise RequestError(f"tune needs an environment id, got {type(env).__name__}")
        options = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in settings.items()
            if name in NAMES and value is not None
        }
        first = whole_number("seed", options.pop("seed", 0), 0)
        fixed = {name: value for name, value in settings.items() if name not in NAMES}
        plan = cls(
            algorithm if isinstance(algorithm, str) else name_of(check_class(algorithm)),
            env,
            dict(env_kwargs or {}),
            options,
            fixed,
            {},
            range(first, first + seeds),
            prune,
        )
        agent = agent_class(plan.algorithm, allow_import=allow_import)
        if not agent.seeks_return:
            raise RequestError(f"{plan.algorithm} has no return, which is what tune compares")
        request = plan.request(allow_import=allow_import)
        space = search_space(agent, request.config, search, fixed)
        Run(request).open()  # what only shows when it is made
        return dataclasses.replace(plan, space=space)

    def request(self, *, allow_import: bool = False) -> Request:
        """The request of a run without search: the starting point."""
        return Request.build(
            self.algorithm,
            self.env,
            **self.options,
            allow_import=allow_import,
            env_kwargs=self.env_kwargs,
            hyperparameters=self.hyperparameters,
        )

    def settings(self, values: Mapping[str, Plain], *, allow_import: bool) -> dict[str, Any]:
        """All hyper-parameters of a preset: fixed ones, and drawn ones. What nothing reads beside
        the others is left out."""
        config = self.request(allow_import=allow_import).config
        chosen = {**self.hyperparameters, **settings(values, config)}
        read = drop_idle(type(config), {**field_values(config), **as_fields(chosen)})
        return {name: value for name, value in chosen.items() if name in read}

    def train(
        self,
        hyperparameters: Mapping[str, Any],
        seed: int,
        *,
        folder: Path | None = None,
        on_report: Callback | None = None,
        allow_import: bool = False,
    ) -> Run:
        """Trains a run with these hyper-parameters; a run whose folder exists is continued."""
        return train(
            self.algorithm,
            self.env,
            out=folder,
            quiet=True,
            resume=folder is not None and (folder / CONFIG).exists(),
            allow_import=allow_import,
            env_kwargs=dict(self.env_kwargs),
            on_report=on_report,
            seed=seed,
            **self.options,
            **hyperparameters,
        )

    def as_preset(self, hyperparameters: Mapping[str, Any], *comments: str) -> str:
        """The text of a file for `rlbook train --config`."""
        entries = {
            "algorithm": self.algorithm,
            "env": self.env,
            **({"env_kwargs": dict(self.env_kwargs)} if self.env_kwargs else {}),
            **{name: value for name, value in self.options.items() if name not in UNUSED},
            "hyperparameters": dict(hyperparameters),
        }
        return "".join(f"# {line}\n" for line in comments) + _dump(entries)

    def _entries(self) -> dict[str, Any]:
        """The plan as plain YAML types."""
        return {
            "algorithm": self.algorithm,
            "env": self.env,
            "env_kwargs": dict(self.env_kwargs),
            "options": dict(self.options),
            "hyperparameters": dict(self.hyperparameters),
            "search": {name: _entry(found) for name, found in self.space.items()},
            "seeds": list(self.seeds),
            "prune": self.prune,
        }

    def write(self, folder: Path) -> None:
        """Writes the plan. Raises OSError if it cannot be written."""
        replace_file(folder / PLAN, _dump(self._entries()).encode())

    def check_same(self, folder: Path) -> None:
        """Raises RequestError if the folder holds another search."""
        held, asked = _read_entries(folder), parse_yaml(_dump(self._entries()))
        for name, value in asked.items():
            if held.get(name) != value:
                raise RequestError(
                    f"{folder} holds a search that was started with {name} {held.get(name)}, not"
                    f" {value}; give another folder"
                )


def read_plan(folder: Path) -> TuningPlan:
    """The plan in a folder. Raises RequestError if it is not valid."""
    held = _read_entries(folder)
    try:
        return TuningPlan(
            str(held["algorithm"]),
            str(held["env"]),
            dict(held["env_kwargs"]),
            dict(held["options"]),
            dict(held["hyperparameters"]),
            {str(name): _range(entry) for name, entry in held["search"].items()},
            [int(seed) for seed in held["seeds"]],
            bool(held["prune"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RequestError(f"{folder / PLAN} is not what tune writes") from error


def _read_entries(folder: Path) -> dict[str, Any]:
    """The content of tune.yaml. Raises RequestError if there is none, or it cannot be read."""
    path = folder / PLAN
    try:
        held = parse_yaml(read_file(path, CONFIG_LIMIT).decode())
    except FileNotFoundError:
        raise RequestError(f"{folder} holds no search: it has no {PLAN}") from None
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} cannot be used: {error}") from None
    if not isinstance(held, dict):
        raise RequestError(f"{path} is not what tune writes")
    return held


def _entry(found: Interval | Choices) -> Any:
    return list(found.values) if isinstance(found, Choices) else dataclasses.asdict(found)


def _range(entry: Any) -> Interval | Choices:
    return Choices(tuple(entry)) if isinstance(entry, list) else Interval(**entry)


def _dump(entries: Mapping[str, Any]) -> str:
    try:
        return yaml.dump(_plain(entries), Dumper=PlainDumper, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise RequestError(f"tune stores its arguments as text, but {error} is not text") from None


def _plain(value: Any) -> Any:
    """Tuples as lists, paths and schedules as text, and no object twice, which YAML would write as
    an alias."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, ModelSpec):
        return _plain(value.explicit_fields())
    if dataclasses.is_dataclass(value):
        return str(value)
    return value
