"""Creates or loads causal language models: a small built-in Llama, one of given sizes, or a local
Hugging Face folder.

Nothing is ever downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlbook.checks import check_memory, did_you_mean
from rlbook.llm.models.model_folder import (
    CAUSAL,
    CLASSIFIER,
    FolderError,
    check_folder,
    check_loaded,
    check_new,
    described_size,
    folder_settings,
    has_weights,
)
from rlbook.llm.tokenizers.tokenizer import Codec, character_codec, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

SMALL_CONTEXT = 64


def small_llama(
    generator: torch.Generator,
    codec: Codec | None = None,
    *,
    vocabulary_size: int | None = None,
    hidden_size: int = 64,
    feed_forward: int = 256,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int | None = None,
    context: int = SMALL_CONTEXT,
) -> Any:
    """A `LlamaForCausalLM`, by default with 0.1 M parameters, whose weights are drawn only from
    `generator`.

    Its tokens are those of `codec`, None for one a character. Matrices are normal with standard
    deviation 0.02, as in GPT-2; norms are 1.
    """
    from transformers.models.llama import LlamaConfig, LlamaForCausalLM

    codec = codec or character_codec()
    config = LlamaConfig(
        vocab_size=vocabulary_size or codec.vocabulary_size,
        hidden_size=hidden_size,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads or heads,
        max_position_embeddings=context,
        pad_token_id=codec.pad,
        bos_token_id=codec.bos,
        eos_token_id=codec.eos,
        architectures=["LlamaForCausalLM"],
    )
    with torch.random.fork_rng(devices=[]):  # the constructor draws from the global generator
        model = LlamaForCausalLM(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, 0.02, generator=generator)
    return model.eval()


@contextmanager
def seed_torch(rng: np.random.Generator) -> Iterator[None]:
    """Seeds torch's global generator from `rng` within the context, for constructors that draw from
    it, and restores it afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(rng.integers(2**63 - 1)))
        yield


def new_model(config: PreTrainedConfig, rng: np.random.Generator) -> Any:
    """A causal LM from a `transformers` config, in float32; its weights are drawn from `rng` with
    the architecture's own initialisation.

    Raises:
        ValueError: the machine has no memory for it, or it is not a causal LM but an encoder.
    """
    from transformers import AutoModelForCausalLM

    weights, beside = described_size(config)
    check_memory("model: its number of weights", weights + beside, 4)
    with seed_torch(rng):
        model = AutoModelForCausalLM.from_config(
            config, trust_remote_code=False, dtype=torch.float32
        ).eval()
    check_causal(model, str(config.model_type))
    return model


def sized_model(
    sizes: Mapping[str, object], codec: Codec, rng: np.random.Generator, *, context: int = 0
) -> Any:
    """A new causal LM of the given sizes, for the vocabulary of `codec`.

    Args:
        sizes: as in a config.json; what they leave open is the small Llama's, or for another
            `model_type` that architecture's default.
        codec: says how many tokens there are, and which of them have a meaning of their own.
        rng: draws the weights.
        context: tokens that a small Llama says it reads, where `sizes` does not say it and they are
            more than its default.

    Raises:
        ValueError: a name that the architecture does not have, or sizes that do not go together.
    """
    from transformers import AutoConfig

    kind = sizes.get("model_type", "llama")
    special = {
        "vocab_size": codec.vocabulary_size,
        "pad_token_id": codec.pad,
        "bos_token_id": codec.bos,
        "eos_token_id": codec.eos,
    }
    check_new("config", sizes)
    try:
        known = AutoConfig.for_model(str(kind))
        _check_names(sizes, known, special)
        given = {name: value for name, value in sizes.items() if name != "model_type"}
        default = SMALL | {"max_position_embeddings": max(context, SMALL_CONTEXT)}
        return new_model(
            AutoConfig.for_model(
                str(kind), **((default if kind == "llama" else {}) | given | special)
            ),
            rng,
        )
    except FolderError:
        raise
    except Exception as error:
        raise ValueError(
            f"model: no language model can be made with {dict(sizes)!r}"[:300]
            + f" ({_last_line(error)})"
        ) from error


