"""Packs several texts into one row, to avoid computing on padding; no text attends to another.

Texts of different lengths beside each other are filled up to the longest, and what is computed for
the filling is thrown away. Packed, they lie one after the other in rows of a fixed width. Attention
is blocked between them and positions start again with each, so a text is computed as if it were
alone. Source: Krell et al. 2021, arXiv:2107.02027, section 3 (packing without cross-contamination);
TRL's `packing`, which lets the attention of neighbours mix unless its kernel forbids it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rlbook.data.rollout import Batch
from rlbook.fast_forms import has_fast_form
from rlbook.llm.generation.prompt_rows import packing_mask
from rlbook.llm.models.compute import compute_context
from rlbook.networks.policy import module_device


class PackedTexts(NamedTuple):
    """R rows of W columns, each a concatenation of texts."""

    tokens: Tensor  # int64 [R, W], 0 after the last text
    text: Tensor  # int64 [R, W], which text a column belongs to; -1 after the last one
    position: Tensor  # int64 [R, W], from 0 on in each text
    row: Tensor  # int64 [K], where each of the K actions was chosen: the row …
    column: Tensor  # int64 [K], … and the column, that of the token before it

    def to(self, device: torch.device | str) -> PackedTexts:
        """The same on a device."""
        return PackedTexts(*(tensor.to(device) for tensor in self))


def pack(batch: Batch, width: int) -> PackedTexts:
    """Packs the texts of a batch into few rows by first-fit decreasing; actions keep the order of
    `batch.mask`.

    Args:
        batch: B prompts `obs` and completions `action` [B, T]; the last token of a completion is no
            column, since nothing follows it.
        width: columns that a row may have.

    Raises:
        ValueError: a text is longer than that.
    """
    before, written = batch.obs["length"], batch.real_mask.sum(1)  # [B]
    length = before + written - 1
    if int(length.max()) > width:
        raise ValueError(
            f"packing must be at least {int(length.max())}, the tokens of the longest text, got"
            f" {width}"
        )
    row, start = _places(length.tolist(), width)
    rows, columns = int(row.max()) + 1, int((start + length).max())
    tokens, position = (
        torch.zeros(rows, columns, dtype=torch.int64),
        torch.zeros(rows, columns, dtype=torch.int64),
    )
    text = torch.full((rows, columns), -1, dtype=torch.int64)
    for number, (prompt, count, answer, own) in enumerate(
        zip(batch.obs["tokens"], before, batch.action, batch.real_mask, strict=True)
    ):
        where = row[number], slice(int(start[number]), int(start[number] + length[number]))
        tokens[where] = torch.cat([prompt[:count], answer[own][:-1]])
        text[where], position[where] = number, torch.arange(int(length[number]))
    first = start + before - 1  # [B], the column of the prompt's last token
    column = first[:, None] + torch.arange(batch.mask.shape[1])  # [B, T]
    return PackedTexts(
        tokens, text, position, row[:, None].expand_as(column)[batch.mask], column[batch.mask]
    )


def _places(lengths: list[int], width: int) -> tuple[Tensor, Tensor]:
    """The row and the first column [B] of each text, by first-fit decreasing."""
    used: list[int] = []
    row, start = [0] * len(lengths), [0] * len(lengths)
    for number in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        found = next((i for i, end in enumerate(used) if end + lengths[number] <= width), len(used))
        if found == len(used):
            used.append(0)
        row[number], start[number] = found, used[found]
        used[found] += lengths[number]
    return torch.tensor(row), torch.tensor(start)


@has_fast_form
def packed_logits(model: nn.Module, rows: PackedTexts) -> Tensor:
    """Next-token logits [K, V] at each action, with gradients, on the model's device."""
    rows = rows.to(module_device(model))
    sees, weights = packing_mask(rows.text), next(model.parameters())
    blocked = torch.zeros(sees.shape, dtype=weights.dtype, device=sees.device).masked_fill(
        ~sees, torch.finfo(weights.dtype).min
    )
    with compute_context(model):
        output = model(
            input_ids=rows.tokens,
            attention_mask=blocked,
            position_ids=rows.position,
            use_cache=False,
        )
    return output.logits[rows.row, rows.column]


def check_packable(model: Any, width: int) -> None:
    """Raises ValueError if a model would read a text differently in a packed row than alone."""
    import inspect

    config, name = model.config.get_text_config(), type(model).__name__
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise ValueError(
            f"packing starts positions anew with each text, and {name} takes no positions"
        )
    window = getattr(config, "sliding_window", None)
    if window is not None and getattr(config, "use_sliding_window", True) and window < width:
        raise ValueError(
            f"packing has rows of {width} tokens, but {name} attends to only the last {window}"
        )
