"""A validated request for a run: everything needed to run it again, as stored in `config.yaml`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rlbook.agent import Agent
from rlbook.data.text_files import holds_rows, rows_in_memory
from rlbook.errors import RequestError, request_errors
from rlbook.functional.schedules import Schedule, hold_schedule
from rlbook.hyperparameters import as_fields, drop_idle, field_names, field_values
from rlbook.interaction.budget import Budget
from rlbook.interaction.environments import EnvLike, EnvRecipe
from rlbook.interaction.image_preprocessing import Preprocessing
from rlbook.networks.model_spec import FOUR_BIT, ModelSpec
from rlbook.registry import (
    VARIANTS,
    agent_class,
    algorithms,
    check_class,
    list_names,
    name_of,
    preset,
    refuse_data,
    refuse_foreign,
)
from rlbook.runs.options import (
    BUDGETS,
    COUNTS,
    FOLDERS,
    NAMES,
    PIXELS,
    UNWRITTEN,
    RunOptions,
    budgets_of,
    refuse_narrowed,
)
from rlbook.runs.other_libraries import unknown_hyperparameter
from rlbook.runs.storage.plain_yaml import PlainDumper, parse_yaml

EVAL_EPISODES = 20
PASSES = 10
"""The default number of passes over recorded data, for an agent whose own budget is in environment
steps."""
SAMPLER_CAP = 2.0
"""The default cap on importance weights if another program samples: verl's."""
RATES = ("learning_rate", "alpha")
"""The hyper-parameters that are step sizes."""
_MAPPINGS = ("env_kwargs", "hyperparameters", "digests")


