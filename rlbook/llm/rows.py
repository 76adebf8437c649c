"""Prompts and completions as the networks want them: prompts aligned to the right, each distinct one once, completions behind them.

Column and position then differ by a constant in each row, so a row's neighbours cannot tell it from a row computed alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Rows(NamedTuple):
    """B completions of U distinct prompts."""

    prompt: Tensor                           # int64 [U, P], the last column holds each prompt's last token
    padding: Tensor                          # int64 [U], columns on the left that hold no token
    index: Tensor                            # int64 [B], each completion's prompt
    completion: Tensor                       # int64 [B, T]

    @property
    def ragged(self) -> bool:
        """Whether any prompt is padded."""
        return bool(self.padding.any())

    def to(self, device: torch.device | str) -> Rows:
        """The same rows on a device; tensors that are there already are not copied."""
        return Rows(*(tensor.to(device) for tensor in self))


def rows_of(tokens: Tensor, length: Tensor, completion: Tensor) -> Rows:
    """Rows from right-padded prompts.

    Args:
        tokens: int64 [B, L], prompts; what stands behind `length` is ignored.
        length: int64 [B], tokens in each prompt, at least 1.
        completion: int64 [B, T].
    """
    width = int(length.max())
    padding = width - length                                                        # [B]
    source = torch.arange(width, device=tokens.device) - padding[:, None]                                 # [B, P]
    aligned = tokens.gather(1, source.clamp(min=0)).masked_fill(source < 0, 0)
    distinct, index = torch.unique(torch.cat([padding[:, None], aligned], dim=1), dim=0, return_inverse=True)
    return Rows(distinct[:, 1:], distinct[:, 0], index, completion)


def prompt_mask(rows: Rows) -> Tensor | None:
    """bool [U, 1, P, P], true where a column may be looked at: no later one and no padding. None where plain causality says it all.

    A padding column looks at itself, so that no row of the softmax is empty.
    """
    if not rows.ragged:
        return None
    column = torch.arange(rows.prompt.shape[1])
    causal = column[None, :] <= column[:, None]                                     # [P, P]
    real = column >= rows.padding[:, None]                                          # [U, P]
    return ((causal & real[:, None, :]) | torch.eye(len(column), dtype=torch.bool))[:, None]


def completion_mask(rows: Rows) -> Tensor:
    """bool [B or 1, 1, T, P + T]: a completion's token looks at its prompt, at the tokens before it and at itself."""
    time, width = rows.completion.shape[1], rows.prompt.shape[1]
    causal = torch.ones(time, time, dtype=torch.bool).tril()
    if not rows.ragged:
        return torch.cat([torch.ones(time, width, dtype=torch.bool), causal], dim=1)[None, None]
    real = torch.arange(width) >= rows.padding[rows.index][:, None]                 # [B, P]
    count = len(real)
    return torch.cat([real[:, None, None].expand(count, 1, time, width), causal.expand(count, 1, time, time)], dim=3)


def positions(rows: Rows) -> tuple[Tensor, Tensor]:
    """Position of each token in its own text: prompts [U, P] (0 on padding), completions [B, T]."""
    width = rows.prompt.shape[1]
    device = rows.prompt.device
    prompt = (torch.arange(width, device=device) - rows.padding[:, None]).clamp(min=0)
    completion = (width - rows.padding[rows.index])[:, None] + torch.arange(rows.completion.shape[1], device=device)
    return prompt, completion
