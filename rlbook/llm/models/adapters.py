"""Attaches and detaches LoRA adapters of a language model, and reads and writes adapter files.

An adapter is a small change of some layers, such as LoRA's W + B A, that is trained while W stays
as it was. So the model from before the training needs no memory of its own: it is the same one with
the adapters off. A file is peft's: adapter_config.json and adapter_model.safetensors. The layers
are the book's own (`rlbook.llm.models.lora`), or peft's where the settings ask for more than that
knows.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from rlbook.agent import State
from rlbook.checks import did_you_mean
from rlbook.llm.generation.prompt_rows import PromptRows
from rlbook.llm.models import causal_lm
from rlbook.llm.models.lora import LoraSettings, add_lora, lora_layers
from rlbook.llm.models.model_folder import read_json
from rlbook.llm.models.sources import seed_torch
from rlbook.seeding import torch_generator

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

OWN = tuple(field.name for field in dataclasses.fields(LoraSettings))
PEFT_ONLY = (
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
    "bias",
    "fan_in_fan_out",
    "modules_to_save",
)
"""Further settings of peft's that an adapter may have. Others import modules or unpickle files that
they name."""
NEUTRAL = (
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "init_lora_weights",
    "peft_type",
    "peft_version",
    "revision",
    "task_type",
)
"""Settings in an adapter_config.json without effect on an adapter whose weights are loaded."""
DEFAULTS: dict[str, object] = {
    "layer_replication": None,
    "loftq_config": {},
    "lora_bias": False,
    "megatron_core": "megatron.core",
    "qalora_group_size": 16,
    "use_qalora": False,
    "ensure_weight_tying": False,
    "bias": "none",
    "fan_in_fan_out": False,
}
"""peft's defaults, where they are neither null nor empty."""
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
"""The prefix of a layer's name in peft's files."""


def add_adapter(
    model: PreTrainedModel, adapter: str | Mapping[str, object], rng: np.random.Generator
) -> Any:
    """The language model with a LoRA adapter, whose parameters are the only trainable ones.

    Args:
        model: a `transformers` causal language model; its layers are changed in place.
        adapter: a folder in peft's format, with safetensors weights; or the settings of a new
            adapter, which changes nothing yet.
        rng: draws the weights of a new one.

    Raises:
        ValueError: the adapter does not fit the model, or needs peft, and that is not installed.
    """
    folder = None if isinstance(adapter, Mapping) else Path(adapter)
    asked = (
        _check_settings(adapter)
        if isinstance(adapter, Mapping)
        else _folder_settings(Path(adapter))
    )
    if more := [name for name in asked if name not in OWN]:
        return _peft_model(model, asked, rng, folder, f"{more[0]} of an adapter")
    if _has_conv1d(model) or getattr(model, "is_loaded_in_4bit", False):
        return _peft_model(model, asked, rng, folder, f"an adapter of {type(model).__name__}")
    try:
        settings = LoraSettings(**asked)
    except (ValueError, TypeError) as error:
        raise ValueError(f"adapter: {error}") from None
    add_lora(model, settings, torch_generator(rng))
    if folder is not None:
        _load(model, folder)
    return model


@torch.no_grad()
def _load(model: nn.Module, folder: Path) -> None:
    """Loads the folder's weights into the adapter; names and shapes must match exactly."""
    held = _folder_weights(folder)
    below = {
        f"{PREFIX}{name}": weight
        for name, weight in model.named_parameters()
        if ".base_layer." in name
    }
    # peft writes the output layer's own weights too, where that has an adapter
    for name in held.keys() & below.keys():
        if not torch.equal(held.pop(name), below[name]):
            raise ValueError(
                f"adapter: {str(folder)!r} was trained beside another"
                f" {name.removeprefix(PREFIX)[:80]}"
            )
    _check_fit(folder, held, adapter_weights(model))
    for name, weight in adapter_weights(model).items():
        weight.copy_(held[name])


