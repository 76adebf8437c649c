"""Jobs for LLaMA-Factory: train.yaml, rows as Alpaca's or ShareGPT's JSON, and dataset_info.json.

The chat template is read from the model's own tokenizer. Source: LLaMA-Factory 0.9.5,
`llamafactory/hparams` and `llamafactory/data`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import yaml

from rlbook.errors import RequestError
from rlbook.llm.tokenizers.tokenizer import Codec
from rlbook.recipes.jobs.job import Job, WrittenJob, count_text
from rlbook.recipes.jobs.job_length import share_among_gpus
from rlbook.recipes.jobs.job_model import adapter_settings
from rlbook.recipes.jobs.job_rows import (
    AnswerRow,
    LabelledRow,
    PairRow,
    Prompt,
    answer_rows,
    labelled_rows,
    pair_rows,
    reference_rows,
)
from rlbook.recipes.jobs.trainer_arguments import batch_arguments, optimizer_arguments

VERSION = "0.9.5"
CUTOFF = 2048
"""The smallest `cutoff_len`; larger if a row is longer, so that nothing is truncated."""
SPEAKERS = {"user": "human", "assistant": "gpt", "system": "system"}
TAGS = {
    "role_tag": "from",
    "content_tag": "value",
    "user_tag": "human",
    "assistant_tag": "gpt",
    "system_tag": "system",
}
Settings = dict[str, Any]


def write_sft(job: Job) -> WrittenJob:
    """`behavior_cloning` as the stage sft."""
    fields = job.fields
    fields.ignore("demonstrations")
    fields.leave("temperature", "the loss has the temperature 1", without_effect=1.0)
    fields.leave("average", "the loss is the mean over tokens", without_effect="token")
    packing = fields.take("packing")
    settings = {"stage": "sft"} | ({"packing": True, "neat_packing": True} if packing else {})
    rows, held_out = answer_rows(job), None
    chat = getattr(job.rules, "settings", None)
    if chat is not None and chat.data is not None and not chat.held_out_data and not job.from_rows:
        rows = chain(rows, reference_rows(job.held_out.rules))
        settings["val_size"] = chat.held_out
        job.differences.append("the rows that are held out are other ones, equally many")
    elif not job.from_rows:
        held_out = reference_rows(job.held_out.rules)
    return _write(job, "SFT", settings, rows, held_out, packing)


def write_reward_training(job: Job) -> WrittenJob:
    """`reward_model` as the stage rm."""
    fields = job.fields
    fields.ignore("walks")
    fields.leave("members", "one model is trained", without_effect=1)
    fields.leave("margin", "LLaMA-Factory has none", without_effect=0.0)
    fields.leave("center_coef", "LLaMA-Factory has none", without_effect=0.0)
    share = fields.take("held_out")
    return _write(job, "RM", {"stage": "rm", "val_size": share}, pair_rows(job))


def write_dpo(job: Job) -> WrittenJob:
    """`dpo` on recorded pairs as the stage dpo."""
    fields = job.fields
    if not job.from_rows:
        raise RequestError(
            "dpo without data makes pairs from its own episodes, but LLaMA-Factory's learns from "
            "recorded ones; give data"
        )
    if job.request.options.reference is not None:
        fields.left_out["reference"] = "the reference is the model that training begins with"
    if fields.values["preference_loss"] == "kto":
        return _write_kto(job)
    losses = ("sigmoid", "hinge", "ipo", "orpo", "simpo", "kto")
    loss = fields.translate(
        "preference_loss", {name: name for name in losses}, "LLaMA-Factory's dpo"
    )
    fields.ignore("group_size", "epochs", "reference_period", "good_weight")
    fields.leave("temperature", "the loss has the temperature 1", without_effect=1.0)
    settings: Settings = {"stage": "dpo", "pref_beta": fields.take("beta"), "pref_loss": loss}
    smoothing = fields.take("label_smoothing")
    if smoothing:
        settings["dpo_label_smoothing"] = smoothing
    averages = loss in ("ipo", "orpo", "simpo")
    if fields.take("per_step") != (loss == "ipo") and loss not in ("orpo", "simpo"):
        fields.left_out["per_step"] = f"{not averages}: with {loss} it is {averages}"
    nll, margin = fields.take("nll_coef"), fields.take("simpo_margin")
    if loss == "simpo":
        settings["simpo_gamma"] = margin
    if loss == "orpo":
        if nll != 1.0:
            fields.left_out["nll_coef"] = f"{nll}: 1 in orpo"
    elif nll:
        settings["pref_ftx"] = nll
        job.differences.append("pref_ftx weighs the likelihood of each answer, not of each token")
    return _write(job, "DPO", settings, pair_rows(job))


def _write_kto(job: Job) -> WrittenJob:
    """`dpo` with the loss kto, as the stage kto."""
    fields = job.fields
    fields.ignore("preference_loss", "group_size", "epochs", "reference_period", "simpo_margin")
    fields.leave("temperature", "the loss has the temperature 1", without_effect=1.0)
    fields.leave("per_step", "log-probabilities are summed", without_effect=False)
    fields.ignore("label_smoothing")
    settings: Settings = {"stage": "kto", "pref_beta": fields.take("beta")}
    settings |= {"kto_chosen_weight": fields.take("good_weight"), "kto_rejected_weight": 1.0}
    nll = fields.take("nll_coef")
    if nll:
        settings["pref_ftx"] = nll
        job.differences.append("pref_ftx weighs the likelihood of each answer, not of each token")
    job.differences.append("batch_size counts answers, and here pairs where the data are pairs")
    return _write(job, "KTO", settings, labelled_rows(job))


def _write(
    job: Job,
    title: str,
    settings: Settings,
    rows: Iterable[AnswerRow | PairRow | LabelledRow],
    held_out: Iterable[AnswerRow] | None = None,
    packing: int | None = None,
) -> WrittenJob:
    """Writes the rows, dataset_info.json and train.yaml."""
    files, sets, longest = {}, {}, 0
    for name, some in (("train", rows), ("held_out", held_out)):
        if some is not None:
            listed = list(some)
            longest = max(longest, *(_length(job, row) for row in listed))
            found, sets[name] = _format_rows(name, listed)
            job.write(f"{name}.json", json.dumps(found, ensure_ascii=False, indent=1) + "\n")
            files[f"{name}.json"] = count_text(len(found))
    job.write("dataset_info.json", json.dumps(sets, indent=2) + "\n")
    whole = {
        "model_name_or_path": job.model,
        **settings,
        "do_train": True,
        **_adapter(job),
        "dataset": "train",
        "dataset_dir": ".",
        "cutoff_len": packing or max(CUTOFF, 2 ** math.ceil(math.log2(longest))),
        "preprocessing_num_workers": 1,
        **optimizer_arguments(job),
        **batch_arguments(job),
    }
    if held_out is not None:
        whole |= {"eval_dataset": "held_out", "eval_strategy": "epoch"}
    elif settings.get("val_size"):
        whole["eval_strategy"] = "epoch"
    job.write("train.yaml", yaml.safe_dump(whole, sort_keys=False, allow_unicode=True))
    _leave_template(job)
    files = {
        "train.yaml": "its settings",
        **files,
        "dataset_info.json": "how the rows are read",
        "tokenizer/": "with the chat template of the prompts",
    }
    if job.model == "model":
        files["model/"] = "the weights that training begins with, and the tokenizer"
    each, accumulation = share_among_gpus(
        job, whole["per_device_train_batch_size"], whole["gradient_accumulation_steps"]
    )
    return WrittenJob(
        title,
        "llamafactory-cli train train.yaml",
        f"FORCE_TORCHRUN=1 NPROC_PER_NODE=8 llamafactory-cli train train.yaml"
        f" per_device_train_batch_size={each}"
        f" gradient_accumulation_steps={accumulation}",
        f'pip install llamafactory=={VERSION} "transformers>=5,<=5.6"',
        files,
    )


def _format_rows(
    name: str, rows: list[AnswerRow | PairRow | LabelledRow]
) -> tuple[list[Settings], Settings]:
    """The rows in Alpaca's format if only a user speaks, otherwise in ShareGPT's; and their entry
    in dataset_info.json."""
    plain = all(_instruction(row.prompt) is not None for row in rows)
    entry: Settings = {"file_name": f"{name}.json"}
    pairs = isinstance(rows[0], PairRow)
    tags = {"kto_tag": "kto_tag"} if isinstance(rows[0], LabelledRow) else {}
    if pairs:
        entry["ranking"] = True
    if plain:
        columns = {"prompt": "instruction", "query": "input"}
        answers = {"chosen": "chosen", "rejected": "rejected"} if pairs else {"response": "output"}
        return [_alpaca(row) for row in rows], {**entry, "columns": columns | answers | tags}
    columns = {"messages": "conversations"}
    answers = {"chosen": "chosen", "rejected": "rejected"} if pairs else {}
    entry |= {"formatting": "sharegpt", "columns": columns | answers | tags, "tags": TAGS}
    return [_share_gpt(row) for row in rows], entry


def _instruction(prompt: Prompt) -> str | None:
    """The user's text, if nobody else speaks in a prompt; None otherwise."""
    if isinstance(prompt, str):
        return prompt
    alone = len(prompt) == 1 and prompt[0]["role"] == "user"
    return prompt[0]["content"] if alone else None


