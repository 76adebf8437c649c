"""Forward and backward of a language model beside transformers', by size: -mean log π of 4 prompts'
completions, one thread, CPU time.

The batch is a round of GRPO: 4 prompts of 16 tokens, 8 completions of 32 each (at 135 M parameters
4 of 16). transformers reads 32 texts of 48 tokens and computes logits for the completions alone;
ours reads each prompt once. The largest difference of the gradients, relative to the largest
gradient, is printed beside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.model_sizes import SIZES, Size
from benchmarks.read_once import cpu_seconds
from benchmarks.timing import Comparison, run_in_turn
from rlbook.data.rollout import Batch
from rlbook.llm.models.language_model import LanguageModelPolicy

GOALS = {"0.1 M": 1.0}  # × transformers'; 1.3 elsewhere


def compare() -> list[Comparison]:
    return [beside(size) for size in SIZES]


def beside(size: Size) -> Comparison:
    model = size.model()
    policy, batch = LanguageModelPolicy(model), example(size)
    gradients = [
        gradient_of(model, lambda: ours(policy, batch)),
        gradient_of(model, lambda: theirs(model, batch)),
    ]
    off = max(float((one - other).abs().max()) for one, other in zip(*gradients, strict=True))
    largest = max(float(each.abs().max()) for each in gradients[1])
    tokens = batch.action.numel()
    del gradients
    rates = run_in_turn(
        {
            "ours": lambda: tokens / cpu_seconds(lambda: ours(policy, batch).backward()),
            "peer": lambda: tokens / cpu_seconds(lambda: theirs(model, batch).backward()),
        },
        size.rounds,
    )
    name = f"training, {size.name} parameters, against transformers"
    note = f"largest difference of a gradient: {off / largest:.1e} of the largest"
    return Comparison(
        name, "tokens/s", rates["ours"], rates["peer"], GOALS.get(size.name, 1.3), note
    )


def example(size: Size) -> Batch:
    """Completions [B, T] of each prompt, all of one length."""
    generator, vocabulary = torch.Generator().manual_seed(1), size.vocabulary
    prompts = torch.randint(
        3, vocabulary, (size.prompts, size.prompt_length), generator=generator
    ).repeat_interleave(size.completions, 0)
    action = torch.randint(3, vocabulary, (len(prompts), size.new_tokens), generator=generator)
    obs = {"tokens": prompts, "length": torch.full((len(prompts),), size.prompt_length)}
    return Batch(obs, action, torch.zeros(action.shape), torch.ones(action.shape, dtype=torch.bool))


def ours(policy: LanguageModelPolicy, batch: Batch) -> Tensor:
    """As every agent of the book computes it."""
    return -policy.evaluate(batch, entropy=False)[0].mean()


def theirs(model: Any, batch: Batch) -> Tensor:
    ids = torch.cat([batch.obs["tokens"], batch.action], dim=1)
    written = batch.action.shape[1]
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=written + 1).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.action.flatten())


def gradient_of(model: Any, loss: Any) -> list[Tensor]:
    """The gradient of each parameter, which is None again afterwards."""
    model.zero_grad(set_to_none=True)
    loss().backward()
    found = [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]
    model.zero_grad(set_to_none=True)
    return found
