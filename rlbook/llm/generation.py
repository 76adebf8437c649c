"""Sampling completions without an environment: the same decoder, the same noise and so the same tokens as stepping through one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from rlbook.llm.language_model import LanguageModelPolicy
from rlbook.llm.rows import rows_of


class Completions(NamedTuple):
    """N completions of at most T tokens."""

    tokens: np.ndarray                       # int64 [N, T]; what stands behind an ending is of no use
    log_prob: np.ndarray                     # float32 [N, T], log π(token|text) in nats, at the policy's temperature
    mask: np.ndarray                         # bool [N, T]; true on what was written, EOS included


def generate(
    policy: LanguageModelPolicy, tokens: np.ndarray, length: np.ndarray, *, eos: int, max_new_tokens: int,
    rng: np.random.Generator | None = None,
) -> Completions:  # fmt: skip
    """Completes prompts until each has ended with `eos` or has `max_new_tokens` tokens.

    Args:
        policy: the language model.
        tokens: int64 [N, L], prompts, padded to the right; a repeated prompt is read once.
        length: int64 [N], tokens in each.
        eos: the token that ends a completion.
        max_new_tokens: T at most.
        rng: the noise, N uniforms a token; None writes the likeliest token instead.
    """
    texts = torch.from_numpy(tokens)
    decoder = policy.decoder()
    logits = decoder.prefill(rows_of(texts, torch.from_numpy(length), texts[:, :0]), new_tokens=max_new_tokens)
    live = np.ones(len(tokens), dtype=bool)
    columns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    while True:
        action, log_prob = policy.draw(logits, rng)
        columns.append((action, log_prob, live))
        live = live & (action != eos)
        if len(columns) == max_new_tokens or not live.any():
            return Completions(*(np.stack(column, axis=1) for column in zip(*columns, strict=True)))
        logits = decoder.step(torch.from_numpy(action))
