"""Jobs for TRL: train.py, which trains with one of TRL's trainers, and config.yaml, its settings.

The settings are those under which TRL's loss is the run's; `tests/equivalence` compares them.
Source: TRL 1.16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import yaml

from rlbook.algorithms.policy.dpo_config import REFERENCE_FREE
from rlbook.errors import RequestError
from rlbook.recipes.jobs.job import Job, WrittenJob, count_text
from rlbook.recipes.jobs.job_length import (
    constant_of,
    count_rounds,
    leave_ends,
    minibatch_of,
    share_among_gpus,
)
from rlbook.recipes.jobs.job_model import adapter_settings, model_settings, write_reward_model
from rlbook.recipes.jobs.job_rows import (
    Prompt,
    answer_rows,
    example_rows,
    labelled_rows,
    pair_rows,
    reference_rows,
    write_json_lines,
)
from rlbook.recipes.jobs.reward_file import write_rewards
from rlbook.recipes.jobs.trainer_arguments import batch_arguments, optimizer_arguments

VERSION = "1.16.0"
SCRIPT = '''"""{title} with TRL's {trainer}: what `rlbook train {algorithm} {env}` does.

Written by `rlbook export --job trl`; config.yaml holds the settings, and any of them may be given
on the command line: python train.py --max_steps 2
"""

import sys
from pathlib import Path

from datasets import load_dataset
{imports}
from transformers import AutoTokenizer
{classes}
{rewards}
HERE = Path(__file__).resolve().parent
MODEL = {model}


def main(arguments=()):
    """Trains, and writes the model into output_dir. Returns the trainer."""
    parser = TrlParser({config})
    (settings,) = parser.parse_args_and_config(["--config", str(HERE / "config.yaml"), *arguments])
    rows = load_dataset(
        "json", data_files={{name: str(HERE / f"{{name}}.jsonl") for name in {splits}}}
    )
    tokenizer = AutoTokenizer.from_pretrained(HERE / "tokenizer")
    trainer = {trainer}(
        model=MODEL,
        args=settings,
        train_dataset=rows["train"],
        eval_dataset={evaluated},
        processing_class=tokenizer,
{more}    )
    trainer.train()
    trainer.save_model()
    return trainer


if __name__ == "__main__":
    main(sys.argv[1:])
'''


def write_sft(job: Job) -> WrittenJob:
    """`behavior_cloning` as SFTTrainer."""
    fields = job.fields
    fields.ignore("demonstrations")
    fields.leave("temperature", "the loss has the temperature 1", without_effect=1.0)
    fields.leave("average", "the loss is the mean over tokens", without_effect="token")
    settings = _optimizer(job) | batch_arguments(job)
    packing = fields.take("packing")
    if packing is not None:
        settings |= {"packing": True}
    settings |= {"completion_only_loss": True, "max_length": packing, "loss_type": "nll"}
    return _write(job, "SFT", "supervised fine-tuning", settings, _answers(job))


def write_dpo(job: Job) -> WrittenJob:
    """`dpo` on recorded pairs as DPOTrainer."""
    fields = job.fields
    if not job.from_rows:
        raise RequestError(
            "dpo without data makes pairs from its own episodes, but TRL's DPO learns from "
            "recorded ones; give data"
        )
    if job.request.options.reference is not None:
        fields.left_out["reference"] = "the reference is the model that training begins with"
    if fields.values["preference_loss"] == "kto":
        return _write_kto(job)
    if fields.values["preference_loss"] in REFERENCE_FREE:
        return _write_without_reference(job)
    fields.ignore("group_size", "epochs", "reference_period", "simpo_margin", "good_weight")
    fields.leave("temperature", "the loss has the temperature 1", without_effect=1.0)
    losses = {
        "sigmoid": "sigmoid",
        "ipo": "ipo",
        "hinge": "hinge",
        "robust": "robust",
        "exo": "exo_pair",
        "apo_zero": "apo_zero",
        "apo_down": "apo_down",
        "kto": "kto",
    }
    loss = fields.translate("preference_loss", losses, "TRL's DPO")
    if fields.take("per_step"):
        loss = {"sigmoid": "sigmoid_norm", "ipo": "ipo"}.get(loss, loss)
        if loss not in ("sigmoid_norm", "ipo"):
            fields.left_out["per_step"] = f"True: TRL averages over tokens with sigmoid, not {loss}"
    elif loss == "ipo":
        fields.left_out["per_step"] = "False: TRL's ipo always averages over tokens"
    smoothing = fields.take("label_smoothing")
    if loss in ("robust", "exo_pair"):
        settings = {"label_smoothing": smoothing}
    else:
        settings = {}
        if smoothing:
            fields.left_out["label_smoothing"] = f"{smoothing}: TRL's {loss} has none"
    settings |= {"beta": fields.take("beta"), "loss_type": [loss], "max_length": None}
    nll = fields.take("nll_coef")
    if nll:
        settings |= {"loss_type": [loss, "sft"], "loss_weights": [1.0, nll]}
    rows = {"train": _pairs(job)}
    return _write(job, "DPO", "DPO", _optimizer(job) | batch_arguments(job) | settings, rows)


def _write_without_reference(job: Job) -> WrittenJob:
    """`dpo` with the loss orpo or simpo, as ORPOTrainer or CPOTrainer, which use no reference; both
    are among TRL's experimental trainers."""
    fields = job.fields
    loss = fields.take("preference_loss")
    fields.ignore("group_size", "epochs", "reference_period", "good_weight", "label_smoothing")
    fields.ignore("per_step")  # both always average over tokens
    fields.leave("temperature", "the loss has the temperature 1", without_effect=1.0)
    settings = _optimizer(job) | batch_arguments(job) | {"beta": fields.take("beta")}
    # where none is given, these two cut texts after 512 tokens
    settings |= {"max_length": job.rules.codec.limit}
    coef, margin = fields.take("nll_coef"), fields.take("simpo_margin")
    if coef:
        job.differences.append(
            "the likelihood of the better answer takes in that of its prompt, and so its mean is over"
            " the tokens of both"
        )
    if loss == "simpo":
        settings |= {"loss_type": "simpo", "simpo_gamma": margin, "cpo_alpha": coef}
        return _write(
            job, "CPO", "SimPO", settings, {"train": _pairs(job)}, package="trl.experimental.cpo"
        )
    if coef != 1.0:
        fields.left_out["nll_coef"] = f"{coef}: 1 in TRL's ORPO"
    return _write(
        job, "ORPO", "ORPO", settings, {"train": _pairs(job)}, package="trl.experimental.orpo"
    )


