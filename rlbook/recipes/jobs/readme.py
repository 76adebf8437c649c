"""README.md of a job."""

from __future__ import annotations

import shlex

from rlbook.recipes.jobs.job import Job, WrittenJob


def readme(job: Job, written: WrittenJob, source: str) -> str:
    """The text: the files, the commands for one GPU and for eight, what was left out, and what
    differs there."""
    title = (
        f"# {written.method} of {job.name}: {job.request.algorithm} on {job.request.recipe.name}"
    )
    listed = {**written.files, **dict.fromkeys(job.modules, "what the rewards run")}
    files = "\n".join(f"| `{name}` | {what} |" for name, what in listed.items())
    left = "\n".join(f"- `{name}` {why}" for name, why in sorted(job.fields.left_out.items()))
    other = "\n".join(f"- {line}" for line in job.differences)
    model = (
        ""
        if job.model == "model"
        else f"The weights are in `{job.model}`; put your own path in its place on another machine."
    )
    cpu = ", or on a CPU with `--use_cpu true`" if job.target == "trl" else ""
    parts = [
        title,
        f"Written by `rlbook export {shlex.quote(source)} FOLDER --job {job.target}`. Nothing here"
        " needs rlbook.",
        f"| file | what it is |\n|---|---|\n{files}",
        model,
        f"## Run it\n\n```\n{written.install}\n```\n\nOn one GPU{cpu}:\n\n```\n"
        f"{written.one_gpu}\n```\n\nOn eight GPUs:\n\n```\n{written.eight_gpus}\n```",
        "## Left out\n\n" + (left or "Nothing."),
        "## Different there\n\n" + (other or "Nothing."),
    ]
    return "\n\n".join(part for part in map(str.strip, parts) if part) + "\n"
