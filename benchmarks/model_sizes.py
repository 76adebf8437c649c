"""Llamas of four sizes for a comparison, their weights drawn anew: what is measured does not depend
on what they have learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rlbook.llm.models.sources import small_llama


@dataclass(frozen=True)
class Size:
    """A model, and how much of it is computed in one go: 4 prompts of 16 tokens, `completions` of
    each, of `new_tokens`."""

    name: str
    sizes: dict[str, int]
    completions: int = 8
    new_tokens: int = 32
    rounds: int = 9
    prompts: int = 4
    prompt_length: int = 16
    context: int = 128

    @property
    def vocabulary(self) -> int:
        return self.sizes["vocabulary_size"]

    def model(self) -> Any:
        made = small_llama(torch.Generator().manual_seed(0), context=self.context, **self.sizes)
        made.generation_config.eos_token_id = None
        return made


SIZES = (
    Size("0.1 M", {"vocabulary_size": 32}),
    Size("1 M", {"vocabulary_size": 128, "hidden_size": 128, "feed_forward": 512, "layers": 4}),
    Size(
        "10 M",
        {"vocabulary_size": 1024, "hidden_size": 320, "feed_forward": 960, "layers": 7, "heads": 5},
        rounds=5,
    ),
    Size(
        "135 M",
        {
            "vocabulary_size": 49_152,
            "hidden_size": 576,
            "feed_forward": 1536,
            "layers": 30,
            "heads": 9,
            "kv_heads": 3,
        },
        completions=4,
        new_tokens=16,
        rounds=3,
    ),
)
"""The last has the sizes of SmolLM2-135M."""