def _write_kto(job: Job) -> WrittenJob:
    """`dpo` with the loss kto, on answers that are labelled good or bad."""
    fields = job.fields
    fields.ignore("preference_loss", "group_size", "epochs", "reference_period", "simpo_margin")
    fields.leave("temperature", "the loss has the temperature 1", without_effect=1.0)
    fields.leave("per_step", "log-probabilities are summed", without_effect=False)
    fields.leave("nll_coef", "TRL's KTO has none", without_effect=0.0)
    fields.ignore("label_smoothing")
    settings = (
        _optimizer(job) | batch_arguments(job) | {"beta": fields.take("beta"), "max_length": None}
    )
    settings |= {"desirable_weight": fields.take("good_weight"), "undesirable_weight": 1.0}
    job.differences.append("batch_size counts answers, and here pairs where the data are pairs")
    rows = ({**_row(*row[:2], "completion"), "label": row.good} for row in labelled_rows(job))
    return _write(job, "KTO", "KTO", settings, {"train": rows})


def write_reward_training(job: Job) -> WrittenJob:
    """`reward_model` as RewardTrainer."""
    fields = job.fields
    fields.ignore("walks")
    fields.leave("members", "one model is trained", without_effect=1)
    fields.leave("held_out", "all rows are trained on", without_effect=0.0)
    margin = fields.take("margin")
    settings = _optimizer(job) | batch_arguments(job)
    settings |= {"center_rewards_coefficient": fields.take("center_coef") or None}
    settings |= {"max_length": None}

    def rows() -> Iterator[dict[str, Any]]:
        for row in _pairs(job, margins=True):
            yield row | {"margin": row["margin"] or margin}

    return _write(job, "Reward", "a reward model", settings, {"train": rows()})


