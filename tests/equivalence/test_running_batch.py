"""Rows that join and leave a running batch say what each would say alone, in every form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, widths

from rlbook.fast.llama_batch import LlamaBatch
from rlbook.fast_forms import use_plain_forms
from rlbook.llm.generation.running_batch import CausalBatch, order_after_removal, running_batch

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2, "tie_word_embeddings": True},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 10},
    "gpt2": {},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 10, "sliding_window": 4},
}


def play(model: Any, plain: bool) -> tuple[dict[str, list[torch.Tensor]], dict[str, list[int]]]:
    """What each row was told on the way, and its text: rows of other lengths join in the middle and
    leave from any place; a later one takes a place that was used before."""
    rng = np.random.default_rng(0)
    texts: dict[str, list[int]] = {}
    said: dict[str, list[torch.Tensor]] = {}
    with use_plain_forms(plain):
        batch = running_batch(model)
        rows: list[str] = []

        def add(**lengths: int) -> None:
            for name, length in lengths.items():
                texts[name] = rng.integers(1, 31, length).tolist()
            if "a" in lengths:
                texts["b"] = list(texts["a"])  # of equal prompts one is read
            logits = batch.add([texts[name] for name in lengths])
            rows.extend(lengths)
            said.update({name: [row] for name, row in zip(lengths, logits, strict=True)})

        def step(times: int) -> None:
            for _ in range(times):
                token = torch.from_numpy(rng.integers(1, 31, len(rows)))
                for name, own, row in zip(rows, token.tolist(), batch.step(token), strict=True):
                    texts[name].append(own)
                    said[name].append(row)

        def remove(*names: str) -> None:
            rows[:] = [rows[row] for row in batch.remove([rows.index(name) for name in names])]
            assert len(batch) == len(rows)

        add(a=7, b=7, c=1)
        step(2)
        remove("b")
        add(d=9)
        step(1)
        remove("a", "d")
        step(2)
        add(e=2, f=5)
        step(3)
        remove(*rows)
        assert len(batch) == 0
        add(g=4)
        step(2)
    return said, texts


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("kind", FAMILIES)
def test_each_row_is_told_what_it_would_be_told_alone(
    kind: str, plain: bool, random_model: Callable[..., Any]
) -> None:
    model = random_model(kind, **FAMILIES[kind])
    said, texts = play(model, plain)
    for name in "abcdefg":
        text, own = texts[name], torch.stack(said[name])
        with torch.inference_mode():
            alone = model(input_ids=torch.tensor([text])).logits[0, -len(own) :]
        assert_near(own, alone, terms=widths(model))


def test_rows_that_begin_alike_are_read_once_and_stay_apart(
    random_model: Callable[..., Any],
) -> None:
    model = random_model("llama", **FAMILIES["llama"])
    prompts = [[*range(1, 25), own, *tail] for own, tail in ((3, (4, 5)), (6, ()), (7, (8,)))]
    batch = LlamaBatch(model)
    logits = [batch.add(prompts)]
    token = torch.tensor([9, 10, 11])
    logits.append(batch.step(token))
    for row, prompt in enumerate(prompts):
        with torch.inference_mode():
            alone = model(input_ids=torch.tensor([[*prompt, int(token[row])]])).logits[0, -2:]
        own = torch.stack([logits[0][row], logits[1][row]])
        assert_near(own, alone, terms=widths(model))


def test_columns_that_no_remaining_row_needs_are_dropped(random_model: Callable[..., Any]) -> None:
    batch = CausalBatch(random_model("gpt2"))
    batch.add([[1, 2, 3], [4, 5, 6, 7, 8]])
    batch.remove([1])
    (decoder,) = batch.parts
    cached: Any = decoder.cache.layers[0]
    assert decoder.column == cached.keys.shape[2] == 3


def test_a_row_of_nan_leaves_nothing_to_the_next_one_in_its_place(
    random_model: Callable[..., Any],
) -> None:
    model = random_model("llama", **FAMILIES["llama"])
    batch = LlamaBatch(model)
    batch.add([[1, 2, 3], [4, 5, 6, 7, 8]])
    with torch.inference_mode():
        batch.cache[:, :, 1] = torch.nan
    batch.remove([1])
    batch.add([[4]])
    assert batch.step(torch.tensor([1, 2])).isfinite().all()


@pytest.mark.fast_form
def test_only_a_model_that_is_what_its_fast_form_computes_gets_that(
    random_model: Callable[..., Any],
) -> None:
    model = random_model("llama", **FAMILIES["llama"])
    assert isinstance(running_batch(model), LlamaBatch)
    assert isinstance(running_batch(model.to(torch.bfloat16)), CausalBatch)


def test_the_last_rows_take_the_places_of_those_that_leave() -> None:
    assert order_after_removal(5, [1]) == [0, 4, 2, 3]
    assert order_after_removal(5, [1, 4]) == [0, 3, 2]
    assert order_after_removal(5, [0, 1, 2, 3, 4]) == []
    assert sorted(order_after_removal(9, [0, 3, 7, 8])) == [1, 2, 4, 5, 6]
