"""What training a language model of 135 M parameters takes beside its weights, in float32 and
otherwise: forward and backward of 4 completions of 128 tokens behind one prompt of 64.

The bytes of all tensors that torch's operations make and that are alive at once, whatever the
machine. A line's rate is how many such passes fit into a GB; its peer is float32 with everything
kept.
"""

from __future__ import annotations

import torch

from benchmarks.allocations import peak_bytes
from benchmarks.model_sizes import SIZES, Size
from benchmarks.timing import Comparison
from rlbook.data.rollout import Batch
from rlbook.llm.models.compute import set_compute
from rlbook.llm.models.language_model import LanguageModelPolicy

PROMPT, ROWS, WRITTEN = 64, 4, 128
SETTINGS: dict[str, tuple[str | None, bool, float]] = {
    "float32": (None, False, 1.0),
    "compute bfloat16": ("bfloat16", False, 1.1),
    "gradient_checkpointing": (None, True, 1.7),
    "both": ("bfloat16", True, 1.7),
}
"""Name → products' numbers, whether layers are recomputed, and the goal."""


def compare() -> list[Comparison]:
    peaks = {name: peak_of_pass(SIZES[-1], *setting[:2]) for name, setting in SETTINGS.items()}
    return [
        Comparison(
            f"a pass at {SIZES[-1].name}, {name}",
            "in a GB",
            [1e9 / peaks[name]],
            [1e9 / peaks["float32"]],
            goal,
            f"{peaks[name] / 1e6:,.0f} MB beside the weights",
        )
        for name, (_, _, goal) in SETTINGS.items()
    ]


def peak_of_pass(size: Size, dtype: str | None, recomputed: bool) -> int:
    """Bytes at once, the gradient of all weights included."""
    model = size.model()
    set_compute(model, dtype, recomputed)
    policy, batch = LanguageModelPolicy(model), example(size)
    return peak_bytes(lambda: (-policy.evaluate(batch, entropy=False)[0].mean()).backward())


def example(size: Size) -> Batch:
    """Completions [B, T] of one prompt."""
    generator, vocabulary = torch.Generator().manual_seed(0), size.vocabulary
    prompt = torch.randint(3, vocabulary, (1, PROMPT), generator=generator).repeat(ROWS, 1)
    action = torch.randint(3, vocabulary, (ROWS, WRITTEN), generator=generator)
    obs = {"tokens": prompt, "length": torch.full((ROWS,), PROMPT)}
    return Batch(obs, action, torch.zeros(action.shape), torch.ones(action.shape, dtype=torch.bool))
