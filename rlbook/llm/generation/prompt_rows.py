"""Prompts and completions in the networks' format: prompts right-aligned, each distinct one once,
followed by completions.

Column and position then differ by a constant in each row, so a row's neighbours cannot tell it from
a row computed alone. A long beginning that all prompts share, such as the worked examples in front
of every question, stands apart: it is read once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rlbook.data.rollout import to_device

SHARED = 16  # tokens from which on a beginning that all prompts share stands apart
NOTHING = torch.zeros(0, dtype=torch.int64)


class PromptRows(NamedTuple):
    """B completions of U distinct prompts."""

    prompt: Tensor  # int64 [U, P], the last column holds each prompt's last token
    padding: Tensor  # int64 [U], columns on the left that hold no token
    index: Tensor  # int64 [B], each completion's prompt
    completion: Tensor  # int64 [B, T]
    prefix: Tensor = NOTHING  # int64 [C], what stands in front of every prompt and its padding

    @property
    def is_ragged(self) -> bool:
        """Whether any prompt is padded."""
        return bool(self.padding.any())

    def with_prefix(self, device: torch.device | str = "cpu") -> PromptRows:
        """The same texts on a device, with the prefix included in each prompt, left-padded."""
        prompt, padding, index, completion, prefix = (to_device(part, device) for part in self)
        shared = len(prefix)
        if shared:
            joined = torch.cat([prefix.expand(len(prompt), -1), prompt], dim=1)  # [U, C + P]
            column = torch.arange(joined.shape[1], device=joined.device)
            source = column - padding[:, None]  # [U, C + P]
            prompt = joined.gather(
                1, torch.where(source < shared, source.clamp(min=0), column)
            ).masked_fill(source < 0, 0)
        return PromptRows(prompt, padding, index, completion)


def rows_of(tokens: Tensor, length: Tensor, completion: Tensor) -> PromptRows:
    """Builds rows from right-padded prompts.

    Args:
        tokens: int64 [B, L], prompts; tokens from `length` on are ignored.
        length: int64 [B], tokens in each prompt, at least 1.
        completion: int64 [B, T].
    """
    width = int(length.max())
    padding = width - length  # [B]
    source = torch.arange(width, device=tokens.device) - padding[:, None]  # [B, P]
    aligned = tokens.gather(1, source.clamp(min=0)).masked_fill(source < 0, 0)
    distinct, index = torch.unique(
        torch.cat([padding[:, None], aligned], dim=1), dim=0, return_inverse=True
    )
    prompt, padding = distinct[:, 1:], distinct[:, 0]
    shared = 0  # tokens that all prompts begin with; each keeps at least one of its own
    if len(prompt) > 1:
        same = (tokens == tokens[:1]).all(0)[: int(length.min()) - 1]
        shared = int(same.long().cumprod(0).sum())
    if shared < SHARED:
        return PromptRows(prompt, padding, index, completion)
    own = prompt[:, shared:].masked_fill(
        torch.arange(width - shared, device=tokens.device) < padding[:, None], 0
    )
    return PromptRows(own, padding, index, completion, tokens[0, :shared])


def prompt_mask(rows: PromptRows) -> Tensor | None:
    """The prompts' attention mask, bool [U or 1, 1, P, C + P]: True for the prefix and earlier
    columns without padding.

    A padding column looks at itself, so that no row of the softmax is empty. None where plain
    causality says it all.
    """
    shared, width = len(rows.prefix), rows.prompt.shape[1]
    if not rows.is_ragged and not shared:
        return None
    column = torch.arange(width)
    causal = column[None, :] <= column[:, None]  # [P, P]
    real = column >= rows.padding[:, None]  # [U, P]
    own = (causal & real[:, None, :]) | torch.eye(width, dtype=torch.bool)  # [U, P, P]
    return torch.cat([torch.ones(len(own), width, shared, dtype=torch.bool), own], dim=2)[:, None]


def completion_mask(rows: PromptRows) -> Tensor:
    """The completions' attention mask, bool [B or 1, 1, T, C + P + T]: a token attends to the
    prefix, its prompt, earlier tokens and itself."""
    time, width, shared = rows.completion.shape[1], rows.prompt.shape[1], len(rows.prefix)
    causal = torch.ones(time, time, dtype=torch.bool).tril()
    if not rows.is_ragged:
        return torch.cat([torch.ones(time, shared + width, dtype=torch.bool), causal], dim=1)[
            None, None
        ]
    real = torch.arange(-shared, width) >= rows.padding[rows.index][:, None]  # [B, C + P]
    real[:, :shared] = True
    count = len(real)
    return torch.cat(
        [real[:, None, None].expand(count, 1, time, -1), causal.expand(count, 1, time, time)], dim=3
    )


def positions(rows: PromptRows) -> tuple[Tensor, Tensor]:
    """The position of each token in its own text: prompts [U, P] (the prefix's length at padding),
    completions [B, T]."""
    width, device, shared = rows.prompt.shape[1], rows.prompt.device, len(rows.prefix)
    prompt = shared + (torch.arange(width, device=device) - rows.padding[:, None]).clamp(min=0)
    completion = (shared + width - rows.padding[rows.index])[:, None] + torch.arange(
        rows.completion.shape[1], device=device
    )
    return prompt, completion


def packing_mask(text: Tensor) -> Tensor:
    """The attention mask of packed rows, bool [R, 1, W, W]: True for the same and earlier columns
    of the same text.

    Args:
        text: int64 [R, W], which text each column belongs to.
    """
    column = torch.arange(text.shape[1], device=text.device)
    return ((text[:, :, None] == text[:, None, :]) & (column[None, :] <= column[:, None]))[:, None]
