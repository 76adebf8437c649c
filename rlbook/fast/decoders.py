"""Decoding on a GPU: one step of transformers' Llama, Qwen2 and Qwen3 as a CUDA graph.

A step of a small model is hundreds of kernels of a few microseconds each, and Python takes longer
to launch one than the GPU to run it. A graph is launched as a whole: the kernels are recorded once
and replayed, with the same inputs in the same places. So everything has a fixed shape: keys and
values lie in blocks of all columns there will be, and a mask says which are written.

    the first steps are computed one kernel after another, which also warms the libraries
    then a step is recorded, and every later one copies its tokens in and replays it
    rows that leave change all shapes: a few steps later it is recorded again

Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs. The plain form is
`rlbook.llm.models.causal_lm.CausalDecoder`; attention over columns that are masked adds up in
another order, so the two differ by rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from rlbook.agent import State
from rlbook.data.rollout import to_device
from rlbook.fast.llama import FAMILY, PLAIN, LlamaDecoder, is_plain_llama
from rlbook.fast.modules import has_global_hooks, is_unmodified, iterate_modules
from rlbook.llm.generation.prompt_rows import PromptRows
from rlbook.llm.models import causal_lm
from rlbook.llm.models.causal_lm import CausalDecoder
from rlbook.networks.policy import module_device

WARM = 4  # steps before one is recorded
ALIGNED = 8  # columns of a mask that attention kernels read at once


def decoder(model: Any) -> LlamaDecoder | CausalDecoder:
    """The fast form of `rlbook.llm.models.causal_lm.decoder`: one for a CPU, one for a GPU."""
    if is_plain_llama(model):
        return LlamaDecoder(model)
    return GraphDecoder(model) if can_be_recorded(model) else causal_lm.decoder.plain(model)  # type: ignore[attr-defined]


def can_be_recorded(model: Any) -> bool:
    """Whether a step of this model, as it is now, launches the same kernels each time: an
    architecture of the family with its own layers, nothing inserted between them, on one GPU."""
    home, config = type(model).__module__, getattr(model, "config", None)
    return (
        home in FAMILY
        and type(model).__name__ == FAMILY[home] + "ForCausalLM"
        and getattr(config, "_attn_implementation", None) == "sdpa"
        and not has_global_hooks()
        and all(_is_plain(module, home) for module in iterate_modules(model))
        and {parameter.device.type for parameter in model.parameters()} == {"cuda"}
    )


def _is_plain(module: nn.Module, home: str) -> bool:
    kind = type(module)
    return (
        (kind.__module__ == home or kind in PLAIN or kind.__name__ == "SiLUActivation")
        and is_unmodified(module)
        and getattr(module, "sliding_window", None) is None
        and not (module.training and getattr(module, "attention_dropout", 0.0))
    )


class FixedLayer(DynamicLayer):
    """Preallocated keys and values for all columns, [N, K, capacity, D]; `at` is the next one to be
    written."""

    def __init__(self, keys: Tensor, values: Tensor, at: Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.at = keys, values, at
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        self.keys.index_copy_(2, self.at, key_states.to(self.keys.dtype))
        self.values.index_copy_(2, self.at, value_states.to(self.values.dtype))
        return self.keys, self.values


class GraphDecoder(CausalDecoder):
    """Next-token logits for N rows, one column at a time; nothing is recorded except on a GPU."""

    @torch.inference_mode()
    def prefill(self, rows: PromptRows, new_tokens: int) -> Tensor:
        logits = super().prefill(rows, new_tokens)
        self._make_room(self.column + new_tokens)
        return logits

    def _make_room(self, capacity: int) -> None:
        """Allocates keys, values and the mask for this many columns, and copies those already
        written."""
        self.capacity = -(-capacity // ALIGNED) * ALIGNED
        device, written = self.padding.device, self.column
        self.at = torch.tensor([written], device=device)
        blocks = self._blocks()
        for layer in blocks:
            for index, held in enumerate(layer):
                layer[index] = held.new_zeros(*held.shape[:2], self.capacity, held.shape[3])
                layer[index][:, :, :written] = held[:, :, :written]
        self._set(blocks)

    def _set(self, blocks: list[list[Tensor]]) -> None:
        """Sets these keys and values, and allocates the other inputs of a step."""
        self.cache = DynamicCache()
        self.cache.layers += [FixedLayer(keys, values, self.at) for keys, values in blocks]
        column = torch.arange(self.capacity, device=self.padding.device)
        real = (column >= self.padding[:, None]) & (column < self.column)  # [N, S]
        self.mask = real[:, None, None]
        self.position = (self.column - self.padding)[:, None]
        self.token = torch.zeros_like(self.position)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.steps = 0  # since the shapes are what they are

    @torch.inference_mode()
    def step(self, token: Tensor) -> Tensor:
        if self.column == self.capacity:
            self._make_room(2 * self.capacity)
        self.token.copy_(to_device(token, self.token.device)[:, None])
        if self.steps < WARM or self.token.device.type != "cuda":
            logits = self._compute()
        else:
            if self.graph is None:
                self._record()
            assert self.graph is not None
            self.graph.replay()
            logits = self.logits.clone()  # the next replay writes over it
        self.at += 1
        self.position += 1
        self.column, self.steps = self.column + 1, self.steps + 1
        return logits

    def _compute(self) -> Tensor:
        """Logits [N, V] after `token`, which is written to the column `at`; running it twice gives
        the same result."""
        self.mask.index_fill_(3, self.at, True)
        inputs = {"attention_mask": self.mask, "position_ids": self.position}
        return self._forward(input_ids=self.token, **inputs)[:, -1]

    def _record(self) -> None:
        """Records a step without computing anything yet."""
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.token.device), torch.cuda.graph(self.graph):
            self.logits = self._compute()

    @torch.inference_mode()
    def select(self, rows: Tensor) -> None:
        rows = rows.to(self.padding.device)
        self.padding = self.padding[rows]
        self._set([[held[rows] for held in layer] for layer in self._blocks()])

    def _blocks(self) -> list[list[Tensor]]:
        """The keys and the values of each layer."""
        layers: list[Any] = self.cache.layers
        return [[layer.keys, layer.values] for layer in layers]

    def state_dict(self) -> State:
        blocks = [[held.clone() for held in layer] for layer in self._blocks()]
        return {"blocks": blocks, "padding": self.padding.clone(), "column": self.column}

    @torch.inference_mode()
    def load_state_dict(self, state: State) -> None:
        device = module_device(self.model)
        blocks = [[held.to(device, copy=True) for held in layer] for layer in state["blocks"]]
        self.padding, self.column = state["padding"].to(device, copy=True), state["column"]
        self.capacity, self.at = blocks[0][0].shape[2], torch.tensor([self.column], device=device)
        self._set(blocks)