def _alpaca(row: AnswerRow | PairRow | LabelledRow) -> Settings:
    asked = {"instruction": _instruction(row.prompt), "input": ""}
    if isinstance(row, PairRow):
        return asked | {"chosen": row.chosen, "rejected": row.rejected}
    return asked | {"output": row.answer} | _label(row)


def _share_gpt(row: AnswerRow | PairRow | LabelledRow) -> Settings:
    turns = list(_turns(row.prompt))
    if isinstance(row, PairRow):
        answers = {"chosen": row.chosen, "rejected": row.rejected}
        said = {name: {"from": "gpt", "value": text} for name, text in answers.items()}
        return {"conversations": turns, **said}
    return {"conversations": [*turns, {"from": "gpt", "value": row.answer}]} | _label(row)


def _label(row: AnswerRow | LabelledRow) -> Settings:
    return {"kto_tag": row.good} if isinstance(row, LabelledRow) else {}


def _turns(prompt: Prompt) -> Iterator[dict[str, str]]:
    if isinstance(prompt, str):
        yield {"from": "human", "value": prompt}
        return
    for message in prompt:
        if message["role"] not in SPEAKERS:
            raise RequestError(f"LLaMA-Factory's rows have no role {message['role']!r} here")
        yield {"from": SPEAKERS[message["role"]], "value": message["content"]}


