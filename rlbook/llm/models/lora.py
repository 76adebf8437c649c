"""LoRA: a weight matrix W is frozen, and a low-rank product B A is trained and added to it.

    y = W x + s · B A x          A [r, d_in] is drawn, B [d_out, r] starts at 0,   s = α / r

So the model says at first what it said without, and of d_in · d_out numbers r · (d_in + d_out) are
trained. Three options:

    rsLoRA      s = α / √r: the change then keeps its size as r grows, which α / r makes ever smaller
    DoRA        y = m ∘ (W x + s · B A x) / ‖W + s · B A‖,   m [d_out] starts at ‖W‖: direction and length are trained apart
    dropout     A reads x with some numbers set to 0, where gradients are recorded and nowhere else

Learned, it can be added to W for good: W + s · B A. Switched off, it leaves the model from before.
Source: Hu et al. 2022, arXiv:2106.09685, eq. 3; rsLoRA: Kalajdzievski 2023, arXiv:2312.03732; DoRA:
Liu et al. 2024, arXiv:2402.09353, eq. 5, the norm without gradient (section 4.3). Names, settings
and numbers are peft's. Deliberate difference: dropout draws from a seed of its own.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.checks import positive, positive_int, share_below_one
from rlbook.hyperparameters import Hyperparameters

ALL_LINEAR = "all-linear"


@dataclass(frozen=True)
class LoraSettings(Hyperparameters):
    """An adapter's settings, named as in peft's adapter_config.json."""

    # rank: rows of A, columns of B
    r: Annotated[int, positive_int] = 8
    lora_alpha: Annotated[float, positive] = 8  # α
    # dropout probability of A's inputs in training
    lora_dropout: Annotated[float, share_below_one] = 0.0
    # every linear layer but the output layer; or suffixes of layer names; or a regular expression
    # that matches whole names
    target_modules: str | Sequence[str] = ALL_LINEAR
    exclude_modules: Sequence[str] = ()  # suffixes of layer names
    use_rslora: bool = False
    use_dora: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("target_modules", "exclude_modules"):
            names = getattr(self, name)
            listed = isinstance(names, list | tuple) and all(
                isinstance(part, str) for part in names
            )
            if not listed and not (name == "target_modules" and isinstance(names, str)):
                raise ValueError(f"{name} must be a list of layers' names, got {names!r}"[:200])

    @property
    def scaling(self) -> float:
        """s, the factor of the product B A."""
        return self.lora_alpha / (math.sqrt(self.r) if self.use_rslora else self.r)


class LoraLinear(nn.Module):
    """A linear layer with a LoRA adapter; only the adapter is trained.

    Args:
        base_layer: W [d_out, d_in], with or without a bias.
        settings: the adapter's.
        dropout: of x, shared by all layers of a model; None for none.
        generator: draws A, uniformly in ± 1 / √d_in.
    """

    def __init__(
        self,
        base_layer: nn.Linear,
        settings: LoraSettings,
        dropout: Dropout | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        weight, width = base_layer.weight, base_layer.in_features
        dtype = torch.float32 if weight.dtype in (torch.float16, torch.bfloat16) else weight.dtype
        self.base_layer = base_layer.requires_grad_(False)
        self.lora_A = _empty_linear(width, settings.r, dtype)
        self.lora_B = _empty_linear(settings.r, base_layer.out_features, dtype)
        nn.init.uniform_(self.lora_A.weight, -1 / math.sqrt(width), 1 / math.sqrt(width), generator)
        nn.init.zeros_(self.lora_B.weight)
        self.to(weight.device)
        self.settings, self.scaling, self.dropout = settings, settings.scaling, dropout
        self.lora_magnitude_vector = (
            nn.Parameter(_length(weight).to(dtype)) if settings.use_dora else None
        )
        self.enabled = True

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_in] → [..., d_out]."""
        y = self.base_layer(x)
        if not self.enabled:
            return y
        seen = x.to(self.lora_A.weight.dtype)
        if self.dropout is not None:
            seen = self.dropout(seen)
        change = self.scaling * self.lora_B(self.lora_A(seen))
        if self.lora_magnitude_vector is not None:
            gain = self.gain(self.lora_magnitude_vector)
            change = gain * change + (gain - 1) * F.linear(
                seen, self.base_layer.weight.to(seen.dtype)
            )
        return (y + change).to(y.dtype)

    def gain(self, magnitude: Tensor) -> Tensor:
        """DoRA's m / ‖W + s B A‖: [d_out], initially 1."""
        with torch.no_grad():
            length = _length(self.sum())
        return magnitude / length

    def sum(self) -> Tensor:
        """The effective weight W + s B A, [d_out, d_in]."""
        return (
            self.base_layer.weight.to(self.lora_A.weight.dtype)
            + self.scaling * self.lora_B.weight @ self.lora_A.weight
        )

    @torch.no_grad()
    def merge(self) -> nn.Linear:
        """An equivalent linear layer without an adapter."""
        weight, bias, magnitude = self.sum(), self.base_layer.bias, self.lora_magnitude_vector
        if magnitude is not None:
            weight = self.gain(magnitude)[:, None] * weight
        layer = _empty_linear(weight.shape[1], weight.shape[0], weight.dtype)
        layer.weight = nn.Parameter(weight.to(self.base_layer.weight.dtype), requires_grad=False)
        layer.bias = bias
        return layer


