"""`rlbook.train`: trains an algorithm on an environment, with all options of a run."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rlbook.agent import Agent
from rlbook.checks import as_path, check_arguments
from rlbook.errors import RequestError
from rlbook.hyperparameters import field_values
from rlbook.interaction.environments import EnvLike, environments
from rlbook.interaction.process_group import is_follower, process_group
from rlbook.networks.model_spec import OwnNetwork
from rlbook.registry import ALGORITHMS, ALIASES, agent_class
from rlbook.runs.callbacks import Callbacks
from rlbook.runs.options import NAMES, UNWRITTEN, RunOptions
from rlbook.runs.presets.named_presets import named_preset
from rlbook.runs.request import Request
from rlbook.runs.run import Run, load
from rlbook.runs.storage.folder import check_free
from rlbook.seeding import fresh_seed


@check_arguments('rlbook.train("ppo", "CartPole-v1"); `rlbook list` shows what trains where')
def train(
    algorithm: str | type[Agent],
    env: EnvLike,
    *further: object,
    out: str | Path | None = None,
    resume: bool = False,
    allow_import: bool = False,
    env_kwargs: dict[str, Any] | None = None,
    preset: str | None = None,
    config: object = None,
    callbacks: Sequence[object] | object = (),
    on_report: Callable[[Run], object] | None = None,
    on_episode: Callable[[Run], object] | None = None,
    on_evaluation: Callable[[Run], object] | None = None,
    track: str | Sequence[str] = (),
    quiet: bool | None = None,
    **settings: Any,
) -> Run:
    """Trains an algorithm on an environment.

    Args:
        algorithm: a name from `rlbook.algorithms()`, "module:Class", or a class derived from
            `rlbook.Agent`.
        env: an environment id, an environment made by `rlbook.make` or `gymnasium.make`, a class or
            a function that makes one from `env_kwargs`, or a `TabularMDP`: episodes are then drawn
            from it, at most 1 000 steps long, and a planner plays none unless `eval_every` asks for
            it.
        out: the folder where config, metrics and checkpoints are kept; None keeps nothing.
        resume: continue the run in `out` where its last checkpoint stands, instead of starting a
            new one; what else is given must be what it was started with.
        allow_import: let an id or a name of the form "module:Name" import that module.
        env_kwargs: arguments for an environment given by its id, its class or a function.
        preset: the name of a published recipe's settings, such as "gsm8k"
            (`rlbook train --help` lists them), in place of the algorithm's own; what is
            given beside it counts more.
        config: all hyper-parameters at once, such as `PPO.Config(clip=0.1)`, in place of the
            preset's; what is named beside it counts more.
        callbacks: an object, or several, with methods `on_report`, `on_episode` or `on_evaluation`, which are
            called as the three functions below.
        on_report: called with the run after each line of its log, `run.metrics[-1]`.
        on_episode: called with the run after each training episode, whose return is
            `run.episode_returns[-1]`. A table is then trained step by step, which takes longer.
        on_evaluation: called with the run after each evaluation, whose result is
            `run.metrics[-1]["eval_return"]`. Each of the three ends the run by returning "stop": it
            is then evaluated and saved as at its end.
        track: "tensorboard", "wandb", or both in a list: each line of the log goes there as well;
            their files lie in `out`, which has to be given.
        quiet: True shows nothing, False a progress bar and a closing line on standard error; None
            shows them in a notebook only, and there not if RLBOOK_QUIET is set.
        settings: run options, the fields of `rlbook.runs.options.RunOptions` (steps, episodes,
            passes, seed, num_envs, eval_every, eval_episodes, stop_at_return, workers, inspect,
            data, expert, teacher, reference, start, reward_model, reward_caution,
            exploration_bonus, bonus_coef, model, device, replay_folder, sampler; frame_stack,
            grayscale, resize, max_and_skip, reward_clip, noop_starts, episodic_life,
            read_masks),
            and hyper-parameters, the fields of the algorithm's config. Without steps, episodes and
            passes: a sensible budget for the pair. Without a seed: 0; a seed that is None is drawn
            from the operating system's entropy, and stands in the notes and in config.yaml.

    Returns:
        The finished run: `run.agent`, `run.metrics`, `run.folder`, `run.steps`,
            `run.episode_returns`, `run.episode_lengths`.

    Raises:
        RequestError: the request was wrong; nothing was written.
        TrainingError: training failed; the last good checkpoint stays.
    """
    if further:
        raise RequestError(
            "train takes an algorithm and an environment; all else is named, such as steps=10_000,"
            f" got {further[0]!r:.60}"
        )
    out = None if out is None else as_path("out", out)
    options = {name: settings.pop(name) for name in NAMES if name in settings}
    draws_seed = options.get("seed", 0) is None and not resume  # a resumed run has its own
    if draws_seed:
        options["seed"] = _shared_seed()
    settings = config_settings(algorithm, config, allow_import=allow_import) | settings
    if preset is not None:
        named = named_preset(preset).for_run(algorithm, env, options, allow_import=allow_import)
        options, settings = named.options, named.hyperparameters | settings
        env_kwargs = named.env_kwargs | (env_kwargs or {})
    hooks = Callbacks.collect(
        callbacks, on_report=on_report, on_episode=on_episode, on_evaluation=on_evaluation
    )
    if track and out is None:
        raise RequestError(
            f"track {track!r} writes into the run's folder, but there is none; give out"
        )
    request = Request.build(
        algorithm,
        env,
        **options,
        allow_import=allow_import,
        env_kwargs=env_kwargs,
        hyperparameters=settings,
    )
    if not resume:
        with _open_trackers(track, out) as log:
            run = _start_run(request, out)
            if draws_seed:
                run.notes += (f"seed: {request.seed}, drawn at random because seed was None",)
            return run.complete(replace(hooks, on_report=(*hooks.on_report, *log)), quiet=quiet)
    if out is None:
        raise RequestError("resume needs out, the folder of the run to continue")
    own: dict[str, Any] = {"algorithm": algorithm} if isinstance(algorithm, type) else {}
    network = getattr(request.options.model, "network", None)
    if isinstance(network, OwnNetwork):
        own["network"] = network.make
    data = {} if isinstance(options.get("data"), str | Path | None) else {"data": options["data"]}
    where = None if isinstance(env, str) else env
    changes = {name: options.get(name) for name in UNWRITTEN}
    run = load(Path(out), allow_import=allow_import, env=where, **changes, **own, **data)
    given = [name for name, value in options.items() if value is not None and name not in data]
    request.check_continues(run.request, [*given, *settings, *(env_kwargs or {})])
    with _open_trackers(track, out) as log:
        hooks = replace(hooks, on_report=(*hooks.on_report, *log))
        return run.resume(callbacks=[hooks], quiet=quiet)


@contextlib.contextmanager
def _open_trackers(
    names: str | Sequence[str], folder: str | Path | None
) -> Iterator[list[Callable[[Run], object]]]:
    """The destinations of reports besides the log: none if no tracker is named, and in all
    processes of a run but one."""
    if not names or is_follower():
        yield []
        return
    from rlbook.runs.trackers import track

    assert folder is not None
    with track([names] if isinstance(names, str) else names, Path(folder)) as log:
        yield [log]


def _shared_seed() -> int:
    """A fresh seed, the same in all processes of a run."""
    group = process_group()
    return fresh_seed() if group is None else group.run_on_leader(fresh_seed)


def config_settings(
    algorithm: str | type[Agent], config: object, *, allow_import: bool = False
) -> dict[str, Any]:
    """The hyper-parameters of a config object, by name; none where there is no config.

    Raises:
        RequestError: it is another algorithm's.
    """
    if config is None:
        return {}
    kind = (
        algorithm
        if isinstance(algorithm, type)
        else agent_class(algorithm, allow_import=allow_import)
    )
    if type(config) is not kind.Config:
        hint = "; give its entries as arguments: **config" if isinstance(config, dict) else ""
        raise RequestError(
            f"config must be a {kind.__name__}.Config, got {type(config).__qualname__}{hint}"
        )
    overridden = {name for settings in kind.presets.values() for name in settings}
    return {
        name: value
        for name, value in field_values(config).items()
        if name in overridden or value != getattr(kind.Config(), name)
    }


def _start_run(request: Request, folder: str | Path | None) -> Run:
    """A run that is ready to train, and holds its folder if there is one."""
    if request.options.data is None and "data" in request.recipe.kwargs:
        from rlbook.runs.demonstrations import check_rows  # torch, which tables do without

        check_rows(request)
    if request.options.sampler is not None:
        from rlbook.llm.serving.sampler import RemoteSampler  # torch, which tables do without

        RemoteSampler(request.options.sampler).check()
    if folder is None and request.options.inspect:
        raise RequestError(
            f"inspect {request.options.inspect} records into the run's folder, but there is "
            "none; give out"
        )
    if folder is None:
        return Run(request).open()
    if not is_follower():
        check_free(Path(folder))
    run = Run(request).open()
    run.claim(Path(folder))
    return run


def _signature() -> inspect.Signature:
    """The signature for `help(rlbook.train)`, with the run options by name."""
    shown = inspect.signature(train)
    *named, rest = (item for item in shown.parameters.values() if item.name != "further")
    kind = inspect.Parameter.KEYWORD_ONLY
    plain = {"AtLeast0": "int", "AtLeast1": "int", "Return": "float", "Switch": "bool"}
    options = [
        inspect.Parameter(
            item.name,
            kind,
            default=0 if item.name == "seed" else None,
            annotation=f"{plain[item.type]} | None" if item.type in plain else item.type,
        )
        for item in fields(RunOptions)
    ]
    return shown.replace(parameters=[*named, *options, rest.replace(name="hyperparameters")])


train.__signature__ = _signature()  # type: ignore[attr-defined]


INSIDE = re.compile(r"""\btrain\(\s*(['"])(?P<first>\w*)(?:\1(?P<rest>(?:[^()]|\([^()]*\))*))?$""")
"""The text before the cursor inside a call of `train`."""


def completions(before: str) -> list[str]:
    """The completions at a notebook's cursor inside `rlbook.train(`: names of algorithms in the
    first argument, of environments in the second, and the algorithm's hyper-parameters after them."""
    found = INSIDE.search(before)
    if found is None:
        return []
    first, rest = found["first"], found["rest"]
    if rest is None:
        return [name for name in (*ALGORITHMS, *ALIASES) if name.startswith(first)]
    second = re.fullmatch(r"""\s*,\s*['"](\w*)""", rest)
    if second is not None:
        return [name for name in environments() if name.startswith(second[1])]
    begun = re.search(r",\s*(\w*)$", rest)
    if (
        begun is None
        or (rest.count("'") + rest.count('"')) % 2
        or first not in {**ALGORITHMS, **ALIASES}
    ):
        return []
    config = agent_class(first).Config
    names = [
        item.name for item in fields(config) if item.name not in getattr(config, "refused", {})
    ]
    return [f"{name}=" for name in names if name.startswith(begun[1])]
