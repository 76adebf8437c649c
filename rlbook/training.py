"""`rlbook.train`: an algorithm, an environment, and everything that may be said about the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlbook.errors import RequestError
from rlbook.runs.folder import check_free
from rlbook.runs.request import Request
from rlbook.runs.run import Run, load


def train(
    algorithm: str, env: Any, *, steps: int | None = None, episodes: int | None = None, seed: int = 0, folder: str | Path | None = None,
    num_envs: int | None = None, eval_every: int | None = None, eval_episodes: int | None = None, resume: bool = False,
    allow_import: bool = False, env_kwargs: dict[str, Any] | None = None, on_report: Callable[[Run], None] | None = None,
    **hyperparameters: Any,
) -> Run:  # fmt: skip
    """Trains an algorithm on an environment.

    Args:
        algorithm: a name from `rlbook.algorithms()`.
        env: an environment id, an environment made by `rlbook.make` or `gymnasium.make`, or a `TabularMDP`: episodes are then drawn from
            it, at most 1 000 steps long, and a planner plays none unless `eval_every` asks for it.
        steps, episodes: the budget, in environment steps or finished episodes (planners: sweeps). Neither: a sensible one for the pair.
        seed: feeds every source of randomness; the same seed gives the same bytes.
        folder: where to keep config, metrics and checkpoints; None keeps nothing.
        num_envs: streams side by side, for algorithms that take many.
        eval_every: environment steps between evaluations; 0 for none; None for ten in the run.
        eval_episodes: episodes of each evaluation.
        resume: continue the run in `folder` where its last checkpoint stands, instead of starting a new one; what else is given must be
            what it was started with.
        allow_import: let an id of the form "module:Name" import that module.
        env_kwargs: arguments for an environment given by its id.
        on_report: called after each report with the run, for progress bars.
        hyperparameters: fields of the algorithm's config.

    Returns:
        The finished run: `run.agent`, `run.metrics`, `run.folder`, `run.steps`, `run.episode_returns`.

    Raises:
        RequestError: the request was wrong; nothing was written.
        TrainingError: training failed; the last good checkpoint stays.
    """
    options = {"steps": steps, "episodes": episodes, "num_envs": num_envs, "eval_every": eval_every, "eval_episodes": eval_episodes}
    request = Request.build(
        algorithm, env, **options, seed=seed, allow_import=allow_import, env_kwargs=env_kwargs, hyperparameters=hyperparameters
    )
    if resume and folder is None:
        raise RequestError("resume needs the folder of the run to continue")
    if resume:
        run = load(Path(str(folder)), allow_import=allow_import, env=None if isinstance(env, str) else env)
        given = [name for name, value in options.items() if value is not None]
        request.check_continues(run.request, [*given, *hyperparameters, *(env_kwargs or {}), *(["seed"] if seed else [])])
        return run.resume(on_report=on_report)
    if folder is None:
        return Run(request).train(on_report=on_report)
    check_free(Path(folder))
    run = Run(request)
    run.claim(Path(folder))
    return run.train(on_report=on_report)
