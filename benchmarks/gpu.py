"""On a GPU, a Llama with the sizes of SmolLM2-135M beside transformers and TRL, by the wall: by
name only, `python -m benchmarks gpu`.

Sampling: prompts of 128 tokens, 8 completions of 128 tokens each, 64 and 512 rows at once, weights
in bfloat16, beside `generate` with its defaults and with its static cache, which torch then compiles. A GRPO step: 8 prompts ×
8 completions of 128 tokens, float32 weights and products in bfloat16 (autocast) on both sides, TRL
with its defaults (gradient checkpointing) and without that. The note of a line has the most memory
that each side held at once.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from transformers.utils import logging

from benchmarks.grpo_step import our_steps, trl_steps
from benchmarks.model_sizes import SIZES, Size
from benchmarks.timing import Comparison, clock, run_in_turn
from rlbook.llm.generation.generate import generate
from rlbook.llm.models.language_model import LanguageModelPolicy

DEVICE = "cuda"
SIZE = dataclasses.replace(
    SIZES[-1], prompts=8, prompt_length=128, completions=8, new_tokens=128, context=512, rounds=3
)
ROWS = (64, 512)


def compare() -> list[Comparison]:
    logging.set_verbosity_error()
    if not torch.cuda.is_available():
        print("error: this comparison needs a GPU, and none is available here", file=sys.stderr)
        sys.exit(2)
    print(torch.cuda.get_device_name())
    sizes = [dataclasses.replace(SIZE, prompts=rows // SIZE.completions) for rows in ROWS]
    return [line for size in sizes for line in compare_sampling(size)] + compare_grpo(SIZE)


def compare_sampling(size: Size, device: str = DEVICE) -> list[Comparison]:
    model, now = size.model().to(device, torch.bfloat16), clock(device)
    rng, rows = np.random.default_rng(0), size.prompts * size.completions
    prompts = np.repeat(
        rng.integers(3, size.vocabulary, (size.prompts, size.prompt_length)),
        size.completions,
        axis=0,
    )

    def ours() -> float:
        policy, length = LanguageModelPolicy(model), np.full(rows, size.prompt_length)
        start = now()
        generate(policy, prompts, length, eos=-1, max_new_tokens=size.new_tokens, rng=rng)
        return rows * size.new_tokens / (now() - start)

    def theirs(**settings: object) -> float:
        ids = torch.from_numpy(prompts).to(device)
        start = now()
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            max_new_tokens=size.new_tokens,
            **settings,
        )
        return rows * size.new_tokens / (now() - start)

    return beside(
        f"sampling, {size.name}, {rows} rows, against generate",
        "new tokens/s",
        {
            "ours": ours,
            "its defaults": theirs,
            "compiled": partial(theirs, cache_implementation="static"),
        },
        size.rounds,
        device,
    )


def compare_grpo(size: Size, device: str = DEVICE) -> list[Comparison]:
    """Steps of 64 completions; a rate is that of the median step of a run."""
    runs = {
        "ours": partial(our_steps, "bfloat16", size, device),
        "its defaults": partial(trl_steps, size, device, bf16=True),
        "no checkpointing": partial(
            trl_steps, size, device, bf16=True, gradient_checkpointing=False
        ),
    }
    rates = {
        name: partial(lambda run: 1.0 / statistics.median(run()), run) for name, run in runs.items()
    }
    # the first steps of each run do not count as it is
    return beside(
        f"GRPO step, {size.name}, against TRL", "steps/s", rates, size.rounds, device, warm_up=0
    )


def beside(
    name: str,
    unit: str,
    runs: dict[str, Callable[[], float]],
    rounds: int,
    device: str,
    warm_up: int = 1,
) -> list[Comparison]:
    """A line for each peer; the first of `runs` is ours."""
    peaks: dict[str, float] = {}

    def run_measured(side: str) -> float:
        if device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        rate = runs[side]()
        peaks[side] = 0.0 if device == "cpu" else torch.cuda.max_memory_allocated(device) / 1e9
        return rate

    rates = run_in_turn({side: partial(run_measured, side) for side in runs}, rounds, warm_up)
    ours, *peers = runs
    return [
        Comparison(
            f"{name}, {peer}",
            unit,
            rates[ours],
            rates[peer],
            1.0,
            f"memory: {peaks[ours]:.2f} GB, peer {peaks[peer]:.2f} GB",
        )
        for peer in peers
    ]
