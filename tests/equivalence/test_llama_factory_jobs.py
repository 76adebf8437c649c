"""A job for LLaMA-Factory passes its own argument parser, and its template makes the run's ids of
the rows."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from rlbook.recipes.jobs.write_job import write_job
from rlbook.runs.request import Request

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROWS = [
    {"prompt": f"{a}+{b}=", "chosen": str(a + b), "rejected": str(a + b + 10)}
    for a, b in [(12, 34), (50, 27), (33, 61), (45, 45)]
]
FULL_SFT = {
    "algorithm": "sft",
    "env": "Addition-v0",
    "passes": 2,
    "hyperparameters": {
        "batch_size": 2,
        "learning_rate": "cosine(1e-4, warmup=0.1)",
        "anneal_learning_rate": False,
    },
}
JOBS: dict[str, dict[str, Any]] = {
    "full SFT": FULL_SFT,
    "LoRA": {**FULL_SFT, "model": {"adapter": {"r": 16, "lora_alpha": 32}}},
    "DPO": {"algorithm": "dpo", "env": "Addition-v0", "data": "rows.jsonl", "passes": 1},
    "SimPO": {
        "algorithm": "dpo",
        "env": "Addition-v0",
        "data": "rows.jsonl",
        "passes": 1,
        "hyperparameters": {"preference_loss": "simpo", "nll_coef": 0.0},
    },
    "KTO": {
        "algorithm": "dpo",
        "env": "Addition-v0",
        "data": "rows.jsonl",
        "passes": 1,
        "hyperparameters": {"preference_loss": "kto", "good_weight": 1.5},
    },
    "a reward model": {
        "algorithm": "reward_model",
        "env": "Addition-v0",
        "passes": 1,
        "hyperparameters": {"held_out": 0.1},
    },
}


def write_llama_job(name: str, folder: Path) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    entries = dict(JOBS[name])
    if "data" in entries:
        entries["data"] = str(folder / "rows.jsonl")
    (folder / "config.yaml").write_text(yaml.safe_dump(entries))
    write_job(folder / "config.yaml", folder / "job", "llamafactory")
    return folder / "job"


@pytest.fixture
def parsers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DISABLE_VERSION_CHECK", "1")  # it pins an older transformers
    return pytest.importorskip("llamafactory.hparams", reason="pip install --no-deps llamafactory")


@pytest.mark.parametrize("name", JOBS)
def test_the_settings_pass_llama_factorys_parser(
    name: str, tmp_path: Path, parsers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_llama_job(name, tmp_path)
    monkeypatch.chdir(job)
    asked = yaml.safe_load((job / "train.yaml").read_text())
    model, data, training, tuning, _ = parsers.get_train_args(asked | {"use_cpu": True})
    config = Request.from_yaml((tmp_path / "config.yaml").read_text()).config
    assert training.per_device_train_batch_size == config.batch_size
    assert training.max_grad_norm == config.max_grad_norm
    assert (job / model.model_name_or_path / "model.safetensors").is_file()
    assert data.cutoff_len == 2048 and data.dataset == ["train"]
    sets = json.loads((job / "dataset_info.json").read_text())
    assert all((job / entry["file_name"]).is_file() for entry in sets.values())
    if name == "full SFT":
        facts = tuning.stage, tuning.finetuning_type, training.num_train_epochs, data.eval_dataset
        assert facts == ("sft", "full", 2.0, ["held_out"])
        assert training.lr_scheduler_type == "cosine" and training.warmup_steps == 0.1
        assert training.learning_rate == 1e-4 and training.per_device_train_batch_size == 2
    if name == "LoRA":
        assert (tuning.finetuning_type, tuning.lora_rank, tuning.lora_alpha) == ("lora", 16, 32)
    if name == "DPO":
        assert tuning.pref_beta == config.beta and tuning.pref_ftx == config.nll_coef
    if name == "KTO":
        assert (tuning.stage, tuning.kto_chosen_weight) == ("kto", 1.5)
        rows = json.loads((job / "train.json").read_text())
        assert [row["kto_tag"] for row in rows] == [True, False] * len(ROWS)
    if name == "a reward model":
        assert data.val_size == 0.1 and training.do_train


@pytest.mark.parametrize("name", ["full SFT", "DPO"])
def test_its_own_loader_makes_the_ids_of_the_run(
    name: str, tmp_path: Path, parsers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("torchaudio") is None:  # imported for sounds, and texts have none
        monkeypatch.setitem(sys.modules, "torchaudio", ModuleType("torchaudio"))
    template = pytest.importorskip("llamafactory.data.template")
    transformers = pytest.importorskip("transformers")
    job = write_llama_job(name, tmp_path)
    monkeypatch.chdir(job)
    asked = yaml.safe_load((job / "train.yaml").read_text())
    _, data, *_ = parsers.get_train_args(asked | {"use_cpu": True})
    tokenizer = transformers.AutoTokenizer.from_pretrained(job / "model")
    found = template.get_template_and_fix_tokenizer(tokenizer, data)
    request = Request.from_yaml((tmp_path / "config.yaml").read_text())
    codec: Any = request.recipe.make().unwrapped.codec
    row = json.loads((job / "train.json").read_text())[0]
    answer = row["output"] if name == "full SFT" else row["chosen"]
    messages = [
        {"role": "user", "content": row["instruction"]},
        {"role": "assistant", "content": answer},
    ]
    prompt, response = found.encode_oneturn(tokenizer, messages)
    assert prompt == codec.encode_prompt(row["instruction"])
    assert response == codec.encode_answer(answer)
