"""Sampling from a 1 M-parameter Llama: ours beside transformers' `generate`, interleaved, on one thread.

    python benchmarks/sampling.py

4 prompts × 8 completions, prompts of 16 tokens, 32 new tokens each. Prints new tokens per second (median, and the range) and the ratio.
The two draw from the same distribution: the largest difference of a log-probability on our tokens is printed beside.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from rlbook.llm.generation import Completions, generate
from rlbook.llm.language_model import LanguageModelPolicy
from rlbook.llm.models import small_llama

PROMPTS, COMPLETIONS, PROMPT_LENGTH, NEW_TOKENS, VOCABULARY = 4, 8, 16, 32, 128
REPETITIONS = 15


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    model = small_llama(generator, vocabulary_size=VOCABULARY, hidden_size=128, feed_forward=512, layers=4, heads=4, context=128)
    model.generation_config.eos_token_id = None
    policy = LanguageModelPolicy(model)
    rng = np.random.default_rng(0)
    prompts = np.repeat(rng.integers(3, VOCABULARY, (PROMPTS, PROMPT_LENGTH)), COMPLETIONS, axis=0)
    length = np.full(len(prompts), PROMPT_LENGTH)

    def ours() -> Completions:
        return generate(policy, prompts, length, eos=-1, max_new_tokens=NEW_TOKENS, rng=rng)

    def theirs() -> None:
        ids = torch.from_numpy(prompts)
        model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=NEW_TOKENS)

    seconds = interleaved({"rlbook": ours, "transformers generate": theirs}, REPETITIONS)
    rates = {name: [len(prompts) * NEW_TOKENS / second for second in runs] for name, runs in seconds.items()}
    for name, runs in rates.items():
        print(f"{name:22} {statistics.median(runs):10,.0f} new tokens/s   ({min(runs):,.0f} to {max(runs):,.0f})")
    ratios = [slow / fast for slow, fast in zip(seconds["transformers generate"], seconds["rlbook"], strict=True)]
    print(f"ratio, round by round  {statistics.median(ratios):10.2f}                  ({min(ratios):.2f} to {max(ratios):.2f})")
    print(f"largest difference     {log_prob_difference(model, prompts, ours()):10.1e} nats")


def interleaved(runs: dict[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each, taken in turn; the first round warms up and is dropped."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repetitions + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: values[1:] for name, values in seconds.items()}


@torch.no_grad()
def log_prob_difference(model: torch.nn.Module, prompts: np.ndarray, completions: Completions) -> float:
    """The largest |ours - transformers'| over the tokens we drew, in nats."""
    ids = torch.from_numpy(np.concatenate([prompts, completions.tokens], axis=1))
    log_probs = model(input_ids=ids).logits[:, PROMPT_LENGTH - 1 : -1].log_softmax(-1)
    theirs = log_probs.gather(-1, torch.from_numpy(completions.tokens)[..., None])[..., 0]
    return float((theirs - torch.from_numpy(completions.log_prob)).abs().max())


if __name__ == "__main__":
    main()
