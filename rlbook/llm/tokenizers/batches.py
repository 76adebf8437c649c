"""Rows of token ids as one batch: padding, the attention mask, truncation, and two texts in one row.

    [[5, 6], [7]]  →  ids [[5, 6], [7, PAD]],  mask [[1, 1], [1, 0]]

The same ids, masks and types come from transformers' tokenizers with padding="longest",
padding="max_length", truncation=True and a pair of texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlbook.checks import at_least, check, one_of, optional

Ids = NDArray[np.int64]
_sides = one_of("left", "right")


def pad(
    rows: Sequence[Sequence[int]], fill: int, *, length: int | None = None, side: str = "right"
) -> tuple[Ids, Ids]:
    """Rows of any length as an array, and where it holds tokens.

    Args:
        rows: B rows of ids.
        fill: PAD, the id that stands where a row has no token.
        length: T, the width; None for that of the longest row.
        side: "left" for prompts that a model goes on with, since it continues a row at its end.

    Returns:
        The ids and the attention mask (1 for a token, 0 for padding), both [B, T].

    Raises:
        ValueError: a row is longer than `length`.
    """
    check("side", side, _sides)
    check("length", length, optional(at_least(0)))
    longest = max(map(len, rows), default=0)
    width = longest if length is None else length
    if longest > width:
        raise ValueError(f"length must be at least {longest}, as the longest row has, got {width}")
    ids, mask = np.full((len(rows), width), fill, dtype=np.int64), np.zeros((len(rows), width))
    for number, row in enumerate(rows):
        place = slice(width - len(row), width) if side == "left" else slice(len(row))
        ids[number, place], mask[number, place] = row, 1
    return ids, mask.astype(np.int64)


def truncate(row: Sequence[int], length: int, *, side: str = "right") -> list[int]:
    """At most `length` ids of a row, cut off on one side: cutting the right loses the question of a
    prompt, the left its beginning."""
    check("side", side, _sides)
    check("length", length, at_least(0))
    return list(row[:length] if side == "right" else row[max(0, len(row) - length) :])


def join_pair(
    first: Sequence[int], second: Sequence[int], *, begin: int, separator: int
) -> tuple[list[int], list[int]]:
    """Two texts as one row, as models of the BERT family read them: [CLS] first [SEP] second [SEP].

    Returns:
        The ids, and token_type_ids: 0 up to the first separator, 1 from there on.

    Source: Devlin et al. 2019, arXiv:1810.04805, figure 2.
    """
    left, right = [begin, *first, separator], [*second, separator]
    return left + right, [0] * len(left) + [1] * len(right)
