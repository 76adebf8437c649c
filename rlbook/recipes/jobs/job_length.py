"""The length and the batch sizes of a job, which TRL and verl count in the same way."""

from __future__ import annotations

import math

from rlbook.recipes.jobs.job import Job


def minibatch_of(job: Job) -> tuple[int, int]:
    """The number of completions per gradient step, and how many of them are backpropagated at
    once."""
    size = job.request.num_envs
    minibatch = min(job.fields.take("batch_size") or size, size)
    if size % minibatch:
        divisor = math.gcd(size, minibatch)
        job.fields.left_out["batch_size"] = (
            f"{minibatch}: {divisor}, which divides a round's {size}"
        )
        minibatch = divisor
    micro = job.fields.take("micro_batch_size")
    return minibatch, minibatch if micro is None else math.gcd(minibatch, micro)


def count_rounds(job: Job) -> int:
    """The number of rounds of `num_envs` completions in the run's budget; for a budget of tokens,
    the smallest possible number."""
    budget, size = job.request.budget, job.request.num_envs
    if budget.episodes is not None:
        return max(1, budget.episodes // size)
    steps, most = budget.steps or 0, job.rules.max_new_tokens
    job.differences.append(
        f"the budget of {steps:,} tokens is written as rounds of {size} completions of"
        f" {most} tokens, the longest ones"
    )
    return max(1, steps // (size * most))


def constant_of(job: Job, name: str) -> float:
    """A hyper-parameter that may be a schedule here but is constant there: its first value."""
    value = job.fields.take(name, 0.0)
    if isinstance(value, int | float):
        return float(value)
    first = float(value(0.0))
    job.fields.left_out[name] = f"{value}: constant at {first:g}"
    return first


def leave_ends(job: Job) -> None:
    """Lists what ends a completion or truncates a prompt here but not there."""
    rules = job.rules
    settings = getattr(rules, "settings", None)
    if rules.stop:
        job.fields.left_out["env.stop"] = f"{list(rules.stop)}: only tokens end a completion"
    if settings is not None and settings.overlong == "left" and job.target == "trl":
        job.fields.left_out["env.overlong"] = "left: longer prompts are not cut"
    if settings is not None and settings.end_tokens:
        job.fields.left_out["env.end_tokens"] = (
            f"{list(settings.end_tokens)}: name them in the model's generation_config.json"
        )


def share_among_gpus(
    job: Job, per_device: int, accumulation: int, gpus: int = 8
) -> tuple[int, int]:
    """The rows on each of several devices, and the accumulation steps, for the same gradient step
    as on one device."""
    rows = per_device * accumulation
    here = next((n for n in range(per_device, 0, -1) if rows % (gpus * n) == 0), 1)
    steps = max(1, rows // (gpus * here))
    if gpus * here * steps != rows:
        job.differences.append(
            f"on {gpus} GPUs a step has {gpus * here * steps} rows, and here {rows}, which {gpus}"
            " does not divide"
        )
    return here, steps
