"""What training a language model takes, told before it is taken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import rlbook
from benchmarks.allocations import Allocations
from rlbook.data.rollout import Batch
from rlbook.llm.models import memory
from rlbook.llm.models.compute import set_compute
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.memory import estimate_memory, first_trained_layer
from rlbook.llm.models.sources import small_llama


def test_what_is_trained_needs_four_times_its_weights() -> None:
    """Weights, gradient and two moments; a frozen half counts once, a reference on the same weights
    not at all."""
    policy = LanguageModelPolicy(
        small_llama(torch.Generator().manual_seed(0), vocabulary_size=30), critic=True
    )
    assert policy.critic is not None
    weights = sum(parameter.nbytes for parameter in policy.parameters())
    model = sum(parameter.nbytes for parameter in policy.model.parameters())
    parts = estimate_memory(policy, [], rows=0, tokens=0)
    assert parts == (weights, 3 * weights, model, 0)
    policy.critic.requires_grad_(False)
    assert estimate_memory(policy, [policy.model, nn.Linear(2, 3)], rows=0, tokens=0)[:2] == (
        weights + 4 * 9,
        3 * model,
    )


def test_a_pass_keeps_numbers_for_each_token_and_layer() -> None:
    """2 layers, d = 64, f = 256, 30 tokens: 4 bytes × (2 × (8 × 64 + 4 × 256) + 3 × 30) for each of
    1 000 × 40."""
    policy = LanguageModelPolicy(small_llama(torch.Generator().manual_seed(0), vocabulary_size=30))
    assert (
        estimate_memory(policy, [], rows=1000, tokens=40).update
        == 4 * (2 * (8 * 64 + 4 * 256) + 3 * 30) * 40_000
    )


def test_layers_below_the_first_one_that_is_trained_keep_nothing() -> None:
    policy = LanguageModelPolicy(small_llama(torch.Generator().manual_seed(0), vocabulary_size=30))
    assert first_trained_layer(policy.model) == 0  # all: the embedding too
    for name, parameter in policy.named_parameters():
        parameter.requires_grad_(".layers.1." in name)
    assert first_trained_layer(policy.model) == 1
    assert (
        estimate_memory(policy, [], rows=1000, tokens=40).update
        == 4 * (1 * (8 * 64 + 4 * 256) + 3 * 30) * 40_000
    )
    for name, parameter in policy.named_parameters():  # the lowest of several
        parameter.requires_grad_(".layers." in name)
    assert first_trained_layer(policy.model) == 0


def test_bfloat16_and_recomputed_layers_keep_less() -> None:
    """2 layers, d = 64, f = 256: of each token 16 d + 8 d + 8 f bytes in place of 32 d + 16 f, and
    the matrices, 2 · (4 d² + 3 d f) numbers, once more in half the bytes; or 4 d bytes of each
    layer, and one layer's all."""
    policy = LanguageModelPolicy(small_llama(torch.Generator().manual_seed(0), vocabulary_size=30))
    matrices = 2 * (4 * 64 * 64 + 3 * 64 * 256)
    logits = 4 * 3 * 30
    for (dtype, recomputed), (of_token, copies) in {
        ("bfloat16", False): (2 * (24 * 64 + 8 * 256), 2 * matrices),
        (None, True): (2 * 4 * 64 + 32 * 64 + 16 * 256, 0),
        ("bfloat16", True): (2 * 4 * 64 + 24 * 64 + 8 * 256, 2 * matrices),
    }.items():
        set_compute(policy.model, dtype, recomputed)
        found = estimate_memory(policy, [], rows=1000, tokens=40)
        assert found.update == (of_token + logits) * 40_000 + copies
        held = sum(weight.nbytes for weight in policy.model.parameters())
        assert found.acting == (held if dtype is None else held // 2)


def test_the_estimate_is_near_what_is_measured() -> None:
    """The tensors of a pass over 8 texts of 100 tokens, within a third."""
    if not torch.backends.cuda.flash_sdp_enabled():
        pytest.skip("the estimate is for flash attention, which fails here")
    policy = LanguageModelPolicy(
        small_llama(torch.Generator().manual_seed(0), layers=6, vocabulary_size=30, context=128)
    )
    tokens = torch.randint(3, 30, (8, 10), generator=torch.Generator().manual_seed(1))
    action = torch.randint(3, 30, (8, 90), generator=torch.Generator().manual_seed(2))
    batch = Batch(
        {"tokens": tokens, "length": torch.full((8,), 10)},
        action,
        torch.zeros(8, 90),
        torch.ones(8, 90, dtype=torch.bool),
    )
    for dtype, recomputed in ((None, False), (None, True), ("bfloat16", False)):
        set_compute(policy.model, dtype, recomputed)
        with Allocations() as counted:
            loss = policy.evaluate(batch, entropy=False)[0].mean()
            kept = counted.live
            loss.backward()
        policy.zero_grad(set_to_none=True)
        expected = estimate_memory(policy, [], rows=8, tokens=100).update
        measured = counted.peak if recomputed else kept
        assert expected / 1.5 < measured < expected * 1.5, (dtype, recomputed, measured, expected)


def test_a_run_says_so_where_it_is_much(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    notes = []
    for worth_telling in (10**9, 0):
        monkeypatch.setattr(memory, "WORTH_TELLING", worth_telling)
        run = rlbook.train("grpo", "Addition-v0", steps=8, num_envs=8, group_size=4, eval_every=0)
        notes.append([note for note in run.notes if note.startswith("memory")])
    assert notes[0] == []
    listed = r"\(weights [\d.]+, optimizer [\d.]+, acting [\d.]+, update [\d.]+\)"
    assert re.fullmatch(
        rf"memory: about 0\.5 GB {listed}, of \d+ in this machine; micro_batch_size lowers it, and"
        " so does --model.gradient_checkpointing true"
        r" \(model=\{'gradient_checkpointing': True\}\)",
        notes[1][0],
    )
