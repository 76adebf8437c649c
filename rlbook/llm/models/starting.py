"""The initial language model of a run on a token environment: the small built-in one, or a Hugging
Face folder.

From random weights no completion is ever right, and a reward of 0 teaches nothing. So the built-in
model has been taught about half of each built-in task before, and the weights ship with the package
(`weights/TASK.safetensors`, 16-bit floats): 0.1 M parameters, the same on every machine.
`rlbook.book.experiments.language_models.starting_weights` makes them: behaviour cloning of the right answers, from
new weights, stopped early.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load

from rlbook.errors import RequestError, system_reason
from rlbook.llm.environments.token_rows import NEW
from rlbook.llm.models.sources import SMALL_CONTEXT, folder_model, sized_model, small_llama
from rlbook.llm.tasks.task import Task
from rlbook.llm.tokenizers.tokenizer import Codec, character_codec, same_tokens
from rlbook.seeding import torch_generator

WEIGHTS = Path(__file__).parent / "weights"
DIGESTS = {
    "addition": "dea455117ee09c7afae52e210944dddc440a1c1b80ae1eec8c7455273175c1f1",
    "reverse": "43e86d3510f3f337074b5a21b7a8fcb5a4e32ad601b63439ab1e714f9ea93a96",
}
"""Task → sha256 of its file of weights."""


def starting_model(
    task: Task,
    model: str | None,
    rng: np.random.Generator,
    config: Mapping[str, object] | None = None,
    *,
    codec: Codec | None = None,
    context: int = 0,
) -> Any:
    """A `transformers` causal language model in float32.

    Args:
        task: what it is to write answers for.
        model: a local Hugging Face folder; None for the small built-in model with the weights of
            this task, or with weights of `rng`'s where the task has none; "new" for weights of
            `rng`'s in any case.
        rng: draws new weights, those of a folder without weights among them.
        config: instead of `model`, the sizes of a new one; see
            `rlbook.llm.models.sources.sized_model`.
        codec: which tokens a new model has; None for those of the task's characters. The weights
            that ship know the characters alone.
        context: tokens that a new model says it reads, where `config` does not say it and they are
            more than the small model's; other programs refuse a longer text.

    Raises:
        ValueError: the folder holds no model that can be loaded.
        RequestError: the weights in the package are damaged.
    """
    if model is not None and model != NEW:
        return folder_model(model, rng)
    characters = character_codec(task.characters, task.words)
    codec = characters if codec is None else codec
    if config is not None:
        return sized_model(config, codec, rng, context=context)
    small = small_llama(torch_generator(rng), codec, context=max(context, SMALL_CONTEXT))
    if model is None and task.name in DIGESTS and same_tokens(codec, characters):
        small.load_state_dict(load(taught_weights(task.name)))
    return small


def taught_weights(task: str) -> bytes:
    """The shipped weights of a task, as bytes. Raises RequestError if they have been modified."""
    path = WEIGHTS / f"{task}.safetensors"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read ({system_reason(error)}); install rlbook again"
        ) from None
    if hashlib.sha256(data).hexdigest() != DIGESTS[task]:
        raise RequestError(
            f"{path} has been changed: its sha256 is not the one that rlbook was released with;"
            " install rlbook again"
        )
    return data
