"""Sampling from a Llama beside transformers' `generate`, by size: 4 prompts of 16 tokens × 8
completions × 32 tokens, one thread, CPU time.

At 135 M parameters it is 4 completions of 16. The two draw from the same distribution: the largest
difference of a log-probability on our tokens is printed beside.
"""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.model_sizes import SIZES, Size
from benchmarks.read_once import cpu_seconds
from benchmarks.timing import Comparison, run_in_turn
from rlbook.llm.generation.generate import Completions, generate
from rlbook.llm.models.language_model import LanguageModelPolicy

GOAL = 1.5  # × generate


def compare() -> list[Comparison]:
    return [beside(size) for size in SIZES]


def beside(size: Size) -> Comparison:
    model, rng = size.model(), np.random.default_rng(0)
    policy = LanguageModelPolicy(model)
    prompts = np.repeat(
        rng.integers(3, size.vocabulary, (size.prompts, size.prompt_length)),
        size.completions,
        axis=0,
    )
    length = np.full(len(prompts), size.prompt_length)

    def ours() -> Completions:
        return generate(policy, prompts, length, eos=-1, max_new_tokens=size.new_tokens, rng=rng)

    def theirs() -> None:
        ids = torch.from_numpy(prompts)
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            max_new_tokens=size.new_tokens,
        )

    tokens = len(prompts) * size.new_tokens
    rates = run_in_turn(
        {"ours": lambda: tokens / cpu_seconds(ours), "peer": lambda: tokens / cpu_seconds(theirs)},
        size.rounds,
    )
    note = (
        "largest difference of a log-probability:"
        f" {log_prob_difference(model, prompts, ours()):.1e} nats"
    )
    return Comparison(
        f"sampling, {size.name} parameters, against generate",
        "new tokens/s",
        rates["ours"],
        rates["peer"],
        GOAL,
        note,
    )


@torch.no_grad()
def log_prob_difference(
    model: torch.nn.Module, prompts: np.ndarray, completions: Completions
) -> float:
    """The largest |ours - transformers'| over the tokens we drew, in nats."""
    ids = torch.from_numpy(np.concatenate([prompts, completions.tokens], axis=1))
    log_probs = model(input_ids=ids).logits[:, prompts.shape[1] - 1 : -1].log_softmax(-1)
    theirs = log_probs.gather(-1, torch.from_numpy(completions.tokens)[..., None])[..., 0]
    return float((theirs - torch.from_numpy(completions.log_prob)).abs().max())
