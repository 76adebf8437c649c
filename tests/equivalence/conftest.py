"""Language models for the tests: small ones with random weights, a GPT-2 in a local folder, and the
one that ships."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import BPE

from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.sources import folder_model, small_llama
from rlbook.llm.models.starting import starting_model
from rlbook.llm.tasks import AdditionTask
from rlbook.llm.tokenizers.tokenizer import IDS

TINY: dict[str, Any] = {
    "vocab_size": 31,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MERGING = {**IDS, "12": len(IDS), "46": len(IDS) + 1, "99": len(IDS) + 2}


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with a GPT-2 (learned positions, biases, LayerNorm, tied output).

    Its tokenizer merges some digits, so prompts have different lengths and "46" can be written in
    two ways.
    """
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("gpt2")
    config = GPT2Config(
        vocab_size=len(MERGING),
        n_embd=32,
        n_layer=2,
        n_head=2,
        n_positions=64,
        initializer_range=0.2,
        bos_token_id=IDS["<bos>"],
        eos_token_id=IDS["<eos>"],
        pad_token_id=IDS["<pad>"],
    )
    with torch.random.fork_rng(devices=[]):
        model = GPT2LMHeadModel(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
    model.save_pretrained(folder)
    backend = Tokenizer(BPE(MERGING, merges=[("1", "2"), ("4", "6"), ("9", "9")]))
    backend.decoder = Fuse()  # type: ignore[assignment]
    backend.add_special_tokens(["<pad>", "<bos>", "<eos>", "<unk>"])
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>"
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def lively_llama() -> Callable[..., Any]:
    """Makes a Llama whose untrained weights are large enough for attention and positions to matter
    in every logit."""

    def make(**sizes: int) -> Any:
        generator = torch.Generator().manual_seed(0)
        model = small_llama(generator, **sizes)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
        return model

    return make


@pytest.fixture(params=["llama", "llama with grouped queries", "gpt2"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def model(kind: str, gpt2_folder: Path, lively_llama: Callable[..., Any]) -> Any:
    """A causal LM with random weights: both of Llama's paths of ours, and the path for any
    architecture."""
    if kind == "gpt2":
        return folder_model(gpt2_folder)
    return lively_llama(kv_heads=4 if kind == "llama" else 2)


@pytest.fixture
def folder(kind: str, gpt2_folder: Path) -> str | None:
    """What a token environment needs as its `model` to speak `model`'s tokens."""
    return str(gpt2_folder) if kind == "gpt2" else None


@pytest.fixture
def policy(model: Any) -> LanguageModelPolicy:
    return LanguageModelPolicy(model, critic=True)


@pytest.fixture(scope="session")
def warm() -> LanguageModelPolicy:
    """The model that ships for Addition. Do not train it: copy it."""
    return LanguageModelPolicy(starting_model(AdditionTask(), None, np.random.default_rng(0)))


@pytest.fixture(scope="session")
def random_model() -> Callable[..., Any]:
    """A model of transformers whose weights are all random and large, biases and norms included."""

    def make(kind: str, **sizes: Any) -> Any:
        from transformers import AutoConfig, AutoModelForCausalLM

        with torch.random.fork_rng(devices=[]):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **TINY | sizes))
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.uniform_(0.5, 1.5, generator=generator)
                else:
                    parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
        return model.float().eval()

    return make
