"""A running batch of Llama, Qwen2 and Qwen3 on a CPU: every row has its own place in one
preallocated KV cache, so that a row which joins or leaves does not move other rows' keys and
values.

Unlike in `LlamaDecoder`, texts stand left-aligned, each row is at a column of its own, and a step
writes to as many columns as there are lengths.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from rlbook.fast.llama import LlamaDecoder, is_plain_llama
from rlbook.llm.generation import running_batch
from rlbook.llm.generation.running_batch import RunningBatch, order_after_removal, prompt_rows
from rlbook.llm.models.causal_lm import LanguageModel

GROWTH = 1.5  # of rows and columns, where there are too few


def start_batch(model: LanguageModel) -> RunningBatch:
    """The fast form of `rlbook.llm.generation.running_batch.running_batch`."""
    if not is_plain_llama(model):
        return running_batch.running_batch.plain(model)  # type: ignore[attr-defined]
    return LlamaBatch(model)


class LlamaBatch:
    """Keys and values lie in `cache` [2, layers, rows, K, columns, D], and `bias` [rows, 1,
    columns] is -inf where a row has no token. `length` [N] counts each row's tokens."""

    def __init__(self, model: LanguageModel) -> None:
        self.decoder = LlamaDecoder(model)
        self._clear()

    def _clear(self) -> None:
        sizes = self.decoder.sizes
        self.length = torch.zeros(0, dtype=torch.int64)
        self.cache = torch.zeros(2, len(self.decoder.layers), 0, sizes.kv_heads, 0, sizes.width)
        self.bias = torch.zeros(0, 1, 0)

    def __len__(self) -> int:
        return len(self.length)

    @torch.inference_mode()
    def add(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        rows, first = prompt_rows(prompts), len(self)
        reader = copy.copy(self.decoder)
        logits = reader.prefill(rows, 0)
        length = [len(prompt) for prompt in prompts]
        self.length = torch.cat([self.length, torch.tensor(length)])
        self._make_room(len(self), int(self.length.max()) + 1)
        shared = reader.shared
        for row, count in enumerate(length):
            place, own = first + row, reader.column - (count - shared)
            # what another row has left there could be NaN, and 0 times that is not 0
            self.cache[:, :, place] = 0.0
            self.cache[:, :, place, :, :shared] = reader.cache[:, :, row, :, :shared]
            self.cache[:, :, place, :, shared:count] = reader.cache[:, :, row, :, own:]
            self.bias[place] = -torch.inf
            self.bias[place, :, :count] = 0.0
        return logits

    @torch.inference_mode()
    def step(self, token: Tensor) -> Tensor:
        decoder, count, now = self.decoder, len(self), self.length
        sizes, place, width = decoder.sizes, torch.arange(count), int(now.max()) + 1
        self._make_room(count, width)
        self.bias[place, 0, now] = 0.0
        bias = self.bias[:count, :, :width]
        rotation = decoder.rotation[now][:, None]
        x = F.embedding(token, decoder.model.model.embed_tokens.weight)  # [N, d]
        for index, weights in enumerate(decoder.layers):
            qkv = weights.qkv(decoder._rms_normalize(x)).view(count, -1, sizes.width)
            decoder._rotate_queries(qkv, weights.qk_norm, rotation)
            qkv = qkv.float()  # as the cache is, whatever the matrices are
            new = qkv[:, sizes.heads :].view(count, 2, sizes.kv_heads, sizes.width)
            cache = self.cache[:, index]  # [2, rows, K, S, D]
            cache[:, place, :, now] = new
            keys, values = cache[:, :count].flatten(1, 2)[:, :, :width]  # [N·K, W, D]
            # [N·K, H/K, D]
            q = qkv[:, : sizes.heads].reshape(count * sizes.kv_heads, -1, sizes.width)
            scores = torch.bmm(q, keys.transpose(1, 2))
            scores.view(count, -1, width).add_(bias)
            x = x + weights.out(torch.bmm(scores.softmax(-1), values).view(count, -1))
            x = x + decoder._mlp(decoder._rms_normalize(x), weights)
        self.length = now + 1
        return decoder.head(decoder._rms_normalize(x))

    @torch.inference_mode()
    def remove(self, rows: Collection[int]) -> list[int]:
        order = order_after_removal(len(self), rows)
        if not order:
            self._clear()
            return order
        for place, row in enumerate(order):
            if place != row:
                used = int(self.length[row])
                self.cache[:, :, place, :, :used] = self.cache[:, :, row, :, :used]
                self.cache[:, :, place, :, used:] = 0.0
                self.bias[place] = self.bias[row]
        self.length = self.length[order]
        return order

    def _make_room(self, rows: int, columns: int) -> None:
        """Enlarges the cache to this many rows and columns, plus a reserve."""
        have = self.cache.shape[2], self.cache.shape[4]
        if rows <= have[0] and columns <= have[1]:
            return
        grown = [
            now if now >= wanted else max(wanted, int(now * GROWTH))
            for now, wanted in zip(have, (rows, columns), strict=True)
        ]
        more = grown[0] - have[0], grown[1] - have[1]
        self.cache = F.pad(self.cache, (0, 0, 0, more[1], 0, 0, 0, more[0]))
        self.bias = F.pad(self.bias, (0, more[1], 0, 0, 0, more[0]), value=-torch.inf)
        self.decoder.capacity = grown[1]
        self.decoder.rotation = self.decoder._rotation_table()
