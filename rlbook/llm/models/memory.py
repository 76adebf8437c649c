"""Estimates the memory that training a language model needs, before it is allocated."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor, nn

from rlbook.agent import Agent
from rlbook.checks import machine_memory
from rlbook.llm.models.compute import compute_of
from rlbook.llm.models.language_model import LanguageModelPolicy

WORTH_TELLING = 10**9  # bytes
LIBRARIES = 450 * 10**6  # bytes that torch and transformers take by themselves


class MemoryEstimate(NamedTuple):
    """Bytes, estimated from the sizes; with an adapter the measured peak was a sixth higher."""

    weights: int  # of all models, each tensor once
    optimizer: int  # for each trained number a gradient and two moments; of 16 bits, see `_optimizer_bytes`
    acting: int  # the decoder's matrices
    update: int  # what a pass over one micro-batch keeps for its gradient

    @property
    def total(self) -> int:
        """The total number of bytes in use at once."""
        return sum(self) + LIBRARIES


def estimate_memory(
    policy: LanguageModelPolicy, other_models: Iterable[nn.Module], rows: int, tokens: int
) -> MemoryEstimate:
    """Estimates the memory for training a policy.

    A token keeps about 8 d + 4 f numbers for the gradient in each layer from the first one that is
    trained on, and its logits three times. Where products are in bfloat16, half of d and all of f
    are, and the matrices are held once more, rounded. Recomputed layers keep d numbers each, and
    one of them all.

    Args:
        policy: in float32, its critic with it; how it is computed counts too.
        other_models: the reference and whatever else has weights.
        rows: texts that are backpropagated at once.
        tokens: in the longest of them.
    """
    config: Any = policy.model.config.get_text_config()
    width, layers = config.hidden_size, config.num_hidden_layers - first_trained_layer(policy.model)
    inside = getattr(config, "intermediate_size", None) or 4 * width
    compute, copies = compute_of(policy.model), 0
    layer = 4 * (8 * width + 4 * inside)  # bytes of a token in a layer
    if compute.dtype is not None:
        layer = 4 * 4 * width + 2 * (4 * width + 4 * inside)
        model: Any = policy.model
        ends = model.get_input_embeddings(), model.get_output_embeddings()
        exact = {id(weight) for layer in ends for weight in layer.parameters()}
        copies = sum(
            tensor.nbytes // 2
            for tensor in policy.parameters()
            if tensor.dim() == 2 and id(tensor) not in exact
        )
    layers_kept = layers * layer
    if compute.gradient_checkpointing:
        layers_kept = min(layers_kept, layers * 4 * width + layer)
    update = rows * tokens * (layers_kept + 3 * 4 * config.vocab_size) + copies
    weights = _bytes(tensor for module in (policy, *other_models) for tensor in module.parameters())
    trained = {
        tensor.data_ptr(): _optimizer_bytes(tensor)
        for tensor in policy.parameters()
        if tensor.requires_grad
    }
    acting = _bytes(policy.model.parameters()) // (1 if compute.dtype is None else 2)
    return MemoryEstimate(weights, sum(trained.values()), acting, update)


def _optimizer_bytes(weight: Tensor) -> int:
    """The optimiser's bytes for one trained tensor; with 16 bits it keeps float32 copies of the
    tensor and its gradient: see `rlbook.networks.optimizer.Adam`."""
    moments = 2 * weight.numel() * max(weight.element_size(), 4)
    return weight.nbytes + moments + (8 * weight.numel() if weight.element_size() < 4 else 0)


def first_trained_layer(model: nn.Module) -> int:
    """The index of the lowest layer that a gradient has to reach; 0 if anything outside the layers
    is trained."""
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    found = [re.search(r"\.layers\.(\d+)\.", name) for name in names]
    return min((int(match[1]) for match in found if match), default=0) if all(found) else 0


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


def memory_note(agent: Agent, rows: int, tokens: int) -> tuple[str, ...]:
    """A sentence for an agent that trains a language model on the CPU with a gigabyte or more."""
    policy = getattr(agent, "policy", None)
    if (
        not isinstance(policy, LanguageModelPolicy)
        or next(policy.parameters()).device.type != "cpu"
    ):
        return ()
    others = [
        other
        for other in (getattr(agent, "reference", None), getattr(agent, "teacher", None))
        if isinstance(other, nn.Module)
    ]
    parts = estimate_memory(policy, others, rows, tokens)
    if parts.total < WORTH_TELLING:
        return ()
    has = machine_memory()
    listed = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in parts._asdict().items())
    return (
        (
            f"memory: about {parts.total / 1e9:.1f} GB ({listed}), of {has / 1e9:.0f} in this"
            " machine; micro_batch_size lowers it, and so does --model.gradient_checkpointing true"
            " (model={'gradient_checkpointing': True})"
        ),
    )
