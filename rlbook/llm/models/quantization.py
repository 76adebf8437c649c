"""Loads a folder's model with 4-bit weights, for training an adapter on it (QLoRA).

The weights of the linear layers are kept as one of 16 numbers each (NF4), with a scale for every 64
of them, and turned into bfloat16 where they are multiplied. Nothing can be trained in them; the
adapter beside them is in float32. Source: Dettmers et al. 2023, arXiv:2305.14314; the numbers are
bitsandbytes's.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from rlbook.llm.models.model_folder import check_folder
from rlbook.llm.tokenizers.tokenizer import first_line

PACKAGES = ("bitsandbytes", "accelerate", "peft")


def four_bit_model(folder: str | Path) -> Any:
    """The causal LM of a folder with weights, on the GPU, its linear layers quantised to four bits.

    On a CPU bitsandbytes multiplies without a gradient, and says so in a warning only: nothing
    below the last such layer would learn.

    Raises:
        ValueError: a package or the GPU is missing, or the folder holds no such model.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"dtype 4bit needs {' and '.join(missing)}; pip install {' '.join(missing)}"
        )
    if not torch.cuda.is_available():
        raise ValueError("dtype 4bit needs a GPU, but none is available")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    check_folder(folder)
    settings = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=torch.bfloat16,
        bnb_4bit_use_double_quant=True,
    )
    try:
        with torch.random.fork_rng(devices=[]):
            model = AutoModelForCausalLM.from_pretrained(
                str(folder),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
                quantization_config=settings,
                device_map={"": "cuda"},
            )
    except Exception as error:
        raise ValueError(
            f"model: {str(folder)!r} cannot be loaded in four bits ({first_line(error)})"
        ) from error
    return model.eval()
