"""Samples completions without an environment: with the same decoder and the same noise, hence the
same tokens as stepping through one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import torch

from rlbook.llm.generation.kv_cache import is_worth_leaving
from rlbook.llm.generation.prompt_rows import rows_of
from rlbook.llm.generation.sampling import Sampling, seen_tokens
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.tokenizers.batches import pad
from rlbook.llm.tokenizers.tokenizer import Codec


class Completions(NamedTuple):
    """N completions of at most T tokens."""

    tokens: np.ndarray  # int64 [N, T]; what follows an ending is of no use
    # float32 [N, T], log π(token|text) in nats, of what the token was drawn from
    log_prob: np.ndarray
    mask: np.ndarray  # bool [N, T]; true on what was written, the end token included


def generate(
    policy: LanguageModelPolicy,
    tokens: np.ndarray,
    length: np.ndarray,
    *,
    eos: int,
    ends: Collection[int] = (),
    max_new_tokens: int,
    rng: np.random.Generator | None = None,
    sampling: Sampling | None = None,
    codec: Codec | None = None,
    cached: bool = True,
) -> Completions:
    """Completes prompts until each has ended with an end token or a stop string, or has
    `max_new_tokens` tokens.

    Args:
        policy: the language model.
        tokens: int64 [N, L], prompts, padded to the right; a repeated prompt is read once.
        length: int64 [N], tokens in each.
        eos: the token that ends a completion, and fills the rows that have ended.
        ends: further tokens that end one.
        max_new_tokens: T at most.
        rng: the noise, N uniforms a token; None writes the likeliest token instead.
        sampling: what the tokens are drawn by; None: the policy's own temperature.
        codec: reads what was written, where `sampling` has stop texts.
        cached: False reads the whole text again for each token, which gives the same tokens and
            takes longer.
    """
    sampling = sampling or Sampling(temperature=policy.temperature)
    texts = torch.from_numpy(tokens)
    decoder = policy.decoder()
    logits = decoder.prefill(
        rows_of(texts, torch.from_numpy(length), texts[:, :0]), new_tokens=max_new_tokens
    )
    live, rows = np.ones(len(tokens), dtype=bool), np.arange(len(tokens))  # rows of the decoder
    columns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    seen = (
        seen_tokens(tokens, length, logits.shape[-1])
        if sampling.repetition_penalty != 1.0
        else None
    )
    draws = rng is not None and sampling.temperature != 0.0
    while True:
        # a row's noise is the same whatever other rows have left
        uniform = rng.random(len(tokens))[rows] if draws and rng is not None else None
        action, log_prob = np.full(len(tokens), eos), np.zeros(len(tokens), dtype=np.float32)
        action[rows], log_prob[rows] = sampling.draw_at(
            logits, uniform, None if seen is None else seen[torch.from_numpy(rows)]
        )
        columns.append((action, log_prob, live))
        live = live & ~np.isin(action, [eos, *ends])
        if seen is not None:
            seen[torch.arange(len(action)), torch.from_numpy(action)] = True
        if sampling.stop:
            assert codec is not None, "stop texts are found by a codec"
            live = live & ~_is_stopped(
                np.stack([column[0] for column in columns], axis=1), live, sampling.stop, codec
            )
        if len(columns) == max_new_tokens or not live.any():
            return Completions(*(np.stack(column, axis=1) for column in zip(*columns, strict=True)))
        if not cached:
            written = np.stack([column[0] for column in columns], axis=1)
            logits = _read_again(policy, tokens, length, written)
            continue
        if is_worth_leaving(policy.model, live[rows]):
            decoder.select(torch.from_numpy(np.flatnonzero(live[rows])))
            rows = rows[live[rows]]
        logits = decoder.step(torch.from_numpy(action[rows]))


def _read_again(
    policy: LanguageModelPolicy, tokens: np.ndarray, length: np.ndarray, written: np.ndarray
) -> torch.Tensor:
    """Next-token logits [N, V] of prompts [N, L] and the tokens generated after them [N, t],
    without a cache."""
    rows = [
        [*prompt[:end].tolist(), *text.tolist()]
        for prompt, end, text in zip(tokens, length, written, strict=True)
    ]
    texts = torch.from_numpy(pad(rows, 0)[0])
    lengths = torch.from_numpy(length + written.shape[1])
    return policy.decoder().prefill(rows_of(texts, lengths, texts[:, :0]), new_tokens=0)


def _is_stopped(
    written: np.ndarray, live: np.ndarray, stop: Sequence[str], codec: Codec
) -> np.ndarray:
    """Which unfinished rows [N, t] have reached a stop string, bool [N]."""
    found = np.zeros(len(written), dtype=bool)
    for row in np.flatnonzero(live):
        text = codec.decode(written[row])
        found[row] = any(one in text for one in stop)
    return found


def write(
    policy: LanguageModelPolicy,
    codec: Codec,
    prompts: Sequence[str],
    *,
    sampling: Sampling | None = None,
    max_new_tokens: int = 64,
    seed: int | None = 0,
) -> list[str]:
    """Generates completions of prompts, as texts without the end token, each cut before its first
    string.

    Args:
        policy: the language model.
        codec: its tokenizer, such as that of a token environment.
        prompts: texts.
        sampling: what the tokens are drawn by; None: the policy's own temperature.
        max_new_tokens: limit on a completion.
        seed: decides the noise; None writes the likeliest tokens.
    """
    rng = None if seed is None else np.random.default_rng(seed)
    ids = codec.encode_prompts(prompts)
    return generate_texts(
        policy, codec, ids, sampling=sampling, max_new_tokens=max_new_tokens, rng=rng
    )


def generate_texts(
    policy: LanguageModelPolicy,
    codec: Codec,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: Sampling | None = None,
    max_new_tokens: int = 64,
    rng: np.random.Generator | None = None,
) -> list[str]:
    """The same of prompts as token ids; without `rng` the likeliest tokens."""
    found = generate(
        policy,
        pad(prompts, codec.pad)[0],
        np.array([len(row) for row in prompts]),
        eos=codec.eos,
        ends=codec.ends,
        max_new_tokens=max_new_tokens,
        rng=rng,
        sampling=sampling,
        codec=codec,
    )
    rows = [row[mask] for row, mask in zip(found.tokens, found.mask, strict=True)]
    texts = [codec.decode(row[:-1] if len(row) and row[-1] in codec.ends else row) for row in rows]
    return [_cut_at_stop(text, () if sampling is None else sampling.stop) for text in texts]


def _cut_at_stop(text: str, stop: Sequence[str]) -> str:
    return text[: min((text.index(one) for one in stop if one in text), default=len(text))]
