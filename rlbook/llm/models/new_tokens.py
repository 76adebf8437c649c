"""Rows for tokens added to a vocabulary, in the embedding table and in the output layer.

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


def append_mean_rows(table: Tensor, added: int) -> Tensor:
    """An embedding table [V, D] extended by `added` rows, each the mean of the others: [V + added,
    D].

    Raises:
        ValueError: no rows to take the mean of, or a negative number of new ones.
    """
    if table.ndim != 2 or not len(table) or added < 0:
        raise ValueError(
            "expected a table [V, D] and a number of rows of at least 0, got "
            f"{list(table.shape)} and {added}"
        )
    return torch.cat([table, table.mean(0, keepdim=True).expand(added, -1)])