@dataclass(frozen=True)
class Request:
    """A validated request; see `rlbook.train` for the meaning of the fields."""

    agent: type[Agent]
    recipe: EnvRecipe
    options: RunOptions
    """The options, including those of the preset."""
    config: Any
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    """`config` as plain YAML types."""
    digests: dict[str, str] = field(default_factory=dict)
    """Option → sha256 of the content that it referred to when the run was started."""
    earlier_budgets: tuple[dict[str, int], ...] = ()
    """The run's earlier budgets."""

    @classmethod
    def build(
        cls,
        algorithm: str | type[Agent],
        env: EnvLike,
        *,
        allow_import: bool = False,
        env_kwargs: Mapping[str, Any] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        digests: Mapping[str, str] | None = None,
        earlier_budgets: Sequence[dict[str, int]] = (),
        **options: Any,
    ) -> Request:
        """Validates everything that can be checked without making the environment. `options` are
        those of `RunOptions`.

        Raises:
            RequestError: one sentence: what, which value, what is allowed.
        """
        agent = (
            agent_class(algorithm, allow_import=allow_import)
            if isinstance(algorithm, str)
            else check_class(algorithm)
        )
        if holds_rows(options.get("data")):
            options["data"] = rows_in_memory(options["data"])
        asked = RunOptions(**options)
        _check_names("env_kwargs", env_kwargs or {})
        folder, spec = split_model(asked.model)
        spec = spec.import_network(allow_import=allow_import)
        asked = _merge_device(asked, spec)
        # its tokenizer decides what the environment shows, so the environment is told
        if folder is not None:
            env_kwargs = {**(env_kwargs or {}), "model": folder}
        recipe = EnvRecipe.from_env(env, allow_import=allow_import, kwargs=dict(env_kwargs or {}))
        _check_use(agent, asked)
        settings = preset(agent, recipe.name) | _large_model_preset(recipe, spec, agent)
        if asked.sampler is not None and "importance_cap" in field_names(agent.Config):
            settings["importance_cap"] = SAMPLER_CAP
        held = {name: settings.pop(name) for name in NAMES if name in settings}
        if asked.steps or asked.episodes or asked.passes:
            held |= {"steps": None, "episodes": None, "passes": None}
        elif (
            asked.data is not None and "data" in agent.sources() and "passes" not in held
        ):  # the budget is one of environment steps
            held |= {"steps": None, "episodes": None, "passes": PASSES}
        held = {
            "seed": 0,
            "num_envs": agent.default_num_envs,
            "eval_episodes": EVAL_EPISODES,
        } | held
        options = {**held, **({} if agent.batched else {"num_envs": 1}), **asked.explicit_options()}
        _check_stop(agent, whole := RunOptions(**options))
        _check_workers(agent, whole)
        _check_pixels(agent, whole)
        preprocessing = Preprocessing.from_options(vars(whole))
        recipe = dataclasses.replace(recipe, preprocessing=preprocessing)
        variant = VARIANTS.get(algorithm, {}) if isinstance(algorithm, str) else {}
        asked_for = {**settings, **variant, **(hyperparameters or {})}
        config = _config(agent, asked_for, keep=hyperparameters or {})
        needed = getattr(agent, "num_random_episodes", None)
        walks = whole.steps and asked.data is None and "walks" not in asked_for
        # of texts there are no walks
        if needed is not None and walks and not hasattr(recipe.make().unwrapped, "policy_kind"):
            # written down: a resumed run has the same data
            config = dataclasses.replace(
                config, walks=min(config.walks, needed(config, whole.steps))
            )
        return cls(
            agent,
            recipe,
            whole,
            config,
            _plain(field_values(config)),
            dict(digests or {}),
            tuple(earlier_budgets),
        )

    @property
    def algorithm(self) -> str:
        """The name from which the class can be found again, "module:Class" for a user-defined
        one."""
        return name_of(self.agent)

    @property
    def budget(self) -> Budget:
        return Budget(self.options.steps, self.options.episodes, self.options.passes)

    @property
    def seed(self) -> int:
        return self.options.seed or 0

    @property
    def num_envs(self) -> int:
        """The number of environments in parallel; 1 for an agent that uses a single one."""
        return self.options.num_envs or 1

    @property
    def eval_every(self) -> int | None:
        return self.options.eval_every

    @property
    def eval_episodes(self) -> int:
        return self.options.eval_episodes or EVAL_EPISODES

    @property
    def stop_at_return(self) -> float:
        """The evaluation's mean return at which training stops; infinity if it never does."""
        return math.inf if self.options.stop_at_return is None else self.options.stop_at_return

    def with_options(self, **options: Any) -> Request:
        """The same request with other options."""
        return dataclasses.replace(self, options=dataclasses.replace(self.options, **options))

    def without_rewards(self) -> Request:
        """The same request for a program that does not ask for rewards, and so needs no permission
        to import them."""
        return dataclasses.replace(self, recipe=self.recipe.without_rewards())

    def with_budget(self, budget: RunOptions) -> Request:
        """The same request with another budget, that remembers the present one."""
        return dataclasses.replace(
            self.with_options(steps=budget.steps, episodes=budget.episodes, passes=budget.passes),
            earlier_budgets=(*self.earlier_budgets, budgets_of(self.options)),
        )

    def with_held_schedules(self, budget: dict[str, int]) -> Request:
        """The same request, whose schedules end where they ended in the old `budget`.

        Raises:
            RequestError: the budgets count different things, or a learning rate that is 0 by then
                would be held.
        """
        new = budgets_of(self.options)
        if len(budget) != 1 or budget.keys() != new.keys():
            raise RequestError(
                "schedules can be held only where both budgets have the same unit, got "
                f"{' and '.join(budget)} and {' and '.join(new)}; stretch the schedules instead"
            )
        (name,) = new
        changed: dict[str, Any] = {}
        for setting in schedule_names(self.config):
            value = getattr(self.config, setting)
            if value is True or (setting in RATES and value(1.0) == 0.0):
                raise RequestError(
                    f"{setting} has lowered the learning rate to 0 by {budget[name]:,} {name}; "
                    "held there, nothing more would be learned: stretch the schedules instead"
                )
            changed[setting] = hold_schedule(value, budget[name] / new[name])
        config = dataclasses.replace(self.config, **changed)
        return dataclasses.replace(
            self, config=config, hyperparameters=_plain(field_values(config))
        )

    def check_continues(self, saved: Request, names: Iterable[str]) -> None:
        """Raises RequestError unless a run can be continued as it was started: algorithm,
        environment and each of `names` (options, hyper-parameters, `env_kwargs`) must equal what is
        `saved` in its folder."""
        mine, theirs = self._flat_fields(), saved._flat_fields()
        for name in ("algorithm", "env", *names):
            if name not in UNWRITTEN and mine.get(name) != theirs.get(name):
                larger = (
                    f"; rlbook.load(folder).resume({name}={mine.get(name)}) gives it that budget"
                )
                raise RequestError(
                    f"the run was started with {name} {theirs.get(name)}; resuming cannot make it"
                    f" {mine.get(name)}{larger if name in BUDGETS else ''}"
                )

    def _flat_fields(self) -> dict[str, Any]:
        named = {"algorithm": self.algorithm, "env": self.recipe.name}
        model = [
            str(part)
            for part in (self.recipe.kwargs.get("model"), self.options.model)
            if part is not None
        ]
        if model:  # the folder is the environment's, what else was said about it the option's
            named["model"] = ", ".join(model)
        return {**_plain(self.recipe.kwargs), **self.hyperparameters, **vars(self.options), **named}

    def as_yaml(self) -> str:
        """The text of config.yaml. Raises RequestError if an argument of the environment is not
        plain data."""
        asked_on_the_way = ("expert",) if "advice" in self.agent.uses else ()
        for name in ("teacher", "reference", "start", "reward_model", *asked_on_the_way):
            if not isinstance(getattr(self.options, name), str | Path | None):
                raise RequestError(
                    f"a run in a folder must be able to reload its {name}: give the folder of "
                    f"the {name.replace('_', ' ')}'s run"
                )
        env_id = self.recipe.written_id
        named = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in self.options.explicit_options().items()
        }
        entries = {
            "algorithm": self.algorithm,
            "env": env_id,
            "env_kwargs": {} if env_id is None else _plain(self.recipe.kwargs),
            **{name: named.get(name) for name in COUNTS if name not in UNWRITTEN + PIXELS},
            **{
                name: value
                for name, value in named.items()
                if (name not in COUNTS and isinstance(value, str | float)) or name in PIXELS
            },
            **(
                {}
                if self.options.model is None
                else {"model": self.options.model.explicit_fields()}
            ),
            **({"digests": self.digests} if self.digests else {}),
            **({"earlier_budgets": [*self.earlier_budgets]} if self.earlier_budgets else {}),
            "hyperparameters": self.hyperparameters,
        }
        try:
            return yaml.dump(entries, Dumper=PlainDumper, sort_keys=False, allow_unicode=True)
        except yaml.YAMLError as error:
            raise RequestError(
                f"env_kwargs cannot be written to config.yaml: {' '.join(map(str, error.args))}"
            ) from None

    @classmethod
    def from_yaml(
        cls,
        text: str,
        *,
        allow_import: bool = False,
        env: EnvLike | None = None,
        algorithm: type[Agent] | None = None,
        network: Callable[..., Any] | None = None,
        **arguments: Any,
    ) -> Request:
        """The inverse of `as_yaml`, with the same validation as any other request.

        Args:
            text: of a config.yaml.
            allow_import: let it name modules to import.
            env, algorithm, network, arguments: stand in for what the file could not name: an
                environment without an id, classes that cannot be imported, data that lay in no file.
        """
        with request_errors("config.yaml cannot be used: "):
            fields = parse_yaml(text)
        if not isinstance(fields, dict) or not {"algorithm", "env"} <= set(fields):
            raise RequestError("config.yaml must hold at least 'algorithm' and 'env'")
        named = ("algorithm", "env", "earlier_budgets", *_MAPPINGS, *NAMES)
        unknown = [str(key) for key in fields if key not in named]
        if unknown:
            raise RequestError(f"config.yaml has an unknown entry {unknown[0]!r}")
        mappings: dict[str, Any] = {name: fields.get(name) or {} for name in _MAPPINGS}
        if not isinstance(fields["algorithm"], str) or not all(
            isinstance(value, dict) for value in mappings.values()
        ):
            raise RequestError(
                "config.yaml: 'algorithm' must be a name, 'env_kwargs', 'digests' and"
                " 'hyperparameters' mappings"
            )
        earlier = fields.get("earlier_budgets") or []
        if not isinstance(earlier, list) or not all(map(_is_budget, earlier)):
            raise RequestError(
                f"config.yaml: earlier_budgets must be a list such as [{{steps: 1000}}], got"
                f" {earlier!r:.60}"
            )
        target = fields["env"] or env
        if target is None:
            raise RequestError(
                "this run's environment was made without an id or in wrappers; give env, as in"
                " rlbook.load(folder, env=my_env); the commands evaluate, watch and doctor take"
                " --env ID"
            )
        if algorithm is not None and name_of(check_class(algorithm)) != fields["algorithm"]:
            raise RequestError(
                f"the run was made with {fields['algorithm']}, not with {name_of(algorithm)}"
            )
        options: dict[str, Any] = {
            name: fields[name] for name in NAMES if fields.get(name) is not None
        }
        for name in FOLDERS:
            if not isinstance(options.get(name, ""), (str, dict) if name == "model" else str):
                raise RequestError(f"config.yaml: {name} must name a folder, got {options[name]!r}")
        if network is not None:
            options["model"] = _with_network(options.get("model"), network)
        agent = algorithm or agent_class(fields["algorithm"], allow_import=allow_import)
        settings = as_fields(mappings["hyperparameters"])
        # older versions did not refuse all of those that nothing reads
        mappings["hyperparameters"] = drop_idle(agent.Config, settings)
        return cls.build(
            algorithm or fields["algorithm"],
            target,
            **{**options, **arguments},
            allow_import=allow_import,
            earlier_budgets=earlier,
            **mappings,
        )