def write_grpo(job: Job) -> WrittenJob:
    """`grpo` and its relatives as GRPOTrainer or RLOOTrainer."""
    fields, values = job.fields, job.fields.values
    if job.from_rows:
        raise RequestError("grpo on recorded groups has no counterpart in TRL; leave out data")
    if values["episode_reward"] is not None:
        raise RequestError(
            f"episode_reward {values['episode_reward']!r} has no counterpart in TRL, whose "
            "rewards have no access to the policy"
        )
    rloo = values["baseline"] == "leave-one-out"
    settings = _optimizer(job) | _rounds(job) | (_rloo(job) if rloo else _grpo(job))
    fields.ignore("top_share", "top", "score_temperatures", "held_out")
    settings |= {
        "num_generations": fields.take("group_size"),
        "num_generations_eval": 1,
        "max_completion_length": job.rules.max_new_tokens,
        "temperature": fields.take("temperature"),
        "top_k": 0,
        **_clips(job, settings.get("loss_type")),
        "mask_truncated_completions": fields.take("mask_truncated"),
    }
    arguments = dict(getattr(job.rules.codec, "arguments", {}))
    if arguments:
        settings["chat_template_kwargs"] = arguments
    leave_ends(job)
    model = write_reward_model(job)
    settings["reward_weights"] = write_rewards(job, model)
    job.differences.append("prompts are taken in a shuffled order, without repetition in a pass")
    rows = {
        "train": example_rows(job.rules),
        "held_out": example_rows(job.held_out.rules),
    }
    kind, title = ("RLOO", "RLOO") if rloo else ("GRPO", "GRPO")
    return _write(job, kind, title, settings, rows, rewards="rewards.FUNCTIONS")


def _clips(job: Job, loss_type: str | None) -> dict[str, Any]:
    """The bounds of the ratio, or of CISPO's weight, whose cap TRL gives itself and not above 1."""
    clip, high = constant_of(job, "clip"), job.fields.take("clip_high")
    if loss_type == "cispo":
        high = 1.0 + (clip if high is None else high)
        if clip < 1.0:
            job.fields.left_out["clip"] = f"{clip}: TRL's cispo has no lower bound"
    return {"epsilon": clip, "epsilon_high": high}


def _grpo(job: Job) -> dict[str, Any]:
    fields = job.fields
    fields.translate("baseline", {"mean": None}, "TRL's GRPO")
    fields.translate("credit", {"return": None}, "TRL's GRPO")
    ratio = fields.translate(
        "ratio", {"token": "token", "sequence": "sequence", "cispo": "cispo"}, "TRL"
    )
    scale = fields.translate("scale", {"std": "group", "batch": "batch", "none": "none"}, "TRL")
    average = fields.take("average")
    kind = {"token": "dapo", "sequence": "grpo", "constant": "dr_grpo"}[average]
    divisor, most = fields.take("average_divisor"), job.rules.max_new_tokens
    if average == "constant" and divisor != most:
        fields.left_out["average_divisor"] = (
            f"{divisor}: TRL divides by max_completion_length {most}"
        )
    settings: dict[str, Any] = {"scale_rewards": scale, "loss_type": kind}
    if ratio == "cispo":
        settings["loss_type"] = "cispo"
        if average != "token":
            fields.left_out["average"] = f"{average}: TRL's cispo is a mean over tokens"
    else:
        settings |= {"importance_sampling_level": ratio, "delta": fields.take("dual_clip")}
    fields.ignore("dual_clip")
    settings |= {"entropy_coef": constant_of(job, "entropy_coef")} | _penalty(job)
    fields.leave("importance_cap", "the sampler's weights are the learner's")
    fields.leave("refill", "groups of equal returns stay", without_effect=1)
    fields.leave("min_spread", "no group is dropped", without_effect=0.0)
    fields.leave("advantage_clip", "advantages are not clipped")
    fields.ignore("importance_of")
    return settings