def _last_line(error: Exception) -> str:
    """The last line of an error, in which a validator states the reason."""
    return (
        str(error).strip().splitlines()[-1].strip()[:200]
        if str(error).strip()
        else type(error).__name__
    )


SMALL: dict[str, object] = {
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": SMALL_CONTEXT,
}
"""The sizes of `small_llama`."""


def _check_names(
    sizes: Mapping[str, object], known: PreTrainedConfig, special: Mapping[str, object]
) -> None:
    """Raises ValueError for a name that is not in the architecture's config; transformers would
    ignore it."""
    allowed = {*vars(known), *getattr(known, "attribute_map", ()), "model_type"} - special.keys()
    for name in sizes:
        if name in special:
            raise FolderError(
                f"model: {name} follows from the task's own tokens, so it cannot be set"
            )
        if name not in allowed or name.startswith("_"):
            hint = did_you_mean(name, allowed)
            raise FolderError(
                f"model: a config of model_type {known.model_type!r} has no"
                f" {str(name)[:60]!r}{hint}"
            )


def _folder_of_sizes(folder: str | Path, rng: np.random.Generator) -> Any:
    """The model described by a folder without weights."""
    from transformers import AutoConfig

    settings = folder_settings(folder)
    check_new(folder, settings)
    return new_model(
        AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False), rng
    )


def folder_model(folder: str | Path, rng: np.random.Generator | None = None) -> Any:
    """The causal LM in a local Hugging Face folder, in float32.

    Args:
        folder: with config.json and safetensors files.
        rng: draws the weights of a folder that has none; without it such a folder is refused.

    Raises:
        ValueError: the folder holds no causal LM that transformers reads from safetensors without
            code of the folder's own.
    """
    try:
        folder_settings(folder)
        if rng is not None and not has_weights(folder):
            return _folder_of_sizes(folder, rng)
        return _load(folder, CAUSAL)
    except FolderError:
        raise
    except Exception as error:
        raise ValueError(
            f"model: {str(folder)!r} holds no causal language model that can be loaded"
            f" ({first_line(error)})"
        ) from error


def folder_classifier(folder: str | Path) -> Any:
    """The sequence classifier of one label in a local Hugging Face folder, in float32: a reward
    model.

    Raises:
        ValueError: the folder holds none that transformers reads from safetensors without code of
            the folder's own.
    """
    try:
        model = _load(folder, CLASSIFIER)
    except FolderError:
        raise
    except Exception as error:
        raise ValueError(
            f"model: {str(folder)!r} holds no sequence classifier that can be loaded"
            f" ({first_line(error)})"
        ) from error
    if model.config.num_labels != 1:
        raise FolderError(
            f"model: {str(folder)!r} has {model.config.num_labels} labels, but a reward model "
            "has one"
        )
    return model


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Within the context, transformers shows no progress bars for loading and writing weights,
    which would interrupt a command's own output."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _load(folder: str | Path, kind: str) -> Any:
    """A model of one of transformers' kinds from a validated folder."""
    import transformers

    check_folder(folder, kind)
    with torch.random.fork_rng(devices=[]), hide_progress_bars():
        loaded: Any = getattr(transformers, kind).from_pretrained(
            str(folder),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    model, info = loaded
    check_loaded(folder, info)
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        raise FolderError(f"model: {str(folder)!r} has weights that are NaN or infinite")
    if kind == CAUSAL:
        check_causal(model, folder)
    return model.eval()


@torch.no_grad()
def check_causal(model: Any, name: str | Path) -> None:
    """Raises FolderError if a token changes the model's outputs before it, as in an encoder, whose
    predictions are not probabilities of the next token; `name` is its name in the message.

    transformers loads BERT and its like as causal models and only warns.
    """
    ids = torch.tensor([[0, 0], [0, 1]], device=model.device)
    read = {"attention_mask": torch.ones_like(ids), "use_cache": False}
    first, second = model.eval()(input_ids=ids, **read).logits[:, 0]
    if not torch.allclose(first, second, rtol=0.0, atol=1e-4 * float(first.abs().max())):
        raise FolderError(
            f"model: {str(name)!r} has attention to later tokens (its model_type is "
            f"{model.config.model_type!r}), so it cannot generate text token by token; a causal "
            "language model is needed, such as one of GPT-2, Llama or Qwen2"
        )
