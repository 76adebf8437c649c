"""Opens what `rlbook serve` serves: the language model of a run, or of a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbook.errors import RequestError, request_errors
from rlbook.runs.exporting import token_env_of
from rlbook.runs.parts import check_device, device_of, model_folder
from rlbook.runs.run import load_policy

if TYPE_CHECKING:
    from rlbook.llm.serving.served_model import ServedModel

DTYPES = ("float32", "bfloat16", "float16")


def open_served_model(
    folder: str | Path,
    *,
    name: str | None = None,
    checkpoint: int | str | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    allow_import: bool = False,
) -> ServedModel:
    """The language model in a folder, ready to be served; a run's adapter is merged into its model.

    Args:
        folder: a run's, or a Hugging Face folder.
        name: what requests call it; None for the folder's name.
        checkpoint, allow_import: as in `rlbook.load`.
        dtype: of weights and arithmetic.
        device: cpu, cuda or auto.

    Raises:
        RequestError: one sentence: there is no such model.
    """
    if dtype not in DTYPES:
        raise RequestError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    check_device(device)
    import torch

    from rlbook.llm.serving.served_model import ServedModel

    model, codec, context = (
        _model_of_folder(str(folder), checkpoint)
        if model_folder(folder)
        else _model_of_run(folder, checkpoint, allow_import)
    )
    model = model.to(device=device_of(device), dtype=getattr(torch, dtype)).eval()
    return ServedModel(model, codec, name or Path(folder).absolute().name, context)


def _model_of_folder(folder: str, checkpoint: int | str | None) -> tuple[Any, Any, int]:
    """The model of a Hugging Face folder, its tokenizer and its context in tokens."""
    if checkpoint is not None:
        raise RequestError(
            f"{folder} holds a model, which has no checkpoints; leave checkpoint out"
        )
    from rlbook.llm.models.sources import folder_model
    from rlbook.llm.tokenizers.chat_codec import chat_codec
    from rlbook.llm.tokenizers.tokenizer import folder_codec

    with request_errors():
        codec = chat_codec(folder_codec(folder))
        return folder_model(folder), codec, codec.limit


def _model_of_run(
    folder: str | Path, checkpoint: int | str | None, allow_import: bool
) -> tuple[Any, Any, int]:
    """The policy that a run has trained, with the tokenizer, the system text and the shots of its
    environment."""
    from rlbook.llm.models.adapters import is_peft
    from rlbook.llm.models.export import language_model_of, merge_peft
    from rlbook.llm.models.language_model import LanguageModelPolicy
    from rlbook.llm.models.lora import merge_lora

    run = load_policy(folder, checkpoint=checkpoint, allow_import=allow_import)
    policy, env = language_model_of(run.agent), token_env_of(run.request.recipe)
    if not isinstance(policy, LanguageModelPolicy) or env is None:
        raise RequestError(
            f"{folder} holds {run.request.algorithm} on {run.request.recipe.name}, but only the"
            " policy of a language model trained on a token environment can be served"
        )
    model: Any = policy.model
    model = merge_peft(model) if is_peft(model) else model
    merge_lora(model)
    codec = env.codec
    own = codec.context or getattr(model.config, "max_position_embeddings", None) or codec.limit
    return model, codec, max(own, env.rules.context_length)
