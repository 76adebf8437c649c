"""The settings that TRL and LLaMA-Factory share: transformers' TrainingArguments."""

from __future__ import annotations

import math
from typing import Any

from rlbook.recipes.jobs.job import Job
from rlbook.recipes.jobs.job_model import model_settings


def optimizer_arguments(job: Job) -> dict[str, Any]:
    """The optimiser, its schedule, and what is logged."""
    fields = job.fields
    rate, kind, least, warmup = fields.learning_rate()
    settings: dict[str, Any] = {
        "output_dir": "output",
        "learning_rate": rate,
        "lr_scheduler_type": "cosine_with_min_lr" if kind == "cosine" and least else kind,
        "adam_epsilon": fields.take("adam_eps"),
        "weight_decay": fields.take("weight_decay", 0.0),
        "max_grad_norm": fields.take("max_grad_norm"),
        "seed": job.request.seed,
        "bf16": model_settings(job).dtype == "bfloat16",
        "logging_steps": 1,
        "report_to": "none",
    }
    if settings["weight_decay"]:
        job.differences.append("weight decay leaves out biases and the weights of norms")
    if least:
        settings["lr_scheduler_kwargs"] = {"min_lr": least}
    steps = fields.take("warmup_steps", 0) or warmup
    if steps:
        settings["warmup_steps"] = steps
        if kind == "constant":
            settings["lr_scheduler_type"] = "constant_with_warmup"
    return settings


def batch_arguments(job: Job) -> dict[str, Any]:
    """The number of rows per gradient step, and the length of training."""
    size, micro = job.fields.take("batch_size"), job.fields.take("micro_batch_size")
    per_device = size if micro is None else math.gcd(size, micro)
    options = job.request.options
    length = (
        {"num_train_epochs": float(options.passes)}
        if options.passes is not None
        else {"max_steps": options.steps}
    )
    return {
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": size // per_device,
        **length,
    }
