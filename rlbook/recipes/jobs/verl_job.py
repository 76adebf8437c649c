"""Jobs for verl: job.yaml, a configuration on top of verl's own, with rows in parquet.

Paths in it begin with the environment variable JOB, the job's folder, because verl's workers run
elsewhere. Source: verl 0.9.1, `verl/trainer/config`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import yaml

from rlbook.data.verl_rows import verl_row, write_rows
from rlbook.errors import RequestError, request_errors
from rlbook.llm.environments.token_rows import TokenRules
from rlbook.recipes.jobs.job import Job, WrittenJob, count_text
from rlbook.recipes.jobs.job_length import constant_of, count_rounds, leave_ends, minibatch_of
from rlbook.recipes.jobs.job_model import adapter_settings, model_settings, write_reward_model
from rlbook.recipes.jobs.job_rows import answer_rows, as_messages, reference_rows, source_of
from rlbook.recipes.jobs.reward_file import write_rewards

VERSION = "0.9.1"
HERE = "${oc.env:JOB}"
OFF = 1e9
"""A bound that is never reached, for settings that verl cannot switch off."""
Settings = dict[str, Any]


def write_sft(job: Job) -> WrittenJob:
    """`behavior_cloning` as verl's SFT trainer."""
    fields, options = job.fields, job.request.options
    fields.ignore("demonstrations", "packing")
    fields.leave("temperature", "the loss has the temperature 1", without_effect=1.0)
    fields.leave("average", "the loss is the mean over tokens", without_effect="token")
    size, micro = fields.take("batch_size"), fields.take("micro_batch_size")
    files = {"train.parquet": _sft_rows(job, answer_rows(job))}
    if not job.from_rows:
        files["held_out.parquet"] = _sft_rows(job, reference_rows(job.held_out.rules))
    listed = _write_parquet(job, files)
    job.differences.append("the template's tokens after an answer are learned too")
    longest = (
        {"total_epochs": options.passes}
        if options.passes is not None
        else {"total_training_steps": options.steps, "total_epochs": 1_000_000}
    )
    settings: Settings = {
        "data": {
            "train_files": f"{HERE}/train.parquet",
            "val_files": None if job.from_rows else f"{HERE}/held_out.parquet",
            "train_batch_size": size,
            "micro_batch_size_per_gpu": size if micro is None else math.gcd(size, micro),
            "use_dynamic_bsz": False,
            "max_length": job.rules.codec.limit,
            "truncation": "error",
            "apply_chat_template_kwargs": _template_arguments(job),
        },
        "model": _model(job),
        "optim": _optimizer(job),
        "trainer": {
            **longest,
            "seed": job.request.seed,
            "project_name": "rlbook",
            "experiment_name": job.request.algorithm,
            "logger": ["console"],
            "test_freq": "after_each_epoch" if not job.from_rows else -1,
            "default_local_dir": f"{HERE}/checkpoints",
            "n_gpus_per_node": 1,
        },
    }
    if job.from_rows:
        settings["trainer"].pop("test_freq")
    return _write_yaml(
        job,
        "sft_trainer_engine",
        "SFT",
        settings,
        listed,
        "JOB=$PWD torchrun --standalone --nproc_per_node={gpus} -m verl.trainer.sft_trainer"
        " --config-path=$PWD --config-name=job",
        _eight_gpu_options_sft(settings["data"]),
    )


