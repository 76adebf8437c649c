"""Rows for tokens that were added to a vocabulary, in the table of embeddings and in that of the
output layer.

    new row  =  mean of the old rows

Its logit is then the mean of the old logits, so by Jensen's inequality its probability is at most
1 / V: a new token is less likely than an average one and disturbs no sentence. A row drawn as at
the model's birth can have any logit. transformers' `resize_token_embeddings` with `mean_resizing`
adds normal noise, with 10⁻⁹ times the covariance of the old rows.

Source: Hewitt 2021, Initializing new word embeddings for pretrained language models.
"""

from __future__ import annotations

import torch
from torch import Tensor


def with_mean_rows(table: Tensor, added: int) -> Tensor:
    """A table of embeddings [V, D] with `added` rows after it, each the mean: [V + added, D].

    Raises:
        ValueError: no rows to take the mean of, or a negative number of new ones.
    """
    if table.ndim != 2 or not len(table) or added < 0:
        raise ValueError(
            f"table [V, D] and a number of rows of at least 0 are needed, got {list(table.shape)}"
            f" and {added}"
        )
    return torch.cat([table, table.mean(0, keepdim=True).expand(added, -1)])
