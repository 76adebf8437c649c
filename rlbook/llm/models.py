"""Where the causal language models come from: a small Llama made here, or a local Hugging Face folder. Nothing is ever downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rlbook.llm.model_folder import FolderError, check_folder, check_loaded
from rlbook.llm.tokenizer import character_codec, first_line


def small_llama(
    generator: torch.Generator, *, vocabulary_size: int | None = None, hidden_size: int = 64, feed_forward: int = 256, layers: int = 2,
    heads: int = 4, kv_heads: int | None = None, context: int = 64,
) -> Any:  # fmt: skip
    """A `LlamaForCausalLM` of 0.1 M parameters by default, its weights drawn from `generator` alone.

    Matrices are normal with standard deviation 0.02, as in GPT-2; norms are 1.
    """
    from transformers.models.llama import LlamaConfig, LlamaForCausalLM

    codec = character_codec()
    config = LlamaConfig(
        vocab_size=vocabulary_size or codec.vocabulary_size, hidden_size=hidden_size, intermediate_size=feed_forward,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads or heads, max_position_embeddings=context,
        pad_token_id=codec.pad, bos_token_id=codec.bos, eos_token_id=codec.eos, architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):                                          # the constructor draws from the global generator
        model = LlamaForCausalLM(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, 0.02, generator=generator)
    return model.eval()


def folder_model(folder: str | Path) -> Any:
    """The causal LM in a local Hugging Face folder, in float32.

    Raises:
        ValueError: the folder holds no causal LM that transformers reads from safetensors without code of the folder's own.
    """
    from transformers import AutoModelForCausalLM

    try:
        check_folder(folder)
        with torch.random.fork_rng(devices=[]):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=torch.float32,
                output_loading_info=True,
            )
            model, info = loaded
        check_loaded(folder, info)
    except FolderError:
        raise
    except Exception as error:
        raise ValueError(f"model: {str(folder)!r} holds no causal language model that can be loaded ({first_line(error)})") from error
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        raise ValueError(f"model: {str(folder)!r} has weights that are NaN or infinite")
    return model.eval()
