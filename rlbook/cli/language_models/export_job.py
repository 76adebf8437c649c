"""`rlbook export --job`: writes the job, and summarises it."""

from __future__ import annotations

import contextlib
import shlex
import sys
import textwrap
from typing import Any

from rlbook.cli.options import Export
from rlbook.cli.output import Result, shell_path, width
from rlbook.errors import RequestError


def run_export(options: Export) -> Result:
    """Writes the job. Returns the facts, and what to print.

    Raises:
        RequestError: one sentence; nothing was written.
    """
    for name, given in (("merge", options.merge), ("shard-size", options.shard_size)):
        if given:
            raise RequestError(f"--{name} applies to a model's folder, but --job writes a job")
    from rlbook.recipes.jobs.write_job import write_job

    with contextlib.redirect_stdout(sys.stderr):  # what an environment prints is not a result
        facts = write_job(
            options.folder,
            options.out,
            options.job,
            checkpoint=options.checkpoint,
            allow_import=options.allow_import,
        )
    return facts, job_summary(facts)


def job_summary(facts: dict[str, Any]) -> str:
    """What was written, what was left out, and the command that runs it."""
    head = f"{facts['method']}: {facts['algorithm']} on {facts['env']}, in {facts['folder']}"
    longest = max(map(len, facts["files"]))
    files = "\n".join(f"  {name:<{longest}}  {what}" for name, what in facts["files"].items())
    left = "\n".join(
        textwrap.fill(f"left out: {name} {why}", width(), subsequent_indent="  ")
        for name, why in facts["left_out"].items()
    )
    command = f"  cd {shlex.quote(shell_path(facts['folder']))} && {facts['command']}"
    return "\n\n".join(part for part in (head, files, left, command) if part)