def _with_network(held: object, network: Callable[..., Any]) -> dict[str, Any]:
    """The fields of the model that a file holds, with the class that they name. Raises RequestError
    if they name another one."""
    with request_errors("network: "):
        given = ModelSpec(network=network).explicit_fields()["network"]
    fields: dict[str, Any] = held if isinstance(held, dict) else {}
    if fields.get("network") != given:
        raise RequestError(
            f"the run was started with network {fields.get('network')}, not with {given}"
        )
    return {**fields, "network": network}


def _is_budget(found: object) -> bool:
    return (
        isinstance(found, dict)
        and len(found) > 0
        and all(name in BUDGETS and type(value) is int for name, value in found.items())
    )


def schedule_names(config: object) -> list[str]:
    """The hyper-parameters with schedules over the budget."""
    values = field_values(config)
    return [
        name
        for name, value in values.items()
        if (name.startswith("anneal_") and value is True)
        or (isinstance(value, Schedule) and value(0.0) != value(1.0))
    ]


def split_model(model: object) -> tuple[str | None, ModelSpec]:
    """Splits the user's `model` into its folder and the remaining fields. Raises RequestError if it
    is not a valid model."""
    with request_errors("model: "):
        spec = ModelSpec.from_value(model) or ModelSpec()
    return spec.folder, dataclasses.replace(spec, folder=None)


