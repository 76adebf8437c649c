"""Settings for the forward pass of a language model: its number format, and whether it stores or
recomputes what its gradient needs.

    compute = bfloat16            weights, their gradients and Adam's moments stay float32; the
                                  matrices are rounded to bfloat16 as they are multiplied
    gradient_checkpointing        of each layer only the input is kept, and the layer is computed
                                  once more in the backward pass

A bfloat16 number has 8 significant bits in place of 24, and half the bytes. What adds up many small
changes stays in float32: the weights (a step smaller than 1/512 of a weight would round to
nothing), the sum that runs through the layers, norms, softmax. So does the output layer, from which
log-probabilities come: a logit of 16 in bfloat16 is off by up to 1/16 nat.

Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.1 (float32 master weights); Kalamkar
et al. 2019, arXiv:1905.12322 (bfloat16, no loss scaling); MiniMax 2025, arXiv:2506.13585, section
3.2 (output layer in float32); Chen et al. 2016, arXiv:1604.06174 (recomputation).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from rlbook.llm.models.lora import Dropout
from rlbook.networks.policy import module_device

ATTRIBUTE = "rlbook_compute"
"""The attribute under which a module stores its `Compute`; copies of the module keep it."""


T = TypeVar("T")
KERNELS = {
    SDPBackend.FLASH_ATTENTION: torch.backends.cuda.flash_sdp_enabled,
    SDPBackend.EFFICIENT_ATTENTION: torch.backends.cuda.mem_efficient_sdp_enabled,
    SDPBackend.MATH: torch.backends.cuda.math_sdp_enabled,
    SDPBackend.CUDNN_ATTENTION: torch.backends.cuda.cudnn_sdp_enabled,
}
"""torch's attention kernels, and whether each is switched on; flash and math exist on a CPU too."""


def disable_failing_attention() -> None:
    """Switches torch's flash attention off where it fails in bfloat16.

    If ATEN_CPU_CAPABILITY allows less than the processor could do, torch 2.13 packs the matrices
    for AVX-512 all the same and raises "pack_vnni2 is only supported when avx512 is supported".
    """
    if "ATEN_CPU_CAPABILITY" not in os.environ:
        return
    rows = torch.zeros(1, 1, 64, 32, dtype=torch.bfloat16)  # shorter ones are not packed
    try:
        F.scaled_dot_product_attention(rows, rows, rows)
    except RuntimeError:
        torch.backends.cuda.enable_flash_sdp(False)  # the CPU's too


disable_failing_attention()


class Compute(NamedTuple):
    """The compute settings of a module."""

    dtype: torch.dtype | None = None  # of matrix products; None: that of the weights
    gradient_checkpointing: bool = False


def set_compute(model: nn.Module, dtype: str | None, gradient_checkpointing: bool) -> None:
    """Sets the compute settings of a causal language model, and of its trunk, from which critics
    and reward networks are made.

    Args:
        model: of transformers, or peft's wrapper of one.
        dtype: "bfloat16", or None for that of the weights.
        gradient_checkpointing: whether layers are recomputed in the backward pass.

    Raises:
        ValueError: the architecture has no layers that can be recomputed one by one.
    """
    if gradient_checkpointing and not _layers(model):
        raise ValueError(
            f"gradient_checkpointing needs layers that transformers can recompute, and"
            f" {type(model).__name__} has none"
        )
    chosen = Compute(None if dtype is None else getattr(torch, dtype), gradient_checkpointing)
    below: Any = getattr(model, "get_base_model", lambda: model)()
    for module in (model, below, below.base_model):
        setattr(module, ATTRIBUTE, chosen)


def compute_of(module: nn.Module) -> Compute:
    """The compute settings of a module."""
    return module.__dict__.get(ATTRIBUTE, Compute())


def autocast(module: nn.Module) -> AbstractContextManager[object]:
    """Rounds the factors of matrix products within the context, if the module's settings ask for
    it."""
    dtype = compute_of(module).dtype
    return nullcontext() if dtype is None else torch.autocast(module_device(module).type, dtype)


@contextmanager
def compute_context(model: nn.Module) -> Iterator[None]:
    """Within the context, the forward pass of transformers' module uses the settings of
    `set_compute`.

    transformers' own gradient checkpointing is off in a model that is not in training mode, where
    this book's are, since dropout stays off.
    """
    asked = compute_of(model)
    with ExitStack() as stack:
        if asked.dtype is not None:
            stack.enter_context(autocast(model))
            output = getattr(model, "get_output_embeddings", lambda: None)()
            if output is not None:
                stack.enter_context(_replace_forward(output, _forward_without_autocast(output)))
        if asked.gradient_checkpointing and torch.is_grad_enabled():
            for layer in _layers(model):
                stack.enter_context(_replace_forward(layer, partial(recompute, layer.forward)))
        yield


def recompute(function: Callable[..., T], *args: object, **kwargs: object) -> T:
    """Calls a part of the forward pass of which only the inputs are stored for the gradient.

    In the second computation an adapter's dropout draws what it drew in the first, and attention is
    computed by the same kernels.
    """
    owner: Any = getattr(function, "__self__", None)
    dropouts = (
        {id(part): part for part in owner.modules() if isinstance(part, Dropout)}
        if isinstance(owner, nn.Module)
        else {}
    )
    again = _SecondComputation(list(dropouts.values()))
    return checkpoint(
        partial(function, **kwargs),
        *args,
        use_reentrant=False,
        context_fn=lambda: (nullcontext(), again),
    )


def _attention_kernels() -> list[SDPBackend]:
    """The kernels that `scaled_dot_product_attention` may currently use."""
    return [kernel for kernel, enabled in KERNELS.items() if enabled()]


class _SecondComputation:
    """A context that can be entered several times, once for each backward pass: within it the
    counters of dropouts are restored, and attention uses the kernels that it uses now."""

    def __init__(self, dropouts: list[Dropout]) -> None:
        self.drawn = [(part, part.drawn.clone()) for part in dropouts]
        self.kernels = _attention_kernels()

    def __enter__(self) -> None:
        self.stack = ExitStack()
        for part, before in self.drawn:
            self.stack.callback(part.drawn.copy_, part.drawn.clone())
            part.drawn.copy_(before)
        self.stack.enter_context(sdpa_kernel(self.kernels))

    def __exit__(self, *error: object) -> None:
        self.stack.close()


def _layers(model: nn.Module) -> list[nn.Module]:
    """The layers that transformers would checkpoint."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]


def _forward_without_autocast(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """The forward pass of the output layer without autocast."""
    forward, weight = layer.forward, next(layer.parameters())

    def apply(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return forward(x.to(weight.dtype))

    return apply


@contextmanager
def _replace_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Replaces a module's `forward` within the context."""
    before = module.__dict__.get("forward")
    module.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        if before is None:
            del module.forward  # type: ignore[misc]
        else:
            module.forward = before  # type: ignore[method-assign]


def cast_weights(model: nn.Module) -> dict[str, Tensor]:
    """Name → the weights of the linear layers, rounded as autocast rounds them; {} if it rounds
    nothing.

    For a decoder, which uses them at every token: autocast would round them at each again.
    """
    dtype = compute_of(model).dtype
    if dtype is None:
        return {}
    output = getattr(model, "get_output_embeddings", lambda: None)()
    kept = {id(part) for part in (output.parameters() if output is not None else ())}
    return {
        f"{name}.{part}": weight.detach().to(dtype)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
        for part, weight in module.named_parameters(recurse=False)
        if id(weight) not in kept and weight.dtype == torch.float32
    }
