"""`rlbook.train`: an algorithm, an environment, and everything that may be said about the run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from rlbook.agent import Agent
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvLike
from rlbook.runs.options import NAMES, UNWRITTEN, RunOptions
from rlbook.runs.request import Request
from rlbook.runs.run import Run, load
from rlbook.runs.storage.folder import check_free


def train(
    algorithm: str | type[Agent],
    env: EnvLike,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    allow_import: bool = False,
    env_kwargs: dict[str, Any] | None = None,
    on_report: Callable[[Run], None] | None = None,
    **settings: Any,
) -> Run:
    """Trains an algorithm on an environment.

    Args:
        algorithm: a name from `rlbook.algorithms()`, "module:Class", or a class derived from
            `rlbook.Agent`.
        env: an environment id, an environment made by `rlbook.make` or `gymnasium.make`, or a
            `TabularMDP`: episodes are then drawn from it, at most 1 000 steps long, and a planner
            plays none unless `eval_every` asks for it.
        folder: where to keep config, metrics and checkpoints; None keeps nothing.
        resume: continue the run in `folder` where its last checkpoint stands, instead of starting a
            new one; what else is given must be what it was started with.
        allow_import: let an id or a name of the form "module:Name" import that module.
        env_kwargs: arguments for an environment given by its id.
        on_report: called after each report with the run, for progress bars.
        settings: run options, the fields of `rlbook.runs.options.RunOptions` (steps, episodes,
            passes, seed, num_envs, eval_every, eval_episodes, stop_at_return, workers, inspect,
            data, expert, teacher, reference, start, reward_model, reward_caution, model, device),
            and hyper-parameters, the fields of the algorithm's config. Without steps, episodes and
            passes: a sensible budget for the pair.

    Returns:
        The finished run: `run.agent`, `run.metrics`, `run.folder`, `run.steps`,
            `run.episode_returns`, `run.episode_lengths`.

    Raises:
        RequestError: the request was wrong; nothing was written.
        TrainingError: training failed; the last good checkpoint stays.
    """
    options = {name: settings.pop(name) for name in NAMES if name in settings}
    request = Request.build(
        algorithm,
        env,
        **options,
        allow_import=allow_import,
        env_kwargs=env_kwargs,
        hyperparameters=settings,
    )
    if not resume:
        return _start_run(request, folder).train(on_report=on_report)
    if folder is None:
        raise RequestError("resume needs the folder of the run to continue")
    own = {"algorithm": algorithm} if isinstance(algorithm, type) else {}
    data = {} if isinstance(options.get("data"), str | Path | None) else {"data": options["data"]}
    where = None if isinstance(env, str) else env
    changes = {name: options.get(name) for name in UNWRITTEN}
    run = load(Path(folder), allow_import=allow_import, env=where, **changes, **own, **data)
    given = [name for name, value in options.items() if value is not None and name not in data]
    request.check_continues(run.request, [*given, *settings, *(env_kwargs or {})])
    return run.resume(on_report=on_report)


def _start_run(request: Request, folder: str | Path | None) -> Run:
    """A run that is ready to train, and owns its folder if there is one."""
    if folder is None and request.options.inspect:
        raise RequestError(
            f"inspect {request.options.inspect} records into the run's folder, and there is none;"
            " give folder"
        )
    if folder is None:
        return Run(request).open()
    check_free(Path(folder))
    run = Run(request).open()
    run.claim(Path(folder))
    return run


def _signature() -> inspect.Signature:
    """What `help(rlbook.train)` shows: the run options by name, too."""
    shown = inspect.signature(train)
    *named, rest = shown.parameters.values()
    kind = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(item.name, kind, default=None, annotation=item.type)
        for item in fields(RunOptions)
    ]
    return shown.replace(parameters=[*named, *options, rest.replace(name="hyperparameters")])


train.__signature__ = _signature()  # type: ignore[attr-defined]
