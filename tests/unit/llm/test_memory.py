"""What training a language model takes, told before it is taken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import rlbook
from rlbook.llm.models import memory
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


def test_a_run_says_so_where_it_is_much(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    notes = []
    for worth_telling in (10**9, 0):
        monkeypatch.setattr(memory, "WORTH_TELLING", worth_telling)
        run = rlbook.train("grpo", "Addition-v0", steps=8, num_envs=8, group_size=4, eval_every=0)
        notes.append([note for note in run.notes if note.startswith("memory")])
    assert notes[0] == []
    listed = r"\(weights [\d.]+, optimizer [\d.]+, acting [\d.]+, update [\d.]+\)"
    assert re.fullmatch(
        rf"memory: about 0\.5 GB {listed}, of \d+ in this machine; micro_batch_size lowers it",
        notes[1][0],
    )
