"""The command line of `rlbook train`: run options, `--env.KEY VALUE`, `--model.KEY VALUE`, and the
hyper-parameters of the algorithm."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from tyro.conf import Positional, arg

from rlbook.ascii_signs import printable
from rlbook.checks import did_you_mean
from rlbook.cli.command_line import (
    has_option,
    join_names,
    mark_resume,
    move_numbers_last,
    option,
    spell_out,
    take_algorithm,
    take_arguments,
    take_env_arguments,
)
from rlbook.cli.options import (
    Word,
    asks_for_help,
    flatten,
    help_line,
    names,
    parse,
    run_options,
    text,
)
from rlbook.cli.output import fill_paragraph
from rlbook.cli.values import OptionText, convert, flag, may_import, metavar
from rlbook.errors import RequestError, request_errors
from rlbook.evaluation.catalogue import example_of
from rlbook.hyperparameters import field_names
from rlbook.registry import ALGORITHMS, agent_class, refuse_foreign
from rlbook.runs.options import (
    BUDGETS,
    FOLDERS,
    NAMES,
    PIXELS,
    SWITCHES,
    UNWRITTEN,
    SeedOptions,
    budgets_of,
    refuse_narrowed,
)
from rlbook.runs.presets.named_presets import NamedPreset, named_preset
from rlbook.runs.request import Request, split_model
from rlbook.runs.storage.files import read_file
from rlbook.runs.trackers import TRACKERS


@dataclass(frozen=True)
class Training:
    """The request of the command line, and of the file given to --config. None and absent keys are
    left to `rlbook.train`."""

    run: Any
    algorithm: str | None
    env: str | None
    options: dict[str, Any]
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    several: SeedOptions = field(default_factory=SeedOptions)

    @property
    def resume(self) -> str | None:
        """The folder to continue in; None for a new run."""
        folder = getattr(self.run, "resume", None)
        return self.out_folder if folder == "" else folder

    @property
    def schedules(self) -> str | None:
        """What schedules do when the budget of a resumed run grows, if given."""
        return getattr(self.run, "schedules", None)

    @property
    def trackers(self) -> list[str]:
        """The destinations of reports besides the folder."""
        named = (getattr(self.run, "track", None) or "").split(",")
        return [*filter(None, named), *(["tensorboard"] if self.run.tensorboard else [])]

    @property
    def out_folder(self) -> str | None:
        """The folder of a new run, if one is named."""
        return self.run.out

    def build_request(self) -> Request:
        """The request of a new run. Raises RequestError if it is invalid."""
        return Request.build(
            str(self.algorithm),
            str(self.env),
            **self.options,
            allow_import=self.run.allow_import,
            env_kwargs=self.env_kwargs,
            hyperparameters=self.hyperparameters,
        )


def parse_train(
    argv: Sequence[str],
    *,
    command: str = "train",
    options: type | None = None,
    description: str | None = None,
    helped_by: str | None = None,
) -> Training:
    """Parses the command line of `rlbook train`, or of another `command` that trains.

    Args:
        argv: the words after the command.
        command: its name.
        options: the dataclass of its options (default: those of `rlbook train`).
        description: what its help begins with.
        helped_by: the command whose help shows the options (default: `command`).

    Raises:
        RequestError: one sentence: what, which value, what is allowed.
    """
    words, env_kwargs = take_env_arguments(list(argv))
    words, model = take_arguments(words, "model", "the model")
    words = mark_resume(move_numbers_last(join_names(words, "--track", TRACKERS)))
    algorithm, words = take_algorithm(words)
    held = _read_config(option(words, "--config"))
    asked_for = option(words, "--preset")
    preset = None if asked_for is None else named_preset(asked_for)
    started = (
        option(words, "--resume") or option(words, "--out")
        if has_option(words, "--resume") and not has_option(words, "--seeds")
        else None
    )
    if algorithm is None:
        algorithm = held.get("algorithm") or (
            _read_config(None, started=started).get("algorithm") if started else None
        )
    if algorithm is None and preset is not None:
        algorithm = preset.algorithm
    if algorithm is not None:  # before anything of it is shown
        agent_class(algorithm, allow_import=may_import(words))
    kinds, shape = command_of(algorithm, options)
    words = spell_out(words, kinds | dict.fromkeys(SWITCHES, bool))
    _refuse_others_options(words, algorithm, {"--help", *map(flag, kinds), *names(shape)})
    prog = f"rlbook {helped_by or command} {algorithm or 'ALGORITHM'}"
    if description is None and asks_for_help(words):
        description = _description(algorithm)
    parsed = flatten(parse(shape, words, prog, description))
    given = {name: parsed[name] for name in kinds if isinstance(parsed[name], OptionText)}
    run = SimpleNamespace(**{name: parsed[name] for name in parsed if name not in kinds})
    training = Training(
        run,
        algorithm,
        parsed["env"] or held.get("env"),
        add_model_options(held["options"] | _run_options(run), held["options"].get("model"), model),
        held["env_kwargs"] | env_kwargs,
        held["hyperparameters"]
        | {name: convert(flag(name), value, kinds[name]) for name, value in given.items()},
        SeedOptions(run.seeds, run.jobs, run.cluster),
    )
    if preset is not None:
        training = _add_preset(training, preset)
    return _complete(training, command)


def _refuse_others_options(words: Sequence[str], algorithm: str | None, known: set[str]) -> None:
    """Raises RequestError for an option that is unknown here but belongs to other algorithms, or to
    evaluation."""
    for typed in words:
        name = typed.partition("=")[0].removeprefix("--").replace("-", "_")
        if typed.startswith("--") and known.isdisjoint(
            (flag(name), flag(name.removeprefix("no_")))
        ):
            refuse_narrowed(str(algorithm), name)
            if algorithm is not None:
                refuse_foreign(algorithm, name.removeprefix("no_"))


def _add_preset(training: Training, preset: NamedPreset) -> Training:
    """The request with the settings of a preset filled in where it has none."""
    algorithm, env = training.algorithm or preset.algorithm, training.env or preset.env
    named = preset.for_run(algorithm, env, training.options, allow_import=True)
    return dataclasses.replace(
        training,
        env=env,
        options=named.options,
        env_kwargs=named.env_kwargs | training.env_kwargs,
        hyperparameters=named.hyperparameters | training.hyperparameters,
    )


def _run_options(namespace: SimpleNamespace) -> dict[str, Any]:
    """The options of a run given on the command line."""
    return {
        name: _findable(value) if name in FOLDERS else value
        for name in NAMES
        if (value := getattr(namespace, name, None)) is not None  # a command may lack some
    }


def add_model_options(
    options: dict[str, Any], stored: Any, model_options: dict[str, Any]
) -> dict[str, Any]:
    """The options with those of `--model.KEY VALUE`; `stored` is what a file says."""
    if not model_options:
        return options
    fields: dict[str, Any] = dict(stored) if isinstance(stored, Mapping) else {}
    if isinstance(options.get("model"), str):
        fields["folder"] = options["model"]
    for key, value in model_options.items():
        *path, last = key.split(".")
        inside = fields
        for part in path:
            inside = inside.setdefault(part, {})
            if not isinstance(inside, dict):
                raise RequestError(f"--model.{key} sets a part of {part}, but that is {inside!r}")
        inside[last] = (
            _findable(value) if key in ("adapter", "folder") and isinstance(value, str) else value
        )
    return options | {"model": fields}


def _findable(folder: str) -> str:
    """An absolute path, so that the run can be resumed from any folder; a path that does not exist
    is kept as given."""
    return str(Path(folder).resolve()) if Path(folder).exists() else folder


def free_folder(training: Training, last: str) -> Path:
    """runs/ALGORITHM-ENV-LAST, or the first of -2, -3, … that is free."""
    env = str(training.env).removeprefix("rlbook/").replace("/", "-").replace(":", "-")
    base = f"runs/{training.algorithm}-{env}-{last}"
    number = 1
    while (path := Path(base if number == 1 else f"{base}-{number}")).exists():
        number += 1
    return path


def new_budget(training: Training, saved: Request) -> dict[str, int]:
    """The new budget of a resumed run, if it differs from the present one."""
    asked = {name: training.options[name] for name in BUDGETS if name in training.options}
    return {} if asked == budgets_of(saved.options) else asked


def check_unchanged(training: Training, saved: Request, folder: Path) -> None:
    """Raises RequestError if a resumed run's options are changed; repeating them is fine.

    Raises:
        RequestError: an option differs from what the folder holds.
    """
    asked: dict[str, Any] = dict(training.options)
    kept: dict[str, Any] = vars(saved.options).copy()
    if training.algorithm is not None:
        asked["algorithm"], kept["algorithm"] = training.algorithm, saved.algorithm
    if training.env is not None:
        kept["env"] = saved.recipe.name
        asked["env"] = kept["env"] if saved.recipe.is_called(training.env) else training.env
    if "model" in asked:  # the folder is the environment's
        base, spec = split_model(asked.pop("model"))
        asked["the model"], kept["the model"] = (
            spec.explicit_fields(),
            {} if saved.options.model is None else saved.options.model.explicit_fields(),
        )
        if base is not None:
            asked["model"], kept["model"] = base, saved.recipe.kwargs.get("model")
    asked |= {f"env.{key}": value for key, value in training.env_kwargs.items()}
    kept |= {f"env.{key}": saved.recipe.kwargs.get(key) for key in training.env_kwargs}
    with request_errors(kinds=(ValueError, TypeError)):
        asked |= vars(dataclasses.replace(saved.config, **training.hyperparameters))
    kept |= vars(saved.config)
    for name, value in asked.items():
        if name not in UNWRITTEN and value != kept[name]:
            raise RequestError(
                f"{folder} was started with {name} {kept[name]}; --resume cannot make it {value}"
            )


def _complete(training: Training, command: str) -> Training:
    if getattr(training.run, "resume", None) == "" and training.resume is None:
        raise RequestError("--resume needs a folder: --resume FOLDER, or --out FOLDER --resume")
    if training.schedules is not None and training.resume is None:
        raise RequestError("--schedules belongs to --resume FOLDER with a larger budget")
    # some of several seeds may not have begun
    new = training.resume is None or training.several.seeds is not None
    if new and training.algorithm is None:
        raise RequestError(
            f"{command} needs an ALGORITHM and an ENV, such as: rlbook {command} ppo Maze-v0"
        )
    if new and training.env is None:
        data = str(training.options.get("data", training.env_kwargs.get("data", "")))
        texts = Path(data).suffix in TEXTS or "model" in training.options
        env = "Chat-v0" if texts else "Maze-v0"
        raise RequestError(
            f"{command} needs an ENV too, such as: rlbook {command} {training.algorithm} {env}"
        )
    return training


TEXTS = (".jsonl", ".json", ".parquet", ".csv", ".tsv")
"""Extensions of files with rows of text."""


def _read_config(file: str | None, *, started: str | None = None) -> dict[str, Any]:
    """Reads a config.yaml, or that of a run that was `started`, and checks the types of its parts;
    values are checked where they are used."""
    if file is None and started is None:
        return {"options": {}, "env_kwargs": {}, "hyperparameters": {}}
    from rlbook.runs.storage.folder import CONFIG_LIMIT, read_config
    from rlbook.runs.storage.plain_yaml import parse_yaml

    name = file or f"{started}/config.yaml"
    if file is not None and Path(file).is_dir():
        raise RequestError(
            f"--config takes a file, and {file} is a folder; did you mean"
            f" {str(Path(file) / 'config.yaml')!r}?"
        )
    try:
        text = (
            read_config(Path(started))[0]
            if started
            else read_file(Path(name), CONFIG_LIMIT, follow=True).decode()
        )
        return _check_config(parse_yaml(text), name)
    except FileNotFoundError:
        raise RequestError(f"{name} does not exist") from None
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(f"{name} cannot be used: {error}") from None


def _right_place(content: dict[str, Any], key: object) -> str:
    """Where an unknown entry of a config belongs; "" if that is unknown."""
    try:
        names = field_names(agent_class(str(content.get("algorithm"))).Config)
    except RequestError:
        return ""
    place = "; it belongs below 'hyperparameters:', indented"
    return place if key in names else did_you_mean(key, names, f"{place}: {{}}")


def _check_config(content: object, file: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise RequestError(
            f"{file} must hold entries such as 'algorithm: ppo', got {type(content).__name__}"
        )
    known = (
        "algorithm",
        "env",
        "env_kwargs",
        "hyperparameters",
        "digests",
        "earlier_budgets",
        *NAMES,
    )
    for key in content:
        if key not in known:
            hint = did_you_mean(key, known) or _right_place(content, key)
            raise RequestError(f"{file} has an unknown entry {str(key)[:80]!r}{hint}")
    for name, kind in (
        ("algorithm", str),
        ("env", str),
        ("env_kwargs", dict),
        ("hyperparameters", dict),
    ):
        if not isinstance(content.get(name), kind | None):
            raise RequestError(
                f"{file}: {name} must be a {'name' if kind is str else 'mapping'}, got"
                f" {str(content[name])[:80]!r}"
            )
    options = {name: content[name] for name in NAMES if content.get(name) is not None}
    hyperparameters = {
        str(key): tuple(v) if isinstance(v, list) else v
        for key, v in (content.get("hyperparameters") or {}).items()
    }
    return content | {
        "options": options,
        "env_kwargs": content.get("env_kwargs") or {},
        "hyperparameters": hyperparameters,
    }


def command_of(algorithm: str | None, options: type | None = None) -> tuple[dict[str, Any], type]:
    """The types of the algorithm's hyper-parameters, and the dataclass from which tyro parses the
    command line: the most frequently changed options first, the rest in groups.

    Args:
        algorithm: whose hyper-parameters there are; None for none.
        options: the options of another command than `rlbook train`, as one group.
    """
    env = help_line("an environment id; `rlbook list envs` shows those that are installed", "")
    kinds, hyper, data = {}, {}, False
    if algorithm is not None:
        kinds, hyper = _hyperparameters(algorithm)
        data = "data" in agent_class(algorithm, allow_import=True).sources()
    run = run_options() if options is None else {}
    first = [name for name in MOST if name in run | hyper and (data or name != "passes")]
    grouped = {name for names in GROUPS.values() for name in names}
    groups: dict[str, list[Any]] = {
        str(algorithm): [field for name, field in hyper.items() if name not in first],
        **{
            group: [run[name] for name in names if name in run and name not in first]
            for group, names in GROUPS.items()
        },
        "other": [field for name, field in run.items() if name not in {*grouped, *first}],
    }
    fields: list[Any] = [("env", Annotated[Positional[Word], env], None)]
    fields += [(run | hyper)[name] for name in first]
    if options is not None:
        fields.append(("run", Annotated[options, arg(name="run")], options()))
    fields += [
        _group(number, group, members, _more_options_note(algorithm) if group == algorithm else "")
        for number, (group, members) in enumerate(groups.items())
        if members
    ]
    return kinds, dataclasses.make_dataclass("Train", fields, frozen=True)


MOST = (
    "steps episodes passes seed out learning_rate alpha gamma num_envs epsilon trace_decay"
    " simulations rollout_steps batch_size group_size hidden_sizes"
).split()
"""The most frequently changed options, in this order; not every algorithm has all of them."""
GROUPS: dict[str, tuple[str, ...]] = {
    "evaluation": ("eval_every", "eval_episodes", "stop_at_return", "inspect"),
    "several-seeds": ("seeds", "jobs", "cluster"),
    "data-and-model": (
        *("data", "passes", "expert", "teacher", "reference", "start"),
        *("reward_model", "reward_caution", "exploration_bonus", "bonus_coef"),
        *("model", "device", "replay_folder", "sampler"),
    ),
    "pixels": PIXELS,
}
"""The other options of a run, as grouped in the help; options without a group come last."""


def _group(number: int, title: str, members: list[Any], said: str) -> Any:
    """A field of options that the help shows in a separate box."""
    group = dataclasses.make_dataclass(f"Group{number}", members, frozen=True)
    group.__doc__ = said
    return (
        f"group_{number}",
        Annotated[group, arg(name=title)],
        dataclasses.field(default_factory=group),
    )


def _more_options_note(algorithm: str | None) -> str:
    return (
        f"More hyper-parameters of {algorithm}; `rlbook explain {algorithm}{_trust(algorithm)}`"
        " shows where they appear in the equation."
    )


def _trust(algorithm: str | None) -> str:
    """What a command needs besides for an algorithm of your own, which is imported."""
    return " --allow-import" if ":" in str(algorithm) else ""


def _hyperparameters(algorithm: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The types of the hyper-parameters, and their (name, annotation, default) for tyro."""
    from rlbook.cli.explain import comments, default_text

    config = agent_class(algorithm, allow_import=True).Config
    kinds, meanings = typing.get_type_hints(config), comments(config)
    fields: dict[str, Any] = {}
    items = {item.name: item for item in dataclasses.fields(config)}
    for name in meanings:
        item, kind = items[name], kinds[name]
        is_sequence = typing.get_origin(kind) is tuple
        spec = text(metavar(kind), "*" if is_sequence else 1, read=None)
        option = help_line(meanings[name], printable(f"(default: {default_text(item)})"))
        fields[name] = (name, Annotated[Any, spec, option], default_text(item))
    return {name: kinds[name] for name in meanings}, fields