def _large_model_preset(recipe: EnvRecipe, spec: ModelSpec, agent: type[Agent]) -> dict[str, Any]:
    """The preset for a large language model, which takes precedence over that of the
    environment."""
    folder = recipe.kwargs.get("model")
    if folder is None:
        return {}
    from rlbook.llm.models.sizes import size_preset  # which tables do without

    return size_preset(folder, spec, agent)


def _merge_device(options: RunOptions, spec: ModelSpec) -> RunOptions:
    """The options with the model's device moved to their own `device`; the model keeps its
    remaining fields, if any."""
    if spec.device is not None and options.device not in (None, spec.device):
        raise RequestError(
            f"device is {options.device}, but the model's device is {spec.device}; give only one "
            "of them"
        )
    if spec.dtype == FOUR_BIT and (options.device or "cpu") == "cpu":
        raise RequestError(f"model: dtype 4bit needs device cuda, got {options.device or 'cpu'}")
    rest = dataclasses.replace(spec, device=None)
    return dataclasses.replace(
        options,
        model=rest if rest.explicit_fields() else None,
        device=spec.device or options.device,
    )


def _check_use(agent: type[Agent], options: RunOptions) -> None:
    """Raises RequestError for an option that does not apply to this agent."""
    name = name_of(agent)
    if not agent.batched and (options.num_envs or 1) != 1:
        raise RequestError(
            f"{name} learns from one environment; num_envs must be 1, got {options.num_envs}"
        )
    sources = agent.sources()
    fits = options.data is not None and "data" in sources
    if options.data is not None and not fits and "demonstrations" not in agent.uses:
        refuse_data(agent)
    if options.passes is not None and not fits and sources != ("data",):
        raise RequestError(
            f"passes are counted over recorded data, but {name} was given none; give steps or "
            "episodes"
        )
    if options.episodes is not None and (sources == ("data",) or fits):
        raise RequestError(
            f"{name} plays no episodes when it learns from recorded data; give passes or steps"
        )
    for part in (
        "expert",
        "teacher",
        "reference",
        "start",
        "model",
        "device",
        "sampler",
        "replay_folder",
    ):
        value = getattr(options, part)
        if value not in (None, "cpu") and part not in agent.uses:
            if isinstance(value, ModelSpec) and value.network is not None:
                having = [each for each, kind in algorithms().items() if "model" in kind.uses]
                raise RequestError(
                    f"{name} takes no network of your own; {list_names(having)} take one"
                )
            got = value if isinstance(value, ModelSpec) else repr(value)
            raise RequestError(f"{name} has no use for {part}, got {got}"[:300])
    if options.reward_caution is not None and (
        options.reward_model is None or options.reward_caution < 0.0
    ):
        raise RequestError(
            "reward_caution needs a reward_model and must be at least 0, got "
            f"{options.reward_caution:g}"
        )
    if options.bonus_coef is not None and (
        options.exploration_bonus is None or options.bonus_coef < 0.0
    ):
        raise RequestError(
            "bonus_coef needs an exploration_bonus and must be at least 0, got "
            f"{options.bonus_coef:g}"
        )
    for option in ("reward_model", "exploration_bonus"):
        if getattr(options, option) is not None:
            _check_paid(agent, options, sources, option)


