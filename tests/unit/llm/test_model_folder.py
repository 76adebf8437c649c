"""A local model folder may come from a stranger: what it may not do, and what is said instead."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlbook.llm.models.sources import folder_model, hide_progress_bars, small_llama


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Llama of two layers with 21 weights: two layers of nine, the embedding, the head and the
    last norm."""
    model = small_llama(torch.Generator().manual_seed(0), hidden_size=8, feed_forward=16)
    model.save_pretrained(tmp_path / "model")
    assert len(load_file(tmp_path / "model" / "model.safetensors")) == 2 * 9 + 3
    return tmp_path / "model"


def configure(folder: Path, **entries: Any) -> None:
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | entries))


def reweigh(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def split(folder: Path, name: str) -> None:
    """The weights in a file of another name, and an index that says so."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def split_in_two(folder: Path) -> None:
    """Each half of the weights in a file of its own, as large models come."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    place = {name: "ab"[i % 2] + ".safetensors" for i, name in enumerate(sorted(weights))}
    for file in set(place.values()):
        part = {name: weight for name, weight in weights.items() if place[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": place}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError) as caught:
        folder_model(folder)
    message = str(caught.value)
    assert (
        message.startswith(f"model: {str(folder)!r} ")
        and "\n" not in message
        and len(message) < 400
    )
    return message


class Exploit:
    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (66,)


@pytest.mark.parametrize(
    "store",
    [lambda folder: None, lambda folder: split(folder, "part.safetensors"), split_in_two],
    ids=["one file", "one file of another name", "two files"],
)
def test_a_whole_folder_is_loaded_with_its_own_weights(
    store: Callable[[Path], None], folder: Path
) -> None:
    weights = load_file(folder / "model.safetensors")
    store(folder)
    assert all(
        torch.equal(tensor, weights[name])
        for name, tensor in folder_model(folder).state_dict().items()
    )


@pytest.mark.parametrize(
    "name",
    [
        "x.bin",
        "../x.safetensors",
        "/etc/x.safetensors",
        "deep/x.safetensors",
        "",
        "x.safetensors/../y.bin",
    ],
)
def test_an_index_names_safetensors_files_of_its_own_folder(folder: Path, name: str) -> None:
    split(folder, name)
    for place in (folder / "x.bin", folder.parent / "x.safetensors"):
        place.write_bytes(pickle.dumps(Exploit()))
    assert "which is not a safetensors file of the folder" in refusal(folder)


def test_weights_named_in_the_config_are_not_opened(folder: Path) -> None:
    configure(folder, transformers_weights="adapter_model.bin")
    (folder / "adapter_model.bin").write_bytes(pickle.dumps(Exploit()))
    assert "'transformers_weights'" in refusal(folder)


def test_an_adapter_does_not_lead_to_another_folder(folder: Path) -> None:
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "base_model_name_or_path": "elsewhere"})
    )
    assert "holds an adapter" in refusal(folder)


@pytest.mark.parametrize(
    "entry", ["_attn_implementation", "attn_implementation", "_attn_implementation_internal"]
)
def test_no_attention_implementation_is_downloaded(folder: Path, entry: str) -> None:
    configure(folder, **{entry: "kernels-community/flash-attn"})
    assert "attention implementation 'kernels-community/flash-attn'" in refusal(folder)
    configure(folder, **{entry: None, "nested": {entry: "someone/else"}})
    assert "'someone/else'" in refusal(folder)


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        (-3, "has num_hidden_layers -3 in its config.json and 21 weights in its files"),
        (0, "has num_hidden_layers 0"),
        ("2", "has num_hidden_layers 2"),
        (10**9, "has num_hidden_layers 1000000000"),
        (3, "describes a model of"),
        (1, "no place for, model.layers.1.input_layernorm.weight and 8 more"),
    ],
)
def test_a_model_has_the_layers_that_its_files_have(
    folder: Path, layers: Any, sentence: str
) -> None:
    configure(folder, num_hidden_layers=layers)
    assert sentence in refusal(folder)


@pytest.mark.parametrize("entry", ["vocab_size", "hidden_size", "intermediate_size"])
@pytest.mark.parametrize("size", [10**12, -5])
def test_a_size_that_the_weights_do_not_have_costs_no_memory(
    folder: Path, entry: str, size: int
) -> None:
    configure(folder, **{entry: size})
    refusal(folder)


def test_a_missing_weight_is_not_drawn_at_random(folder: Path) -> None:
    reweigh(
        folder, lambda weights: weights.update({"spare": weights.pop("model.norm.weight").clone()})
    )
    assert "lacks the weight model.norm.weight" in refusal(folder)


def test_a_damaged_file_is_refused(folder: Path) -> None:
    header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    (folder / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(8)
    )
    assert "has a damaged file model.safetensors" in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_device_or_a_pipe_is_no_file_of_a_model(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    refusal(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refusal(folder)


def test_an_encoder_that_transformers_loads_as_a_causal_model_is_refused(tmp_path: Path) -> None:
    """BERT reads what follows a token too; with `is_decoder` the same weights do not."""
    from transformers import BertConfig, BertLMHeadModel

    sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    for is_decoder in (False, True):
        config = BertConfig(**sizes, num_attention_heads=2, is_decoder=is_decoder)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            BertLMHeadModel(config).save_pretrained(tmp_path / str(is_decoder))
    assert folder_model(tmp_path / "True").config.is_decoder
    assert "attention to later tokens (its model_type is 'bert')" in refusal(tmp_path / "False")


def test_a_folder_that_is_no_model_is_named_for_what_it_is(tmp_path: Path) -> None:
    for name, file in (("run", "config.yaml"), ("adapter", "adapter_config.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
        assert f"this is a{'n' * (name == 'adapter')} {name}: name" in refusal(tmp_path / name)
    assert "there is no such folder, and nothing is downloaded" in refusal(tmp_path / "Qwen" / "x")


def test_no_progress_bar_of_transformers_is_drawn(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    model = folder_model(folder)
    assert "Loading weights" not in capfd.readouterr().err
    with hide_progress_bars():
        model.save_pretrained(folder.parent / "again")
    assert capfd.readouterr().err == ""
    assert logging.is_progress_bar_enabled() == shown


def test_a_start_with_another_tokenizer_is_told_of_the_tokens(folder: Path, tmp_path: Path) -> None:
    """Other tokens make another environment too, and that was all that was said."""
    import rlbook
    from rlbook.errors import RequestError

    options: dict[str, Any] = {"steps": 1, "eval_every": 0}
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "ab", "answer": "b"}\n' * 20)
    words = {"data": str(rows), "tokenizer": "word"}
    rlbook.train("sft", "Chat-v0", env_kwargs=words, out=tmp_path / "run", **options)
    with pytest.raises(RequestError, match=r"must have the agent's tokenizer, .*--model"):
        rlbook.train("grpo", "Chat-v0", start=tmp_path / "run", **options)


def test_loading_warns_of_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """GPT-2 warns where it is given its padding token and no mask."""
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils import logging

    config = GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2, n_positions=8, pad_token_id=0)
    with torch.random.fork_rng():
        GPT2LMHeadModel(config).save_pretrained(tmp_path)
    logging.warning_once.cache_clear()
    capfd.readouterr()
    folder_model(tmp_path)
    assert capfd.readouterr().err == ""
