"""Sampling from a Llama of 1 M parameters beside transformers' `generate`: 4 prompts of 16 tokens × 8 completions × 32 tokens, one thread.

The two draw from the same distribution: the largest difference of a log-probability on our tokens is printed beside.
"""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.timing import Comparison, in_turn, seconds
from rlbook.llm.generation import Completions, generate
from rlbook.llm.language_model import LanguageModelPolicy
from rlbook.llm.models import small_llama

PROMPTS, COMPLETIONS, PROMPT_LENGTH, NEW_TOKENS, VOCABULARY = 4, 8, 16, 32, 128
TOKENS, ROUNDS = PROMPTS * COMPLETIONS * NEW_TOKENS, 15


def compare() -> list[Comparison]:
    generator = torch.Generator().manual_seed(0)
    model = small_llama(generator, vocabulary_size=VOCABULARY, hidden_size=128, feed_forward=512, layers=4, heads=4, context=128)
    model.generation_config.eos_token_id = None
    policy, rng = LanguageModelPolicy(model), np.random.default_rng(0)
    prompts = np.repeat(rng.integers(3, VOCABULARY, (PROMPTS, PROMPT_LENGTH)), COMPLETIONS, axis=0)
    length = np.full(len(prompts), PROMPT_LENGTH)

    def ours() -> Completions:
        return generate(policy, prompts, length, eos=-1, max_new_tokens=NEW_TOKENS, rng=rng)

    def theirs() -> None:
        ids = torch.from_numpy(prompts)
        model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=NEW_TOKENS)

    rates = in_turn({"ours": lambda: TOKENS / seconds(ours), "peer": lambda: TOKENS / seconds(theirs)}, ROUNDS)
    note = f"largest difference of a log-probability: {log_prob_difference(model, prompts, ours()):.1e} nats"
    return [Comparison("sampling, against transformers' generate", "new tokens/s", rates["ours"], rates["peer"], 1.3, note)]


@torch.no_grad()
def log_prob_difference(model: torch.nn.Module, prompts: np.ndarray, completions: Completions) -> float:
    """The largest |ours - transformers'| over the tokens we drew, in nats."""
    ids = torch.from_numpy(np.concatenate([prompts, completions.tokens], axis=1))
    log_probs = model(input_ids=ids).logits[:, PROMPT_LENGTH - 1 : -1].log_softmax(-1)
    theirs = log_probs.gather(-1, torch.from_numpy(completions.tokens)[..., None])[..., 0]
    return float((theirs - torch.from_numpy(completions.log_prob)).abs().max())
