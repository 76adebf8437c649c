"""The model and the tokenizer of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlbook.errors import RequestError
from rlbook.llm.environments.token_rows import NEW
from rlbook.llm.models.export import (
    chat_tokenizer,
    export_base,
    export_language_model,
    language_model_of,
)
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.model_folder import has_weights
from rlbook.llm.models.reward_head import CompletionReward
from rlbook.llm.models.starting import starting_model
from rlbook.networks.model_spec import FOUR_BIT, ModelSpec
from rlbook.recipes.jobs.job import Job
from rlbook.runs.run import load_policy
from rlbook.seeding import rng_for


def write_model(job: Job) -> None:
    """Writes tokenizer/, and model/ unless the run starts from the weights of a named folder."""
    spec = job.request.options.model or ModelSpec()
    if isinstance(spec.adapter, str):
        raise RequestError(
            f"a job begins with a model or with a new adapter; merge {spec.adapter} into its model"
            " first (rlbook export --merge)"
        )
    if spec.dtype == FOUR_BIT:
        job.fields.left_out["model.dtype"] = "4bit: load the model in four bits there"
    chat_tokenizer(job.env).save_pretrained(str(job.folder / "tokenizer"))
    begun = job.begun is not None or job.request.options.start is not None
    named = job.env.model not in (None, NEW) and has_weights(job.env.model)
    scores = job.request.agent.prefers and job.target != "llamafactory"  # with a head of its own
    if named and not begun and not scores:
        job.model = str(Path(str(job.env.model)).resolve())
        return
    network = language_model_of(job.run.agent)
    assert network is not None  # of a token environment, and of an agent that reads one
    if isinstance(network, CompletionReward) and job.target == "llamafactory":
        if begun:
            job.fields.left_out["checkpoint"] = (
                "training begins with the weights of the run's start"
            )
        rng = rng_for(job.request.seed, "initialisation")
        model = starting_model(
            job.rules.task,
            job.env.model,
            rng,
            spec.config,
            codec=job.rules.codec,
            context=job.rules.context_length,
        )
        network = LanguageModelPolicy(model, critic=False)  # it adds a head of its own
    export_base(network, job.env, job.folder / "model")


def model_settings(job: Job) -> ModelSpec:
    """The run's model settings, and which of them the job leaves out."""
    spec = job.request.options.model or ModelSpec()
    if spec.trainable not in (None, "all", "adapter"):
        job.fields.left_out["model.trainable"] = f"{spec.trainable}: all weights are trained"
    return spec


def adapter_settings(job: Job) -> dict[str, Any] | None:
    """The settings of the run's new LoRA, by peft's names; None without one."""
    adapter = model_settings(job).adapter
    if adapter is None:
        return None
    assert not isinstance(adapter, str)
    settings = {"r": 8, "lora_alpha": 8, "target_modules": "all-linear", **adapter}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()
    }


def write_reward_model(job: Job) -> str | None:
    """Writes reward_model/, the run's reward model as a classifier of one label; its name, or None
    without one."""
    named = job.request.options.reward_model
    if named is None:
        return None
    if not isinstance(named, str | Path):
        raise RequestError("the reward model of a job is the folder of a run")
    agent: Any = load_policy(named, allow_import=job.request.recipe.allow_import).agent
    network = language_model_of(agent)
    if network is None:
        raise RequestError(f"{named} holds no single reward model on texts, which a job could use")
    folder = job.folder / "reward_model"
    export_language_model(network, job.env, folder, folder, merge=False)
    return "reward_model"
