"""A language model with adapters of peft, and the same model without them.

An adapter is a small change of some layers, such as LoRA's W + B A, that is trained while W stays as it was. So the model from before the
training needs no memory of its own: it is the same one with the adapters off.
Source: Hu et al. 2022, arXiv:2106.09685, eq. 3.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor, nn

from rlbook.agent import State
from rlbook.checks import nearest
from rlbook.llm import causal_lm
from rlbook.llm.model_folder import read_json
from rlbook.llm.models import seeded
from rlbook.llm.rows import Rows

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

SETTINGS = (
    "r", "lora_alpha", "lora_dropout", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "rank_pattern",
    "alpha_pattern", "bias", "use_rslora", "use_dora", "fan_in_fan_out", "modules_to_save",
)  # fmt: skip
"""What an adapter may ask for, by peft's names. Others of peft's settings import modules or unpickle files that they name."""
NEUTRAL = (
    "auto_mapping", "base_model_name_or_path", "inference_mode", "init_lora_weights", "peft_type", "peft_version", "revision", "task_type",
)  # fmt: skip
"""What an adapter_config.json says beside them, without effect on an adapter whose weights are loaded."""


def with_adapter(model: PreTrainedModel, adapter: str | Mapping[str, object], rng: np.random.Generator) -> Any:
    """The language model in a `PeftModel` with a LoRA adapter, which is all that is trained.

    Args:
        model: a `transformers` causal language model; its layers are changed in place.
        adapter: a folder that peft has written, with safetensors weights; or the settings of a new adapter, which changes nothing yet.
        rng: draws the weights of a new one.

    Raises:
        ValueError: peft is not installed, or the adapter does not fit the model.
    """
    try:
        import peft
    except ImportError:
        raise ValueError("an adapter needs peft; install rlbook[lora]") from None
    folder = None if isinstance(adapter, Mapping) else Path(adapter)
    checked = _checked(adapter) if isinstance(adapter, Mapping) else _folder_settings(Path(adapter), peft.LoraConfig().to_dict())
    with seeded(rng), warnings.catch_warnings():
        warnings.simplefilter("ignore")                      # peft reads a property that transformers has renamed
        try:
            adapted: Any = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **checked))
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            raise ValueError(f"adapter: {' '.join(str(error).split())[:300]}") from error
    if folder is not None:
        _load(adapted, folder)
    return adapted.eval()


def _checked(settings: Mapping[str, object]) -> dict[str, Any]:
    """The settings of a `LoraConfig`."""
    for name in settings:
        if name not in SETTINGS:
            match = nearest(name, SETTINGS)
            hint = f"; did you mean {match!r}?" if match else ""
            raise ValueError(f"adapter: {name!r} is no setting of an adapter here{hint} (they are: {', '.join(SETTINGS)})")
    return dict(settings)


def _folder_settings(folder: Path, defaults: Mapping[str, object]) -> dict[str, Any]:
    """What adapter_config.json asks for. Raises ValueError where that is not a LoRA whose whole effect is in its weights."""
    try:
        written = read_json(folder / "adapter_config.json")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"adapter: {str(folder)!r} must be a folder with a readable adapter_config.json") from error
    if not isinstance(written, dict) or written.get("peft_type") != "LORA":
        raise ValueError(f"adapter: {str(folder)!r} must hold an adapter of peft_type LORA")
    if written.get("init_lora_weights") not in (None, True, False, "gaussian"):
        raise ValueError(f"adapter: {str(folder)!r} changes the model's own weights (init_lora_weights), which is not supported")
    for name, value in written.items():
        if name not in SETTINGS + NEUTRAL and value is not None and value != defaults.get(name):
            raise ValueError(f"adapter: {str(folder)!r} asks for {name[:60]} in its adapter_config.json, which is not supported")
    return {name: value for name, value in written.items() if name in SETTINGS}


def _load(adapted: PeftModel, folder: Path) -> None:
    """Puts the folder's weights into an adapter, all of them and no others."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = folder / "adapter_model.safetensors"
    if not file.is_file():
        raise ValueError(f"adapter: {str(folder)!r} has no file named {file.name}")
    try:
        weights = load_file(file)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"adapter: {str(folder)!r} has a damaged file {file.name} ({str(error)[:80]})") from error
    made = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    odd = sorted(name for name in made.keys() | weights.keys() if not _same_shape(made.get(name), weights.get(name)))
    if odd:
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        raise ValueError(f"adapter: {str(folder)!r} does not fit the model: {odd[0][:120]}{more}")
    if not all(weight.isfinite().all() for weight in weights.values()):
        raise ValueError(f"adapter: {str(folder)!r} has weights that are NaN or infinite")
    set_peft_model_state_dict(adapted, weights)


def _same_shape(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape


def trains_adapters_alone(model: nn.Module) -> bool:
    """Whether `model` is a `PeftModel` that trains nothing but its adapters, so that without them it is what it was before."""
    if not (hasattr(model, "disable_adapter") and hasattr(model, "peft_config")):
        return False
    with adapters_off(cast("PeftModel", model)):
        return not any(parameter.requires_grad for parameter in model.parameters())


@contextmanager
def adapters_off(model: PeftModel) -> Iterator[None]:
    """Inside, the adapters of a `PeftModel` change nothing. Which parameters are trained is the same before and after."""
    trained = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        with model.disable_adapter():
            yield
    finally:
        for parameter, was_trained in trained:               # peft would train every adapter from here on
            parameter.requires_grad_(was_trained)


class DecoderWithoutAdapters:
    """A decoder of the model with its adapters off."""

    def __init__(self, model: PeftModel) -> None:
        self.model, self.decoder = model, causal_lm.decoder(model)

    def prefill(self, rows: Rows, new_tokens: int) -> Tensor:
        with adapters_off(self.model):
            return self.decoder.prefill(rows, new_tokens)

    def step(self, token: Tensor) -> Tensor:
        with adapters_off(self.model):
            return self.decoder.step(token)

    def state_dict(self) -> State:
        return self.decoder.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.decoder.load_state_dict(state)
