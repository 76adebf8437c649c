"""What a run was asked to do, checked before anything is created: everything needed to run it again, `config.yaml`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from rlbook.agent import Agent
from rlbook.checks import nearest, whole_number
from rlbook.errors import RequestError
from rlbook.interaction.environments import Recipe
from rlbook.interaction.loop import Budget
from rlbook.registry import agent_class, preset
from rlbook.runs.plain_yaml import parse_yaml

EVAL_EPISODES = 20
_OPTIONS = {"steps": 1, "episodes": 1, "seed": 0, "num_envs": 1, "eval_every": 0, "eval_episodes": 1}     # name → least value
_MAPPINGS = ("env_kwargs", "hyperparameters")


@dataclass(frozen=True)
class Request:
    """A checked request; see `rlbook.train` for what the fields mean."""

    algorithm: str
    recipe: Recipe
    budget: Budget
    seed: int
    num_envs: int
    eval_every: int | None
    eval_episodes: int
    config: Any
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    """`config` as plain YAML types."""

    @classmethod
    def build(
        cls, algorithm: str, env: Any, *, steps: int | None = None, episodes: int | None = None, seed: int = 0, num_envs: int | None = None,
        eval_every: int | None = None, eval_episodes: int | None = None, allow_import: bool = False,
        env_kwargs: Mapping[str, Any] | None = None, hyperparameters: Mapping[str, Any] | None = None,
    ) -> Request:  # fmt: skip
        """Checks everything that can be checked without making the environment. Budget, streams and hyper-parameters default to the preset.

        Raises:
            RequestError: one sentence: what, which value, what is allowed.
        """
        agent = agent_class(algorithm)
        _check_names("env_kwargs", env_kwargs or {})
        recipe = Recipe.of(env, allow_import=allow_import, kwargs=dict(env_kwargs or {}))
        given = {"steps": steps, "episodes": episodes, "seed": seed, "num_envs": num_envs}
        given |= {"eval_every": eval_every, "eval_episodes": eval_episodes}
        asked = {name: whole_number(name, value, _OPTIONS[name]) for name, value in given.items() if value is not None}
        if not agent.batched and asked.get("num_envs", 1) != 1:
            raise RequestError(f"{algorithm} learns from one stream; num_envs must be 1, got {num_envs}")
        settings = preset(agent, recipe.name)
        preset_budget = Budget(settings.pop("steps", None), settings.pop("episodes", None))
        budget = Budget(asked.get("steps"), asked.get("episodes"))
        streams = settings.pop("num_envs", agent.default_num_envs) if agent.batched else 1
        eval_every = asked.get("eval_every", settings.pop("eval_every", None))
        evaluations = settings.pop("eval_episodes", EVAL_EPISODES)
        config = _config(agent, algorithm, settings | dict(hyperparameters or {}))
        return cls(
            algorithm, recipe, preset_budget if budget == Budget(None, None) else budget, seed=asked.get("seed", 0),
            num_envs=asked.get("num_envs") or streams, eval_every=eval_every,
            eval_episodes=asked.get("eval_episodes") or evaluations, config=config, hyperparameters=_plain(vars(config)),
        )  # fmt: skip

    def check_continues(self, held: Request, names: Iterable[str]) -> None:
        """A run goes on as it was started: raises RequestError where the algorithm, the environment or one of `names` (of options, of
        hyper-parameters, of `env_kwargs`) differs from what is `held` in its folder."""
        mine, theirs = self._flat(), held._flat()
        for name in ("algorithm", "env", *names):
            if mine.get(name) != theirs.get(name):
                raise RequestError(f"the run was started with {name} {theirs.get(name)}; resuming cannot make it {mine.get(name)}")

    def _flat(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("algorithm", "seed", "num_envs", "eval_every", "eval_episodes")}
        return {**self.recipe.kwargs, **self.hyperparameters, **options, "env": self.recipe.name, **vars(self.budget)}

    def as_yaml(self) -> str:
        """The text of config.yaml. Raises RequestError where an argument of the environment is not data."""
        env_id = self.recipe.written_id
        entries = {
            "algorithm": self.algorithm, "env": env_id, "env_kwargs": {} if env_id is None else _plain(self.recipe.kwargs),
            "steps": self.budget.steps, "episodes": self.budget.episodes, "seed": self.seed, "num_envs": self.num_envs,
            "eval_every": self.eval_every, "eval_episodes": self.eval_episodes, "hyperparameters": self.hyperparameters,
        }  # fmt: skip
        try:
            return yaml.dump(entries, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
        except yaml.YAMLError as error:
            raise RequestError(f"env_kwargs cannot be written to config.yaml: {' '.join(map(str, error.args))}") from None

    @classmethod
    def from_yaml(cls, text: str, *, allow_import: bool = False, env: Any = None) -> Request:
        """The inverse of `as_yaml`; checked like any other request. `env` stands in where the file names no environment."""
        try:
            fields = parse_yaml(text)
        except ValueError as error:
            raise RequestError(f"config.yaml cannot be used: {error}") from None
        if not isinstance(fields, dict) or not {"algorithm", "env"} <= set(fields):
            raise RequestError("config.yaml must hold at least 'algorithm' and 'env'")
        unknown = [str(key) for key in fields if key not in ("algorithm", "env", *_MAPPINGS, *_OPTIONS)]
        if unknown:
            raise RequestError(f"config.yaml has an unknown entry {unknown[0]!r}")
        mappings: dict[str, Any] = {name: fields.get(name) or {} for name in _MAPPINGS}
        if not isinstance(fields["algorithm"], str) or not all(isinstance(value, dict) for value in mappings.values()):
            raise RequestError("config.yaml: 'algorithm' must be a name, 'env_kwargs' and 'hyperparameters' mappings")
        target = fields["env"] or env
        if target is None:
            raise RequestError("this run's environment was made without an id; give env")
        options: dict[str, Any] = {name: fields[name] for name in _OPTIONS if fields.get(name) is not None}
        return cls.build(fields["algorithm"], target, **options, allow_import=allow_import, **mappings)


def _check_names(what: str, arguments: Mapping[Any, Any]) -> None:
    for key in arguments:
        if not isinstance(key, str):
            raise RequestError(f"{what} must name its arguments, got {key!r}")


def _config(agent: type[Agent], algorithm: str, hyperparameters: dict[str, Any]) -> Any:
    names = [item.name for item in dataclasses.fields(agent.Config)]
    for key in hyperparameters:
        if key not in names:
            match = nearest(key, names)
            hint = f"; did you mean {match!r}?" if match else ""
            raise RequestError(f"{algorithm} has no hyper-parameter {key!r}{hint} (it has: {', '.join(names)})")
    try:
        return agent.Config(**{key: tuple(value) if isinstance(value, list) else value for key, value in hyperparameters.items()})
    except (ValueError, TypeError) as error:
        raise RequestError(str(error)) from error


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Values as plain YAML types: a tuple as a list, a schedule as its text, numpy's numbers as Python's."""
    return {name: _plain_value(value) for name, value in fields.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain_value(item) for item in value]
    if dataclasses.is_dataclass(value):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
