"""A batch of texts that rows join and leave while it is generated: continuous batching.

    logits = batch.add(prompts)            # new rows, after those that are there
    logits = batch.step(tokens)            # one token more for every row
    order  = batch.remove(ended)           # the others close ranks

A server cannot wait until the longest answer of a batch has ended before it reads the next request.
Each row's keys and values depend on its own text alone, so they can be kept while the rows around
them change.

Source: Yu et al. 2022 (Orca), "A Distributed Serving System for Transformer-Based Generative
Models", section 3.2, where it is called iteration-level scheduling. Difference: no selective
batching; prompts are read in a pass of their own, in front of the next step.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from rlbook.fast_forms import has_fast_form
from rlbook.llm.generation.prompt_rows import PromptRows, rows_of
from rlbook.llm.models.causal_lm import CausalDecoder, LanguageModel


class RunningBatch(Protocol):
    """Texts that are being generated. A row is identified by its index."""

    def __len__(self) -> int:
        """The number of rows."""
        ...

    def add(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Reads prompts, which become the last rows. Returns their next-token logits [n, V]."""
        ...

    def step(self, token: Tensor) -> Tensor:
        """Appends one token to each row: int64 [N] → logits [N, V]."""
        ...

    def remove(self, rows: Collection[int]) -> list[int]:
        """Removes rows. Returns the old indices of the remaining rows, in their new order."""
        ...


@has_fast_form
def running_batch(model: LanguageModel) -> RunningBatch:
    """An empty batch for a model with its current weights."""
    return CausalBatch(model)


def prompt_rows(prompts: Sequence[Sequence[int]]) -> PromptRows:
    """Prompts of any lengths as the rows of a decoder's prefill; equal prompts are read once."""
    length = torch.tensor([len(prompt) for prompt in prompts])
    tokens = torch.zeros(len(prompts), int(length.max()), dtype=torch.int64)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt)
    return rows_of(tokens, length, tokens[:, :0])


def order_after_removal(count: int, removed: Collection[int]) -> list[int]:
    """The rows that remain when some of `count` are removed: the last ones fill the gaps, so that
    as few as possible move."""
    order, holes = list(range(count)), sorted(removed, reverse=True)
    for hole in holes:
        order[hole] = order[-1]
        order.pop()
    return order


class CausalBatch:
    """A running batch of any architecture, with transformers' own KV cache.

    Prompts stand right-aligned with padding in front, as in `PromptRows`, so joining is padding the
    shorter side. An architecture whose cache is more than keys and values of every token, such as
    one of a sliding window, is decoded row by row.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.parts: list[CausalDecoder] = []
        """One decoder for all rows, or one for each."""
        self.count = 0

    def __len__(self) -> int:
        return self.count

    @torch.inference_mode()
    def add(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        first = CausalDecoder(self.model)
        logits = first.prefill(prompt_rows(prompts), 0)
        self.count += len(prompts)
        if _has_plain_cache(first):
            self.parts = [_join(self.parts[0], first) if self.parts else first]
            return logits
        separate = [CausalDecoder(self.model) for _ in prompts]
        self.parts += separate
        return torch.cat(
            [
                part.prefill(prompt_rows([own]), 0)
                for part, own in zip(separate, prompts, strict=True)
            ]
        )

    def step(self, token: Tensor) -> Tensor:
        tokens = token.split(len(token) // len(self.parts))
        return torch.cat([part.step(own) for part, own in zip(self.parts, tokens, strict=True)])

    @torch.inference_mode()
    def remove(self, rows: Collection[int]) -> list[int]:
        order = order_after_removal(self.count, rows)
        self.count = len(order)
        if not order:
            self.parts = []
        elif len(self.parts) == 1 and _has_plain_cache(self.parts[0]):
            _select(self.parts[0], order)
        else:
            self.parts = [self.parts[row] for row in order]
        return order


def _has_plain_cache(decoder: CausalDecoder) -> bool:
    """Whether each layer's cache consists of the keys and values of every token, and nothing
    else."""
    from rlbook.llm.models.cache_layers import BlockLayer

    return all(type(layer) is BlockLayer for layer in decoder.cache.layers)


def _join(first: CausalDecoder, second: CausalDecoder) -> CausalDecoder:
    """Joins the rows of two decoders; `first` is changed."""
    column = max(first.column, second.column)
    for layer, other in zip(first.cache.layers, second.cache.layers, strict=True):
        for name in ("keys", "values"):
            both = (_pad_columns(getattr(one, name), column) for one in (layer, other))
            setattr(layer, name, torch.cat(list(both)))
    padding = [one.padding + column - one.column for one in (first, second)]
    first.padding, first.column = torch.cat(padding), column
    return first


def _pad_columns(entries: Tensor, column: int) -> Tensor:
    """Keys or values [N, K, S, D] with empty columns in front: [N, K, column, D]."""
    return F.pad(entries, (0, 0, column - entries.shape[2], 0))


def _select(decoder: CausalDecoder, rows: list[int]) -> None:
    """Keeps some rows, and no more columns than their longest text needs."""
    index = torch.tensor(rows, device=decoder.padding.device)
    padding = decoder.padding[index]
    spare = int(padding.min())
    for layer in decoder.cache.layers:
        cached: Any = layer
        for name in ("keys", "values"):
            setattr(cached, name, getattr(cached, name)[index, :, spare:])
    decoder.padding, decoder.column = padding - spare, decoder.column - spare