def _check_stop(agent: type[Agent], options: RunOptions) -> None:
    """Raises RequestError if the run should stop on an evaluation but no evaluation is
    scheduled."""
    if options.stop_at_return is None:
        return
    sources = agent.sources()
    if not agent.seeks_return or "model" in sources:
        raise RequestError(
            f"{name_of(agent)} is not evaluated during training, so stop_at_return has no effect"
        )
    if options.eval_every == 0:
        raise RequestError("stop_at_return needs evaluations during training; give eval_every")


def _check_workers(agent: type[Agent], options: RunOptions) -> None:
    """Raises RequestError if several workers were requested for no environment or only one."""
    if options.workers in (None, 1):
        return
    name, sources = name_of(agent), agent.sources()
    if (
        sources[0] != "environment"
        or "model" in sources
        or (options.data is not None and "data" in sources)
    ):
        raise RequestError(
            f"{name} steps no environments during training here; workers must be 1, got"
            f" {options.workers}"
        )
    if not agent.batched:
        raise RequestError(
            f"{name} learns from one environment; workers must be 1, got {options.workers}"
        )


def _check_pixels(agent: type[Agent], options: RunOptions) -> None:
    """Raises RequestError if preprocessing options have no effect on the agent, or its rewards
    cannot be clipped."""
    name, sources = name_of(agent), agent.sources()
    if options.read_masks is False and not agent.knows_env:
        raise RequestError(
            f"{name} reads the masks of the environment that it looks into; leave read_masks out"
        )
    used = [option for option in PIXELS if getattr(options, option)]
    if not used:
        return
    if "model" in sources:
        raise RequestError(f"{name} plans with the environment's model, so {used[0]} has no effect")
    plays = "environment" in sources and (options.data is None or "data" not in sources)
    for option in ("reward_clip", "episodic_life"):
        if getattr(options, option) and not plays:
            raise RequestError(
                f"{name} gets no rewards from an environment here, so {option} has no effect"
            )
    if not options.reward_clip:
        return
    if options.reward_model is not None:
        raise RequestError(
            "reward_clip clips the environment's rewards, which a reward_model replaces"
        )
    if agent.bind_env is not Agent.bind_env:
        raise RequestError(
            f"{name} plans in a copy of its environment, whose rewards reward_clip does not change"
        )