def _penalty(job: Job) -> dict[str, Any]:
    """The KL penalty in the loss of GRPO."""
    fields, coef = job.fields, constant_of(job, "kl_coef")
    where, estimator = fields.take("kl_in"), fields.take("kl_estimator")
    fields.leave("kl_band", "β stays as it is")
    fields.leave("kl_clamp", "TRL has none")
    fields.ignore("kl_factor", "kl_coef_min", "kl_coef_max")
    if job.request.options.reference is not None:
        fields.left_out["reference"] = "the reference is the model that training begins with"
    if coef == 0.0:
        return {"beta": 0.0}
    if where == "reward":
        raise RequestError(
            "TRL's GRPO has the KL penalty in the loss, not in the reward; set kl_in to loss"
        )
    if estimator != "k3":
        fields.left_out["kl_estimator"] = f"{estimator}: TRL's GRPO has k3"
    return {"beta": coef, "use_bias_correction_kl": False}


def _rloo(job: Job) -> dict[str, Any]:
    fields = job.fields
    fields.ignore("baseline")  # by which this trainer was chosen
    wanted = {"scale": "none", "ratio": "product", "average": "sequence", "credit": "return"}
    for name, value in wanted.items():
        fields.translate(name, {value: None}, "TRL's RLOO")
    coef = constant_of(job, "kl_coef")
    where, estimator = fields.take("kl_in"), fields.take("kl_estimator")
    if coef and (where, estimator) != ("reward", "k1"):
        raise RequestError(
            f"TRL's RLOO has the KL penalty k1 in the reward, got kl_estimator {estimator!r} in the"
            f" {where}"
        )
    fields.ignore("average_divisor", "importance_of", "kl_factor", "kl_coef_min", "kl_coef_max")
    for name, free in (("entropy_coef", 0.0), ("dual_clip", None), ("importance_cap", None)):
        fields.leave(name, "TRL's RLOO has none", without_effect=free)
    fields.leave("kl_clamp", "TRL's RLOO has none")
    for name, free in (("refill", 1), ("min_spread", 0.0), ("advantage_clip", None)):
        fields.leave(name, "TRL's RLOO has none", without_effect=free)
    fields.leave("kl_band", "β stays as it is")
    return {"beta": coef, "normalize_advantages": False}


def _optimizer(job: Job) -> dict[str, Any]:
    dtype = model_settings(job).dtype
    return optimizer_arguments(job) | {
        "gradient_checkpointing": False,
        "model_init_kwargs": {"dtype": dtype if dtype != "4bit" else "bfloat16"},
    }