def _empty_linear(width: int, height: int, dtype: torch.dtype) -> nn.Linear:
    """A linear layer without bias and with uninitialised weights; torch would draw them from a
    global generator."""
    layer: Any = nn.utils.skip_init(nn.Linear, width, height, bias=False, dtype=dtype)
    return layer


class Dropout(nn.Module):
    """Dropout: sets elements to 0 with probability p and scales the others by 1 / (1 - p), if
    gradients are enabled.

    The mask of the n-th call follows from the seed and n, so a run that goes on draws what it would
    have drawn.
    """

    drawn: Tensor

    def __init__(self, p: float, seed: int) -> None:
        super().__init__()
        self.p, self.seed = p, seed
        self.register_buffer("drawn", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return x
        generator = torch.Generator(x.device).manual_seed(self.seed + int(self.drawn))
        self.drawn += 1
        kept = torch.rand(x.shape, generator=generator, device=x.device) >= self.p
        return x * kept / (1 - self.p)


def add_lora(model: nn.Module, settings: LoraSettings, generator: torch.Generator) -> None:
    """Adds an adapter to each layer that the settings target, in place, and freezes all other
    parameters.

    Raises:
        ValueError: a name that is not a linear layer's.
    """
    chosen = targets(model, settings)
    model.requires_grad_(False)
    seed = int(torch.randint(2**62, (), generator=generator))
    dropout = Dropout(settings.lora_dropout, seed) if settings.lora_dropout else None
    for name, layer in chosen.items():
        _replace(model, name, LoraLinear(layer, settings, dropout, generator))


def targets(model: nn.Module, settings: LoraSettings) -> dict[str, nn.Linear]:
    """Name → layer, for the layers that the settings target."""
    asked, output = settings.target_modules, _output_layer(model)
    linear = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)
    }
    if isinstance(asked, str):
        found = (
            [name for name in linear if linear[name] is not output]
            if asked == ALL_LINEAR
            else _matching_names(asked, linear)
        )
    else:
        for part in asked:
            if not any(_has_suffix(name, part) for name in linear):
                raise ValueError(_unknown_message(part, linear))
        found = [name for name in linear if any(_has_suffix(name, part) for part in asked)]
    kept = [
        name
        for name in found
        if not any(_has_suffix(name, part) for part in settings.exclude_modules)
    ]
    if not kept:
        raise ValueError(f"adapter: target_modules {asked!r} and exclude_modules select no layer")
    return {name: linear[name] for name in kept}


def _output_layer(model: nn.Module) -> object:
    return getattr(model, "get_output_embeddings", lambda: None)()


def _has_suffix(name: str, part: str) -> bool:
    return name == part or name.endswith(f".{part}")


def _matching_names(pattern: str, names: Sequence[str] | dict[str, nn.Linear]) -> list[str]:
    try:
        found = [name for name in names if re.fullmatch(pattern, name)]
    except re.error as error:
        raise ValueError(
            f"adapter: target_modules {pattern[:60]!r} is not a regular expression ({error})"
        ) from None
    if not found:
        raise ValueError(
            f"adapter: target_modules {pattern[:60]!r} matches no linear layer's whole name, such"
            f" as {next(iter(names))!r}; ends of names stand in a list, as in [q_proj, v_proj]"
        )
    return found


def _unknown_message(part: str, linear: dict[str, nn.Linear]) -> str:
    ends = sorted({name.rpartition(".")[2] for name in linear})
    (match,) = difflib.get_close_matches(part, ends, n=1, cutoff=0.0)
    what = (
        f"adapter: target_modules names {part[:60]!r}, but no linear layer of the model has this "
        "name"
    )
    return f"{what}; did you mean {match!r}? (they are: {', '.join(ends)})"


def lora_layers(model: nn.Module) -> Iterator[tuple[str, LoraLinear]]:
    """The layers with an adapter, by name."""
    return (
        (name, module) for name, module in model.named_modules() if isinstance(module, LoraLinear)
    )


def merge_lora(model: Any) -> None:
    """Merges each adapter into its layer, in place: the result is an ordinary model."""
    output = _output_layer(model)
    for name, layer in list(lora_layers(model)):
        _replace(model, name, layer.merge())
        if layer is output:  # it may have shared W with the embedding, which stays as it is
            model.config.tie_word_embeddings = False


def remove_lora(model: nn.Module) -> None:
    """Removes each adapter, in place: the result is the original model."""
    for name, layer in list(lora_layers(model)):
        _replace(model, name, layer.base_layer)


def _replace(model: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, layer)


def _length(weight: Tensor) -> Tensor:
    """The L2 norm of each row, [d_out]."""
    return torch.linalg.vector_norm(weight, dim=1)
