"""`rlbook export --job`: writes the training of a run or a config file as a job for another
library."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlbook.checks import did_you_mean
from rlbook.errors import RequestError, system_reason
from rlbook.evaluation.targets import load_target
from rlbook.recipes.jobs.job import TARGETS, Job, WrittenJob
from rlbook.recipes.jobs.job_fields import JobFields
from rlbook.recipes.jobs.job_model import write_model
from rlbook.recipes.jobs.llama_factory_job import LLAMA_FACTORY
from rlbook.recipes.jobs.readme import readme
from rlbook.recipes.jobs.trl_job import TRL
from rlbook.recipes.jobs.verl_job import VERL
from rlbook.registry import agent_class, name_of
from rlbook.runs.request import Request
from rlbook.runs.run import Run
from rlbook.runs.storage.files import read_file
from rlbook.runs.storage.folder import CONFIG_LIMIT, read_config

Writer = Callable[[Job], WrittenJob]
METHODS: dict[str, dict[str, Writer]] = {"trl": TRL, "verl": VERL, "llamafactory": LLAMA_FACTORY}
"""Target → algorithm → the function that writes its files."""


def write_job(
    source: str | Path,
    out: str | Path,
    target: str,
    *,
    checkpoint: int | str | None = None,
    allow_import: bool = False,
) -> dict[str, Any]:
    """Writes a folder that trains with the same method in another library; implements
    `rlbook export --job`.

    Args:
        source: a run's folder, or a config file such as its config.yaml.
        out: a folder that is not there yet.
        target: "trl", "verl" or "llamafactory".
        checkpoint: of a run; the job begins with its weights. None: with those that the run began
            with.
        allow_import: let a reward or an environment import a module.

    Returns:
        Facts: the method, the files, and what was left out.

    Raises:
        RequestError: one sentence; nothing was written.
    """
    out = Path(out)
    if target not in TARGETS:
        hint = did_you_mean(target, TARGETS)
        raise RequestError(f"job must be one of {', '.join(TARGETS)}, got {target!r}{hint}")
    if os.path.lexists(out):
        raise RequestError(f"{out} exists already; name a new folder")
    request, run = _find_run(Path(source), checkpoint, allow_import)
    if "environment" not in request.agent.sources() or request.options.data is not None:
        request = request.without_rewards()  # nothing that it writes is rewarded
    write = _writer_of(target, request)
    part = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        part.mkdir(parents=True)
        job = _job_of(target, request, run, part, out)
        facts = _write_files(job, write, str(source))
        part.rename(out)
    except OSError as error:
        raise RequestError(f"{out} cannot be written ({system_reason(error)})") from None
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(part)
    return facts


def _find_run(
    source: Path, checkpoint: int | str | None, allow_import: bool
) -> tuple[Request, Run | None]:
    """The request in a folder or a file, and the run at a checkpoint if one was requested."""
    if source.is_dir() and checkpoint is not None:
        run = load_target(source, None, {"checkpoint": checkpoint, "allow_import": allow_import})
        return run.request, run
    if source.is_dir():
        return Request.from_yaml(read_config(source)[0], allow_import=allow_import), None
    if checkpoint is not None:
        raise RequestError(f"checkpoint applies to a run's folder, but {source} is not one")
    try:
        text = read_file(source, CONFIG_LIMIT, follow=True).decode()
    except FileNotFoundError:
        raise RequestError(f"{source} is neither a run's folder nor a config file") from None
    except (OSError, ValueError) as error:
        raise RequestError(f"{source} cannot be read ({' '.join(str(error).split())})") from None
    return Request.from_yaml(text, allow_import=allow_import), None


def _writer_of(target: str, request: Request) -> Writer:
    """The function that writes the target's form of a method.

    Raises:
        RequestError: it has none; the sentence names those that it has.
    """
    known = {agent_class(name): write for name, write in METHODS[target].items()}
    if request.agent not in known:
        names = ("sft" if name == "behavior_cloning" else name for name in map(name_of, known))
        raise RequestError(
            f"{TARGETS[target]} has no {request.algorithm} that a job could be written for (it has:"
            f" {', '.join(names)})"
        )
    return known[request.agent]


def _job_of(target: str, request: Request, run: Run | None, folder: Path, home: Path) -> Job:
    made = request.recipe.make().unwrapped
    if getattr(made, "policy_kind", None) != "language_model":
        raise RequestError(
            f"{request.recipe.name} is not a token environment, and {TARGETS[target]} trains language"
            " models alone"
        )
    env: Any = made
    kwargs = {**request.recipe.kwargs, "split": "held_out"}
    held_out = replace(request.recipe, kwargs=kwargs)
    fields = JobFields(request.config)
    fields.ignore("hidden_sizes")
    return Job(
        target,
        request,
        env,
        held_out.make().unwrapped,
        fields,
        folder,
        home,
        run,
    )


def _write_files(job: Job, write: Writer, source: str) -> dict[str, Any]:
    write_model(job)
    written = write(job)
    job.fields.list_unread(job.name)
    _leave_options(job)
    job.write("README.md", readme(job, written, source))
    return {
        "source": source,
        "job": job.target,
        "algorithm": job.request.algorithm,
        "env": job.request.recipe.name,
        "method": written.method,
        "files": {
            **written.files,
            **dict.fromkeys(job.modules, "what the rewards run"),
            "README.md": "how to run it, and what was left out",
        },
        "left_out": dict(sorted(job.fields.left_out.items())),
        "command": written.one_gpu,
        "folder": str(job.home),
    }


def _leave_options(job: Job) -> None:
    """Lists the run's options without a counterpart in the job."""
    options, left = job.request.options, job.fields.left_out
    if options.stop_at_return is not None:
        left["stop_at_return"] = f"{options.stop_at_return:g}: the job trains for its whole budget"
    for name in ("expert", "teacher", "reward_caution"):
        if getattr(options, name) not in (None, 0.0):
            left[name] = f"{getattr(options, name)}: {job.name} has no counterpart"