def _has_conv1d(model: nn.Module) -> bool:
    """Whether the model has transformers' Conv1D layers, as GPT-2 does, whose weight matrices are
    transposed."""
    return any(type(module).__name__ == "Conv1D" for module in model.modules())


def adapter_weights(model: nn.Module) -> dict[str, Tensor]:
    """The adapter's parameters under peft's names; the tensors are not copied."""
    return {
        f"{PREFIX}{name}.{part}": weight
        for name, layer in lora_layers(model)
        for part, weight in layer.named_parameters()
        if not part.startswith("base_layer.")
    }


def save_adapter(model: nn.Module, folder: Path, base: str | None) -> None:
    """Writes the adapter in peft's format.

    Args:
        model: with the book's adapters.
        folder: exists.
        base: the folder of the model below, which the file names.
    """
    from safetensors.torch import save_file

    settings = next(layer.settings for _, layer in lora_layers(model))
    facts = dataclasses.asdict(settings) | {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "bias": "none",
    }
    (folder / CONFIG).write_text(
        json.dumps(facts | {"inference_mode": True}, indent=1, sort_keys=True) + "\n",
        encoding="utf-8",
    )
    weights = {
        name: weight.detach().cpu().contiguous() for name, weight in adapter_weights(model).items()
    }
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def _check_settings(settings: Mapping[str, object]) -> dict[str, Any]:
    """Validates an adapter's settings; settings without effect are removed."""
    for name in settings:
        if name not in OWN + PEFT_ONLY:
            hint = did_you_mean(name, OWN + PEFT_ONLY)
            raise ValueError(
                f"adapter: {name!r} is not a setting of an adapter here{hint} (they are:"
                f" {', '.join(OWN + PEFT_ONLY)})"
            )
    return {name: value for name, value in settings.items() if not _asks_nothing(name, value)}


def _asks_nothing(name: str, value: object) -> bool:
    return value is None or value in ({}, []) or value == DEFAULTS.get(name)


def _folder_settings(folder: Path) -> dict[str, Any]:
    """The settings in adapter_config.json. Raises ValueError unless they describe a LoRA that acts
    only through its weights."""
    try:
        written = read_json(folder / CONFIG)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"adapter: {str(folder)!r} must be a folder with a readable {CONFIG}"
        ) from error
    if not isinstance(written, dict) or written.get("peft_type") != "LORA":
        raise ValueError(f"adapter: {str(folder)!r} must hold an adapter of peft_type LORA")
    if written.get("init_lora_weights") not in (None, True, False, "gaussian"):
        raise ValueError(
            f"adapter: {str(folder)!r} changes the model's own weights (init_lora_weights), which"
            " is not supported"
        )
    for name, value in written.items():
        if name not in OWN + PEFT_ONLY + NEUTRAL and not _asks_nothing(name, value):
            raise ValueError(
                f"adapter: {str(folder)!r} asks for {name[:60]} in its {CONFIG}, which is not"
                " supported"
            )
    return _check_settings(
        {name: value for name, value in written.items() if name in OWN + PEFT_ONLY}
    )


def _folder_weights(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = folder / WEIGHTS
    if not file.is_file():
        raise ValueError(f"adapter: {str(folder)!r} has no file named {file.name}")
    try:
        weights = load_file(file)
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"adapter: {str(folder)!r} has a damaged file {file.name} ({str(error)[:80]})"
        ) from error
    if not all(weight.isfinite().all() for weight in weights.values()):
        raise ValueError(f"adapter: {str(folder)!r} has weights that are NaN or infinite")
    return weights


def _check_fit(folder: Path, held: Mapping[str, Tensor], needed: Mapping[str, Tensor]) -> None:
    """Raises ValueError unless the folder's weights match the adapter exactly."""
    odd = sorted(
        name
        for name in held.keys() | needed.keys()
        if not _same_shape(held.get(name), needed.get(name))
    )
    if odd:
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        raise ValueError(f"adapter: {str(folder)!r} does not fit the model: {odd[0][:120]}{more}")