def _description(algorithm: str | None) -> str:
    from rlbook.cli.explain import summary

    if algorithm is not None:
        head = f"Train {algorithm} on an environment.\n\n{summary(algorithm)}"
        return "\n\n".join([head, _examples(algorithm), ENV_KEYS])
    indent = " " * (max(map(len, ALGORITHMS)) + 4)
    heads = {name: f"  {name}".ljust(len(indent)) for name in ALGORITHMS}
    listed = [fill_paragraph(summary(name), head, indent) for name, head in heads.items()]
    heading = "Algorithms (rlbook train NAME --help shows its hyper-parameters):"
    return "\n".join(
        [
            "Train an algorithm on an environment.",
            *("", _examples(None), "", ENV_KEYS, "", heading),
            *listed,
        ]
    )


ENV_KEYS = (
    "--env.KEY VALUE passes an argument to the environment, and --model.KEY VALUE configures a"
    " language model: sizes, LoRA, which parameters are trained."
)


def _examples(algorithm: str | None) -> str:
    """Commands that can be pasted."""
    if algorithm is None:
        commands = [
            "ppo Maze-v0",
            "q_learning FrozenLake-v1 --env.is_slippery false --alpha 0.5",
            "sarsa CliffWalking-v1 --seeds 5 --out runs/sarsa",
            "grpo Addition-v0 --model.adapter.r 8",
            "--resume runs/ppo-Maze-v0-0",
        ]
    else:
        example = example_of(algorithm)
        folder = "-".join(example.split()[:2])
        commands = [
            example,
            f"{example} --seeds 5 --out runs/five",
            f"--resume runs/{folder}-0{_trust(algorithm)}",
        ]
    return "\n".join(["Examples:", *(f"  rlbook train {command}" for command in commands)])
