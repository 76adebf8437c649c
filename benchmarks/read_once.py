"""What a language model need not read twice: each line is the same code beside itself, reading
everything again. CPU time, one thread.

The cache of keys and values: a Llama of 1 M parameters in the form to be read writes 128 tokens
behind 16. A common beginning: 16 prompts that share 256 tokens and have 8 of their own, 2
completions of 16 tokens each, through the fast form of the same sizes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.timing import Comparison, run_in_turn
from rlbook.llm.generation.prompt_rows import PromptRows, rows_of
from rlbook.llm.models import causal_lm
from rlbook.llm.models.architectures.transformer import (
    Transformer,
    TransformerSizes,
    generate_greedy,
)
from rlbook.llm.models.sources import small_llama

VOCABULARY, NEW_TOKENS, ROUNDS = 128, 128, 3
PROMPTS, SHARED, OWN, COMPLETIONS, WRITTEN = 16, 256, 8, 2, 16


def compare() -> list[Comparison]:
    return [cache(), *beginnings()]


def cache() -> Comparison:
    torch.manual_seed(0)
    sizes = TransformerSizes(
        VOCABULARY, width=128, layers=4, heads=4, kv_heads=4, head_width=32, feed_forward=512
    )
    model, text = Transformer(sizes), torch.arange(16)[None]
    rates = run_in_turn(
        {
            "with": lambda: (
                NEW_TOKENS / cpu_seconds(lambda: generate_greedy(model, text, NEW_TOKENS))
            ),
            "without": lambda: (
                NEW_TOKENS
                / cpu_seconds(lambda: generate_greedy(model, text, NEW_TOKENS, cached=False))
            ),
        },
        ROUNDS,
    )
    return Comparison(
        "the KV cache, beside none", "new tokens/s", rates["with"], rates["without"], 2.0
    )


def beginnings() -> list[Comparison]:
    model = small_llama(
        torch.Generator().manual_seed(0),
        vocabulary_size=VOCABULARY,
        hidden_size=128,
        feed_forward=512,
        layers=4,
        heads=4,
        context=512,
    )
    rows, found = example(), []
    for name, run in (
        ("acting: prompts read", acting),
        ("training: forward and backward", training),
    ):
        rates = run_in_turn(
            {
                "once": lambda run=run: PROMPTS / cpu_seconds(lambda: run(model, rows)),
                "each": lambda run=run: (
                    PROMPTS / cpu_seconds(lambda: run(model, rows.with_prefix()))
                ),
            },
            ROUNDS,
        )
        found.append(
            Comparison(
                f"a common beginning, {name}", "prompts/s", rates["once"], rates["each"], 2.0
            )
        )
    return found


def example() -> PromptRows:
    prompts = torch.randint(
        3, VOCABULARY, (PROMPTS, SHARED + OWN), generator=torch.Generator().manual_seed(1)
    )
    prompts[:, :SHARED] = prompts[0, :SHARED].clone()
    tokens = prompts.repeat_interleave(COMPLETIONS, dim=0)
    return rows_of(tokens, torch.full((len(tokens),), SHARED + OWN), tokens[:, :WRITTEN])


def acting(model: Any, rows: PromptRows) -> None:
    causal_lm.decoder(model).prefill(rows, new_tokens=WRITTEN)


def training(model: Any, rows: PromptRows) -> None:
    causal_lm.logits(model, rows).log_softmax(-1)[..., 0].mean().backward()


def cpu_seconds(run: Callable[[], object]) -> float:
    """What one call costs, with the garbage collector off."""
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        run()
        return time.process_time() - start
    finally:
        gc.enable()