def _eight_gpu_options_sft(data: Settings) -> str:
    each = max(1, data["train_batch_size"] // 8)
    micro = math.gcd(each, data["micro_batch_size_per_gpu"])
    return f" trainer.n_gpus_per_node=8 data.micro_batch_size_per_gpu={micro}"


def write_grpo(job: Job) -> WrittenJob:
    """`grpo` and its relatives as verl's PPO trainer without a critic."""
    fields, values = job.fields, job.fields.values
    if job.from_rows:
        raise RequestError("grpo on recorded groups has no counterpart in verl; leave out data")
    if values["episode_reward"] is not None:
        raise RequestError(
            f"episode_reward {values['episode_reward']!r} has no counterpart in verl, whose "
            "rewards have no access to the policy"
        )
    algorithm = _estimator(job)
    fields.ignore("top_share", "top", "score_temperatures", "held_out")
    for name, free in (("min_spread", 0.0), ("advantage_clip", None)):
        fields.leave(name, "verl's trainer has none", without_effect=free)
    rounds = fields.take("refill")
    if rounds > 1:
        filtering = {"enable": True, "metric": "reward", "max_num_gen_batches": rounds}
        algorithm["filter_groups"] = filtering
    if fields.take("mask_truncated"):
        fields.left_out["mask_truncated"] = "True: completions that were cut off are learned from"
    cap, of = fields.take("importance_cap"), fields.take("importance_of")
    if cap is not None:
        algorithm["rollout_correction"] = {"rollout_is": of, "rollout_is_threshold": cap}
    fields.leave("kl_band", "β stays as it is")
    fields.ignore("kl_factor", "kl_coef_min", "kl_coef_max")
    settings = _rounds(job, fields.take("group_size"))
    actor = settings["actor_rollout_ref"]["actor"]
    actor |= _losses(job)
    _add_penalty(job, settings, algorithm)
    return _write_trainer(job, "GRPO", settings, algorithm)


def write_ppo(job: Job) -> WrittenJob:
    """`ppo` on texts as verl's PPO trainer."""
    fields = job.fields
    algorithm: Settings = {
        "adv_estimator": "gae",
        "gamma": fields.take("gamma"),
        "lam": fields.take("gae_lambda"),
    }
    fields.ignore("rollout_steps", "orthogonal_init", "normalize_observation")
    fields.leave("normalize_reward", "rewards are as they are", without_effect=False)
    fields.leave("separate_networks", "the critic is a model of its own", without_effect=True)
    fields.leave("value_coef", "the critic has an optimiser of its own", without_effect=1.0)
    fields.leave("normalize_advantage", "advantages are standardised", without_effect=True)
    if fields.take("normalize_over") != "rollout":
        fields.left_out["normalize_over"] = "minibatch: advantages are standardised over a rollout"
    fields.leave("target_kl", "no update ends early")
    fields.leave("whiten_reward", "rewards are as they are", without_effect=False)
    if fields.take("truncation") != "terminal":
        fields.left_out["truncation"] = "bootstrap: a completion that is cut off ends there"
    settings = _rounds(job, 1)
    fields.ignore("kl_coef_min", "kl_coef_max")
    actor = settings["actor_rollout_ref"]["actor"]
    actor |= _losses(job)
    _add_penalty(job, settings, algorithm)
    target, horizon = fields.take("kl_target"), fields.take("kl_horizon")
    if target is not None:
        algorithm["kl_ctrl"] |= {"type": "adaptive", "target_kl": target, "horizon": horizon}
    clip = fields.take("clip_value")
    start = fields.take("critic_start")
    critic = {
        "model": settings["actor_rollout_ref"]["model"],
        "optim": actor["optim"],
        "cliprange_value": OFF if clip is None else clip,
        "ppo_micro_batch_size_per_gpu": actor["ppo_micro_batch_size_per_gpu"],
    }
    if start == "reward_model":
        critic["model"] = {**critic["model"], "path": f"{HERE}/reward_model"}
    settings["critic"] = critic
    job.differences.append("actor and critic have an optimiser and a gradient norm each")
    return _write_trainer(job, "PPO", settings, algorithm)


def _estimator(job: Job) -> Settings:
    """The advantage estimator of a configuration of GRPO."""
    fields = job.fields
    asked = tuple(fields.take(name) for name in ("baseline", "scale", "credit"))
    known: dict[tuple[str, str, str], Settings] = {
        ("mean", "std", "return"): {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": True},
        ("mean", "none", "return"): {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False},
        ("leave-one-out", "none", "return"): {"adv_estimator": "rloo"},
        ("batch", "batch", "reward-to-go"): {"adv_estimator": "reinforce_plus_plus", "gamma": 1.0},
    }
    if asked not in known:
        forms = "; ".join(", ".join(form) for form in known)
        raise RequestError(
            f"verl has no estimator of baseline, scale and credit {', '.join(map(str, asked))} (it"
            f" has: {forms})"
        )
    found = dict(known[asked])
    if found["adv_estimator"] == "grpo" and found["norm_adv_by_std_in_grpo"]:
        job.differences.append("ε beside a group's standard deviation is 1e-6, and 1e-4 here")
    return found


def _losses(job: Job) -> Settings:
    """The actor's loss."""
    fields = job.fields
    ratio = fields.take("ratio", "token")
    modes = {"token": "vanilla", "sequence": "gspo", "cispo": "cispo"}
    average, divisor = fields.take("average"), fields.take("average_divisor")
    if ratio == "product":
        fields.left_out["ratio"] = "product: the ratio of each token"
    aggregate = {
        "token": "token-mean",
        "sequence": "seq-mean-token-mean",
        "constant": "seq-mean-token-sum-norm",
    }
    clip, high, dual = constant_of(job, "clip"), fields.take("clip_high"), fields.take("dual_clip")
    job.differences.append("log-ratios are clamped at ±20 before the exponential")
    return {
        "policy_loss": {"loss_mode": modes.get(ratio, "vanilla")},
        "loss_agg_mode": aggregate[average],
        "loss_scale_factor": divisor if average == "constant" else None,
        "clip_ratio": clip,
        "clip_ratio_low": clip,
        "clip_ratio_high": clip if high is None else high,
        "clip_ratio_c": OFF if dual is None else max(dual, 1.0 + 1e-9),
        "entropy_coeff": constant_of(job, "entropy_coef"),
        "optim": _optimizer(job),
    }


def _add_penalty(job: Job, settings: Settings, algorithm: Settings) -> None:
    """The KL penalty, in the loss or in the reward."""
    fields, coef = job.fields, constant_of(job, "kl_coef")
    where, estimator = fields.take("kl_in"), fields.take("kl_estimator")
    clamp = fields.take("kl_clamp")
    if clamp is not None and (clamp, estimator) not in ((10.0, "k3"), (10.0, "k3+")):
        fields.left_out["kl_clamp"] = f"{clamp:g}: verl clamps k3 at 10, and nothing else"
    name = {"k1": "kl", "k2": "mse", "k3": "low_var_kl", "k1+": "kl+", "k3+": "low_var_kl+"}[
        estimator
    ]
    actor = settings["actor_rollout_ref"]["actor"]
    actor["use_kl_loss"] = bool(coef) and where == "loss"
    algorithm["use_kl_in_reward"] = bool(coef) and where == "reward"
    algorithm["kl_ctrl"] = {"type": "fixed", "kl_coef": coef if where == "reward" else 0.0}
    if actor["use_kl_loss"]:
        actor |= {"kl_loss_coef": coef, "kl_loss_type": name}
    elif algorithm["use_kl_in_reward"]:
        algorithm["kl_penalty"] = name
    if coef and job.request.options.reference is not None:
        fields.left_out["reference"] = "the reference is the model that training begins with"
    if coef and estimator == "k3":
        job.differences.append("k3 is clamped at ±10")


def _rounds(job: Job, group: int) -> Settings:
    """Batch sizes in verl's terms: prompts, each with `n` completions."""
    size, epochs = job.request.num_envs, job.fields.take("epochs")
    minibatch, micro = minibatch_of(job)
    if minibatch % group:
        job.fields.left_out["batch_size"] = f"{minibatch}: whole groups of {group} completions"
        minibatch = size
    spec = model_settings(job)
    rules, chat = job.rules, getattr(job.rules, "settings", None)
    longest = max(_longest_prompt(job.rules), _longest_prompt(job.held_out.rules))
    most = getattr(chat, "max_prompt_tokens", None) or longest
    rollout = {
        "name": "vllm",
        "n": group,
        "temperature": job.fields.take("temperature"),
        "top_p": 1.0,
        "top_k": -1,
        "dtype": "float32" if spec.dtype == "float64" else spec.dtype,
        "tensor_model_parallel_size": 1,
        "log_prob_micro_batch_size_per_gpu": micro,
    }
    return {
        "data": {
            "train_files": f"{HERE}/train.parquet",
            "val_files": f"{HERE}/held_out.parquet",
            "train_batch_size": size // group,
            "max_prompt_length": most,
            "max_response_length": rules.max_new_tokens,
            "truncation": "left" if chat is not None and chat.overlong == "left" else "error",
            "seed": job.request.seed,
            "apply_chat_template_kwargs": _template_arguments(job),
        },
        "actor_rollout_ref": {
            "model": _model(job),
            "actor": {
                "ppo_mini_batch_size": minibatch // group,
                "ppo_micro_batch_size_per_gpu": micro,
                "ppo_epochs": epochs,
                "shuffle": True,
            },
            "rollout": rollout,
            "ref": {"log_prob_micro_batch_size_per_gpu": micro},
        },
    }


def _longest_prompt(rules: TokenRules) -> int:
    return int(rules.prompt_lengths.max())


def _template_arguments(job: Job) -> Settings:
    return dict(getattr(job.rules.codec, "arguments", {}))


def _model(job: Job) -> Settings:
    settings: Settings = {
        "path": f"{HERE}/model" if job.model == "model" else job.model,
        "tokenizer_path": f"{HERE}/tokenizer",
    }
    adapter = adapter_settings(job)
    if adapter is None:
        return settings
    for name in adapter.keys() - {"r", "lora_alpha", "target_modules", "exclude_modules"}:
        if adapter[name]:
            job.fields.left_out[f"model.adapter.{name}"] = (
                f"{adapter[name]}: verl has no counterpart"
            )
    settings |= {"lora_rank": adapter["r"], "lora_alpha": adapter["lora_alpha"]}
    settings |= {"target_modules": adapter["target_modules"]}
    if adapter.get("exclude_modules"):
        settings["exclude_modules"] = adapter["exclude_modules"]
    return settings


def _optimizer(job: Job) -> Settings:
    fields = job.fields
    rate, kind, least, warmup = fields.learning_rate()
    if kind == "linear":
        fields.left_out["anneal_learning_rate"] = "True: verl has a constant rate or a cosine"
    settings: Settings = {
        "lr": rate,
        "lr_scheduler_type": "cosine" if kind == "cosine" else "constant",
        "weight_decay": fields.take("weight_decay", 0.0),
        "clip_grad": fields.take("max_grad_norm"),
        "override_optimizer_config": {"eps": fields.take("adam_eps")},
    }
    steps = fields.take("warmup_steps", 0)
    if steps:
        settings["lr_warmup_steps"] = steps
    elif warmup:
        settings["lr_warmup_steps_ratio"] = warmup
    return settings | ({"min_lr_ratio": least / rate} if least else {})


def _examples(job: Job, rules: TokenRules) -> Iterator[Settings]:
    """The prompts of a split in verl's schema, with the columns that rewards use in
    `extra_info`."""
    for index in range(len(rules.texts)):
        example, messages = rules.example(index)
        text, answer = rules.texts[index], rules.answers[index]
        truth = {"style": "rule", "ground_truth": answer}
        own = {"question": text, **example.columns}
        example = replace(example, columns={"reward_model": truth, **own})
        source = source_of(rules, text)
        with request_errors():
            yield verl_row(example, messages, source=source, split=rules.split, index=index)


def _sft_rows(job: Job, rows: Iterator[Any]) -> Iterator[Settings]:
    for prompt, answer in rows:
        yield {"messages": [*as_messages(prompt), {"role": "assistant", "content": answer}]}


def _write_parquet(job: Job, files: dict[str, Iterator[Settings]]) -> dict[str, str]:
    return {name: count_text(write_rows(job.folder / name, rows)) for name, rows in files.items()}


def _write_trainer(job: Job, title: str, settings: Settings, algorithm: Settings) -> WrittenJob:
    """Adds the settings that both methods share, and writes everything."""
    leave_ends(job)
    files = _write_parquet(
        job,
        {
            "train.parquet": _examples(job, job.rules),
            "held_out.parquet": _examples(job, job.held_out.rules),
        },
    )
    model = write_reward_model(job)
    if model is None:
        write_rewards(job)
        listed = {**files, "rewards.py": "compute_score, without rlbook"}
        reward: Settings = {
            "custom_reward_function": {"path": f"{HERE}/rewards.py", "name": "compute_score"}
        }
        job.differences.append(
            "a reward sees one completion at a time, and its text without special tokens"
        )
    else:
        listed = dict(files)
        listed["reward_model/"] = "the reward model, a classifier of one label"
        rollout = {"name": "vllm", "tensor_model_parallel_size": 1}
        reward = {
            "reward_model": {"enable": True, "model_path": f"{HERE}/{model}", "rollout": rollout}
        }
        if job.rules.rewards.model_weight is not None:
            job.fields.left_out["env.reward"] = "the reward model pays alone"
    rows, prompts = len(job.rules.texts), settings["data"]["train_batch_size"]
    rounds = count_rounds(job)
    settings["algorithm"] = algorithm
    settings["reward"] = reward
    settings["trainer"] = {
        "total_epochs": math.ceil(rounds * prompts / rows),
        "total_training_steps": rounds,
        "project_name": "rlbook",
        "experiment_name": f"{job.request.algorithm}-{job.request.recipe.name}",
        "logger": ["console"],
        "test_freq": max(1, rounds // 10),
        "save_freq": max(1, rounds // 10),
        "default_local_dir": f"{HERE}/checkpoints",
        "n_gpus_per_node": 1,
        "nnodes": 1,
    }
    return _write_yaml(
        job,
        "ppo_trainer",
        title,
        settings,
        listed,
        "JOB=$PWD python -m verl.trainer.main_ppo --config-path=$PWD --config-name=job",
        _eight_gpu_options(settings),
    )


def _eight_gpu_options(settings: Settings) -> str:
    """The options for eight GPUs, which share a minibatch."""
    parts = settings["actor_rollout_ref"]
    whole = parts["actor"]["ppo_mini_batch_size"] * parts["rollout"]["n"]
    micro = math.gcd(max(1, whole // 8), parts["actor"]["ppo_micro_batch_size_per_gpu"])
    named = ["actor.ppo", "rollout.log_prob", "ref.log_prob"]
    options = [f"actor_rollout_ref.{name}_micro_batch_size_per_gpu={micro}" for name in named]
    if "critic" in settings:
        options.append(f"critic.ppo_micro_batch_size_per_gpu={micro}")
    return " ".join(["", "trainer.n_gpus_per_node=8", *options])


def _write_yaml(
    job: Job,
    base: str,
    title: str,
    settings: Settings,
    listed: dict[str, str],
    command: str,
    eight: str,
) -> WrittenJob:
    head = {"hydra": {"searchpath": ["pkg://verl.trainer.config"]}, "defaults": [base, "_self_"]}
    text = yaml.dump(head | settings, Dumper=_WholeDumper, sort_keys=False, allow_unicode=True)
    job.write("job.yaml", f"# What differs from {base}.yaml of verl {VERSION}.\n{text}")
    files = {"job.yaml": f"its settings, on top of verl's {base}.yaml", **listed}
    files["tokenizer/"] = "with the chat template of the prompts"
    if job.model == "model":
        files["model/"] = "the weights that training begins with"
    return WrittenJob(
        title,
        command.format(gpus=1),
        command.format(gpus=8) + eight,
        f"pip install verl=={VERSION} vllm",
        files,
    )


class _WholeDumper(yaml.SafeDumper):
    """Writes repeated values in full, without anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


VERL: dict[str, Callable[[Job], WrittenJob]] = {
    "behavior_cloning": write_sft,
    "grpo": write_grpo,
    "ppo": write_ppo,
}