def _check_paid(
    agent: type[Agent], options: RunOptions, sources: tuple[str, ...], option: str
) -> None:
    """Raises RequestError if a reward model or a bonus was given but would have no effect."""
    name = name_of(agent)
    what = f"{'an' if option[0] == 'e' else 'a'} {option}"
    if "environment" not in sources or "model" in sources:
        raise RequestError(
            f"{name} gets no rewards from an environment, so it has no use for {what}"
        )
    if "demonstrations" in agent.uses:
        raise RequestError(f"{name} learns its reward itself, so it has no use for {what}")
    if options.data is not None:
        raise RequestError(
            f"{name} learns from recorded data here, whose rewards {what} does not"
            f" {'replace' if option == 'reward_model' else 'change'}; give only one of the two"
        )
    if agent.bind_env is not Agent.bind_env:
        raise RequestError(
            f"{name} plans in a copy of its environment, whose rewards {what} does not"
            f" {'replace' if option == 'reward_model' else 'change'}"
        )


def _check_names(what: str, arguments: Mapping[Any, Any]) -> None:
    for key in arguments:
        if not isinstance(key, str):
            raise RequestError(f"{what} must name its arguments, got {key!r}")


BESIDE_OPTIONS = ("callbacks", "config", "env_kwargs", "out", "quiet", "track")
"""Further arguments of `rlbook.train`."""


def _config(agent: type[Agent], hyperparameters: dict[str, object], keep: Collection[str]) -> Any:
    """The agent's config. A preset's hyper-parameter that nothing reads because of what the user has
    set in `keep` is left out."""
    names, algorithm = field_names(agent.Config), name_of(agent)
    for key in hyperparameters:
        if key not in names:
            refuse_narrowed(algorithm, key)
            refuse_foreign(algorithm, key)
            raise RequestError(unknown_hyperparameter(agent, key, (*NAMES, *BESIDE_OPTIONS)))
    with request_errors(kinds=(ValueError, TypeError)):
        return agent.Config(**drop_idle(agent.Config, as_fields(hyperparameters), keep))


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Converts values to plain YAML types: tuples to lists, schedules and paths to text, NumPy numbers to
    Python's."""
    return {name: _plain_value(value) for name, value in fields.items()}


def _plain_value(value: object) -> object:
    if isinstance(value, (tuple, list)):
        return [_plain_value(item) for item in value]
    if dataclasses.is_dataclass(value) or isinstance(value, Path):
        return str(value)
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