def _length(job: Job, row: AnswerRow | PairRow | LabelledRow) -> int:
    """The tokens of a prompt with its longest answer."""
    codec = job.rules.codec
    answers = [row.chosen, row.rejected] if isinstance(row, PairRow) else [row.answer]
    prompt = len(Codec.encode_prompt(codec, row.prompt))  # of a chat that is complete already
    return prompt + max(len(codec.encode_answer(answer)) for answer in answers)


def _adapter(job: Job) -> Settings:
    adapter = adapter_settings(job)
    if adapter is None:
        return {"finetuning_type": "full"}
    names = {"r": "lora_rank", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout"}
    settings: Settings = {"finetuning_type": "lora"}
    settings |= {theirs: adapter[ours] for ours, theirs in names.items() if ours in adapter}
    targets = adapter["target_modules"]
    if targets == "all-linear":
        settings["lora_target"] = "all"
    else:
        settings["lora_target"] = targets if isinstance(targets, str) else ",".join(targets)
    settings |= {name: True for name in ("use_rslora", "use_dora") if adapter.get(name)}
    for name in adapter.keys() - {*names, "target_modules", "use_rslora", "use_dora"}:
        job.fields.left_out[f"model.adapter.{name}"] = f"{adapter[name]}: no counterpart"
    return settings


def _leave_template(job: Job) -> None:
    """Lists a chat template that differs from the one of a named model's own tokenizer, which is
    the one that LLaMA-Factory reads."""
    settings = getattr(job.rules, "settings", None)
    template = getattr(settings, "template", None)
    if template is not None and job.model != "model":
        job.fields.left_out["env.template"] = (
            f"{template}: copy tokenizer/chat_template.jinja into the model's folder"
        )
    arguments = getattr(job.rules.codec, "arguments", {})
    if arguments:
        job.fields.left_out["env.template_arguments"] = f"{dict(arguments)}: no counterpart"


LLAMA_FACTORY: dict[str, Callable[[Job], WrittenJob]] = {
    "behavior_cloning": write_sft,
    "reward_model": write_reward_training,
    "dpo": write_dpo,
}
