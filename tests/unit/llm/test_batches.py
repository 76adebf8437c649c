"""Batches of token rows equal those of transformers' tokenizers; rows for new tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near
from tokenizers import processors

from rlbook.llm.models.new_tokens import append_mean_rows
from rlbook.llm.models.starting import starting_model
from rlbook.llm.tasks import AdditionTask
from rlbook.llm.tokenizers.batches import join_pair, pad, truncate
from rlbook.llm.tokenizers.tokenizer import BOS, EOS, character_tokenizer

TEXTS = ["1+1=", "12+34=", ""]


@pytest.fixture
def tokenizer() -> Any:
    return character_tokenizer()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("length", [None, 7, 9])
def test_padding_is_transformers(tokenizer: Any, side: str, length: int | None) -> None:
    rows = tokenizer(TEXTS).input_ids
    how = (
        {"padding": "longest"}
        if length is None
        else {"padding": "max_length", "max_length": length}
    )
    theirs = tokenizer(TEXTS, padding_side=side, return_tensors="np", **how)
    ids, mask = pad(rows, tokenizer.pad_token_id, length=length, side=side)
    assert (ids == theirs.input_ids).all() and (mask == theirs.attention_mask).all()
    assert mask.sum(1).tolist() == [len(row) for row in rows]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("length", [3, 5, 7, 20])
def test_truncation_is_transformers(tokenizer: Any, side: str, length: int) -> None:
    tokenizer.truncation_side = side
    plain = {"add_special_tokens": False}
    theirs = tokenizer("12+34=", truncation=True, max_length=length, **plain).input_ids
    assert truncate(tokenizer("12+34=", **plain).input_ids, length, side=side) == theirs


def test_pairs_are_those_of_bert_s_template(tokenizer: Any) -> None:
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A {EOS}",
        pair=f"{BOS} $A {EOS} $B:1 {EOS}:1",
        special_tokens=[(BOS, 1), (EOS, 2)],
    )
    theirs = tokenizer("1+1=", "2", return_token_type_ids=True)
    first, second = (tokenizer(text, add_special_tokens=False).input_ids for text in ("1+1=", "2"))
    ids, types = join_pair(first, second, begin=1, separator=2)
    assert (ids, types) == (theirs.input_ids, theirs.token_type_ids)
    assert types == [0] * 6 + [1] * 2


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(
        ValueError, match="length must be at least 3, as the longest row has, got 2"
    ):
        pad([[1, 2, 3]], 0, length=2)
    with pytest.raises(ValueError, match="side must be one of 'left', 'right', got 'top'"):
        pad([[1]], 0, side="top")
    with pytest.raises(ValueError, match="length must be an integer of at least 0, got -1"):
        truncate([1, 2], -1)
    assert pad([], 0)[0].shape == (0, 0) and truncate([1, 2], 0, side="left") == []


def test_a_batch_without_its_mask_gets_other_answers(tokenizer: Any) -> None:
    """docs/chapters/tokens.md: the numbers of the page are this model's."""
    model = starting_model(AdditionTask(), None, np.random.default_rng(0))
    prompts = [f"{a}+{b}=" for a, b in ((15, 79), (23, 45), (57, 80), (11, 66), (42, 42), (98, 76))]
    rows = tokenizer(prompts).input_ids
    alone = [_written(tokenizer, model, *pad([row], 0))[0] for row in rows]
    ids, mask = pad([*rows, tokenizer("1+1+1+12+34=").input_ids], 0, side="left")
    assert _written(tokenizer, model, ids, mask)[:-1] == alone
    unmasked = _written(tokenizer, model, ids, np.ones_like(mask))[:-1]
    assert sum(a != b for a, b in zip(alone, unmasked, strict=True)) >= 4


def _written(tokenizer: Any, model: Any, ids: Any, mask: Any) -> list[str]:
    with torch.no_grad():
        out = model.generate(
            torch.from_numpy(ids),
            attention_mask=torch.from_numpy(mask),
            max_new_tokens=4,
            do_sample=False,
            pad_token_id=0,
        )
    return tokenizer.batch_decode(out[:, ids.shape[1] :], skip_special_tokens=True)


def test_rows_of_new_tokens_are_transformers_and_no_likelier_than_average(tokenizer: Any) -> None:
    model = starting_model(AdditionTask(), None, np.random.default_rng(0))
    tables = [
        table.weight.detach().clone()
        for table in (model.get_input_embeddings(), model.get_output_embeddings())
    ]
    with torch.random.fork_rng(devices=[]):
        model.resize_token_embeddings(28, mean_resizing=True)
    grown = (model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    for before, after in zip(tables, grown, strict=True):
        ours = append_mean_rows(before, 2)
        assert (after[:26] == before).all()
        # its noise has the variance 1e-9 of the old rows', so it is within six times its root
        bound = 6 * 1e-9**0.5 * before.std(0).max().item()
        assert (after - ours).abs().max() <= bound
    with torch.no_grad():
        ids = torch.tensor([tokenizer("12+34=").input_ids])
        hidden = model.model(ids).last_hidden_state[0, -1]
        logits = append_mean_rows(tables[1], 2) @ hidden
    assert_near(logits[26], logits[:26].mean(), terms=64 * 26, size=float(logits.abs().max()))
    assert (logits.softmax(-1)[26:] <= 1 / 26).all()
    with pytest.raises(ValueError, match="a number of rows of at least 0"):
        append_mean_rows(tables[0], -1)