def _rounds(job: Job) -> dict[str, Any]:
    """The number of completions per round and gradient step, and the length of training."""
    size, epochs = job.request.num_envs, job.fields.take("epochs")
    minibatch, per_device = minibatch_of(job)
    updates = count_rounds(job) * epochs * (size // minibatch)
    every = max(1, updates // 10)
    return {
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": minibatch // per_device,
        "steps_per_generation": size // per_device,
        "num_iterations": epochs,
        "max_steps": updates,
        "save_steps": every,
        "eval_strategy": "steps",
        "eval_steps": every,
        "per_device_eval_batch_size": per_device,
    }


def _row(prompt: Prompt, text: str, name: str) -> dict[str, Any]:
    """A prompt with an answer under its column's name, both as texts or both as messages."""
    if isinstance(prompt, str):
        return {"prompt": prompt, name: text}
    return {"prompt": prompt, name: [{"role": "assistant", "content": text}]}


def _answers(job: Job) -> Mapping[str, Iterable[dict[str, Any]]]:
    train = (_row(*row, "completion") for row in answer_rows(job))
    rows: dict[str, Iterable[dict[str, Any]]] = {"train": train}
    if not job.from_rows:
        held_out = reference_rows(job.held_out.rules)
        rows["held_out"] = (_row(*row, "completion") for row in held_out)
    return rows


def _pairs(job: Job, *, margins: bool = False) -> Iterator[dict[str, Any]]:
    for row in pair_rows(job):
        chosen = _row(row.prompt, row.chosen, "chosen")
        found = chosen | _row(row.prompt, row.rejected, "rejected")
        yield found | ({"margin": row.margin} if margins else {})


def _write(
    job: Job,
    kind: str,
    title: str,
    settings: dict[str, Any],
    rows: Mapping[str, Iterable[dict[str, Any]]],
    *,
    rewards: str | None = None,
    package: str = "trl",
) -> WrittenJob:
    """Writes the rows, config.yaml and train.py; the trainer is in `package`."""
    files = {"train.py": f"trains with {package}.{kind}Trainer", "config.yaml": "its settings"}
    classes = f"from trl import {kind}Config, {kind}Trainer, TrlParser"
    if package != "trl":
        classes = f"from trl import TrlParser\nfrom {package} import {kind}Config, {kind}Trainer"
    for name, some in rows.items():
        number = write_json_lines(job.folder / f"{name}.jsonl", some)
        files[f"{name}.jsonl"] = count_text(number)
    adapter, more = adapter_settings(job), ""
    if rewards is not None:
        more += f"        reward_funcs={rewards},\n"
        files["rewards.py"] = "the rewards, without rlbook"
    if adapter is not None:
        kind_of_task = "SEQ_CLS" if kind == "Reward" else "CAUSAL_LM"
        given = {**adapter, "task_type": kind_of_task}
        arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
        more += f"        peft_config=LoraConfig({arguments}),\n"
    evaluated = 'rows["held_out"]' if "held_out" in rows else "None"
    if "held_out" in rows and "eval_strategy" not in settings:
        settings |= {"eval_strategy": "epoch"}
    if "held_out" not in rows:
        settings.pop("eval_strategy", None)
    script = SCRIPT.format(
        title=title[0].upper() + title[1:],
        trainer=f"{kind}Trainer",
        config=f"{kind}Config",
        algorithm=job.request.algorithm,
        env=job.request.recipe.name,
        imports="from peft import LoraConfig" if adapter is not None else "",
        classes=classes,
        rewards="\nimport rewards\n" if rewards is not None else "",
        model='str(HERE / "model")' if job.model == "model" else repr(job.model),
        splits="(" + "".join(f'"{name}", ' for name in rows).rstrip() + ")",
        evaluated=evaluated,
        more=more,
    )
    job.write("train.py", script.replace("load_dataset\n\nfrom", "load_dataset\nfrom"))
    plain = {name: value for name, value in settings.items() if value is not None}
    job.write("config.yaml", yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
    files |= {"tokenizer/": "with the chat template of the prompts"}
    if job.model == "model":
        files["model/"] = "the weights that training begins with"
    peft = " peft" if adapter is not None else ""
    return WrittenJob(
        f"{kind}Trainer",
        "python train.py",
        f"accelerate launch --num_processes 8 train.py {_eight_gpu_options(job, settings)}",
        f"pip install trl=={VERSION}{peft}",
        files,
    )


def _eight_gpu_options(job: Job, settings: dict[str, Any]) -> str:
    """The options with which a step on eight GPUs equals the step on one."""
    per_device = settings["per_device_train_batch_size"]
    here, accumulation = share_among_gpus(job, per_device, settings["gradient_accumulation_steps"])
    options = f"--per_device_train_batch_size {here} --gradient_accumulation_steps {accumulation}"
    if "steps_per_generation" in settings:
        each = settings["steps_per_generation"] * per_device
        options += f" --steps_per_generation {max(1, each // (8 * here))}"
        options += f" --per_device_eval_batch_size {here}"
    return options


TRL: dict[str, Callable[[Job], WrittenJob]] = {
    "behavior_cloning": write_sft,
    "reward_model": write_reward_training,
    "dpo": write_dpo,
    "grpo": write_grpo,
}
