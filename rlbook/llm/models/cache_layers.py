"""Layers of transformers' KV cache: one that is written in place, for decoding, and one that is
never changed, for passes with gradients."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer


class BlockLayer(DynamicLayer):
    """Keys and values in one block [N, K, capacity, D] each; `keys` and `values` are its written
    columns.

    transformers' `DynamicLayer` copies all that was read for each new token; its `StaticLayer`
    attends to the columns that are not yet written.

    Args:
        capacity: columns that will be needed; more are made where it turns out to be too small.
        dtype: of what is kept; None: as it comes.
    """

    def __init__(self, capacity: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.capacity, self.kept_in = capacity, (dtype,)
        self.blocks: list[Tensor] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Appends columns [N, K, n, D]. Returns all keys and values."""
        new = [
            x if self.kept_in[0] is None else x.to(self.kept_in[0])
            for x in (key_states, value_states)
        ]
        if not self.is_initialized:
            self.lazy_initialization(*new)
        before = self.get_seq_length()
        end = before + new[0].shape[-2]
        if not before:
            self.keys, self.values = new
            return new[0], new[1]
        assert self.keys is not None and self.values is not None
        if not self._has_room(end):
            self.capacity = max(self.capacity, end + end // 2 if self.blocks else end)
            self.blocks = [
                x.new_empty(*x.shape[:2], self.capacity, x.shape[3])
                for x in (self.keys, self.values)
            ]
            for block, held in zip(self.blocks, (self.keys, self.values), strict=True):
                block[:, :, :before] = held
        for block, columns in zip(self.blocks, new, strict=True):
            block[:, :, before:end] = columns
        self.keys, self.values = (block[:, :, :end] for block in self.blocks)
        return self.keys, self.values

    def _has_room(self, end: int) -> bool:
        """Whether the keys are those in the block, and `end` columns fit into it."""
        assert self.keys is not None
        return bool(self.blocks) and (
            self.keys.data_ptr() == self.blocks[0].data_ptr()
            and len(self.keys) == len(self.blocks[0])
            and end <= self.blocks[0].shape[2]
        )


class PastLayer(DynamicLayer):
    """Keys and values from earlier passes, which this pass does not change.

    So a layer that is computed twice, as gradient checkpointing does, reads the same both times.
    """

    read: tuple[Tensor, Tensor] | None = None
    """All keys and values [B, K, n, D] up to the end of this pass, once it has been computed."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """All keys and values up to the end of this pass."""
        new = key_states, value_states
        if self.keys is not None and self.values is not None:
            new = (
                torch.cat([self.keys, key_states], dim=-2),
                torch.cat([self.values, value_states], dim=-2),
            )
        self.read = self.read or new
        return new


def block_cache(config: PreTrainedConfig, capacity: int, dtype: torch.dtype | None) -> DynamicCache:
    """An empty cache for a model with this config, whose layers of full attention are written in
    place."""
    cache = DynamicCache(config=config)
    cache.layers = [
        BlockLayer(capacity, dtype) if type(layer) is DynamicLayer else layer
        for layer in cache.layers
    ]
    return cache


def first_pass(config: PreTrainedConfig) -> DynamicCache | None:
    """The cache of a pass with gradients over the beginnings of texts; None for a model that has
    other than layers of full attention."""
    cache = DynamicCache(config=config)
    if not cache.layers or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    cache.layers[:] = [PastLayer() for _ in cache.layers]
    return cache


def next_pass(cache: DynamicCache, index: Tensor) -> DynamicCache:
    """The cache of the pass after that with `cache`, whose row b goes on from row `index[b]`."""
    following = DynamicCache()
    for layer in cache.layers:
        assert isinstance(layer, PastLayer) and layer.read is not None
        past = PastLayer()
        past.lazy_initialization(*layer.read)
        past.keys, past.values = (held[index] for held in layer.read)
        following.layers.append(past)
    return following