def _same_shape(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape


LIST_HINT = " A text must match a layer's whole name; ends of names stand in a list, as in [c_attn]"


def _peft_model(
    model: PreTrainedModel,
    asked: dict[str, Any],
    rng: np.random.Generator,
    folder: Path | None,
    what: str,
) -> Any:
    """Wraps the model in a `PeftModel`."""
    try:
        import peft
    except ImportError:
        raise ValueError(f'{what} needs peft: pip install "rlbook[lora]"') from None
    with seed_torch(rng), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft reads a property that transformers has renamed
        try:
            settings: Any = {"task_type": "CAUSAL_LM", "target_modules": "all-linear"} | asked
            adapted: Any = peft.get_peft_model(model, peft.LoraConfig(**settings))
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            in_text = isinstance(asked.get("target_modules"), str) and "not found" in str(error)
            hint = LIST_HINT if in_text else ""
            raise ValueError(f"adapter: {' '.join(str(error).split())[:300]}{hint}") from error
    if folder is not None:
        weights = _folder_weights(folder)
        _check_fit(
            folder, weights, peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
        )
        peft.set_peft_model_state_dict(adapted, weights)
    return adapted.eval()


def trains_adapters_alone(model: nn.Module) -> bool:
    """Whether only the adapters of `model` are trainable (the book's or peft's), so that the base
    model is unchanged."""
    if not (is_peft(model) or any(lora_layers(model))):
        return False
    with disable_adapters(model):
        own = {id(weight) for weight in adapter_weights(model).values()}
        return not any(
            parameter.requires_grad and id(parameter) not in own for parameter in model.parameters()
        )


@torch.no_grad()
def adapters_change_nothing(model: Any) -> bool:
    """Whether the model computes the same with its adapters as without them, as with new ones."""
    tokens = torch.arange(min(4, model.get_input_embeddings().num_embeddings), device=model.device)
    found = model(input_ids=tokens[None], use_cache=False).logits
    with disable_adapters(model):
        return torch.equal(found, model(input_ids=tokens[None], use_cache=False).logits)


def is_peft(model: nn.Module) -> bool:
    """Whether the model is a `PeftModel`."""
    return hasattr(model, "disable_adapter") and hasattr(model, "peft_config")


@contextmanager
def disable_adapters(model: nn.Module) -> Iterator[None]:
    """Disables the model's adapters within the context. Which parameters are trainable stays the
    same."""
    layers = [(layer, layer.enabled) for _, layer in lora_layers(model)]
    trained = (
        [(parameter, parameter.requires_grad) for parameter in model.parameters()]
        if is_peft(model)
        else []
    )
    with ExitStack() as stack:
        try:
            for layer, _ in layers:
                layer.enabled = False
            if is_peft(model):
                stack.enter_context(cast("PeftModel", model).disable_adapter())
            yield
        finally:
            stack.close()
            for layer, enabled in layers:
                layer.enabled = enabled
            for parameter, was_trained in trained:  # peft would train every adapter from here on
                parameter.requires_grad_(was_trained)


class DecoderWithoutAdapters:
    """A decoder that disables the model's adapters."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        with disable_adapters(model):
            self.decoder = causal_lm.decoder(cast("PreTrainedModel", model))

    def prefill(self, rows: PromptRows, new_tokens: int) -> Tensor:
        with disable_adapters(self.model):
            return self.decoder.prefill(rows, new_tokens)

    def step(self, token: Tensor) -> Tensor:
        with disable_adapters(self.model):
            return self.decoder.step(token)

    def select(self, rows: Tensor) -> None:
        self.decoder.select(rows)

    def state_dict(self) -> State:
        return self.decoder.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.decoder.load_state_dict(state)
