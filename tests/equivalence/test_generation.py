"""Texts are written as transformers writes them: beam search, and one step after the other with a
cache and without."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths

from rlbook.llm.environments.token_rows import pad_rows
from rlbook.llm.generation.beam_search import beam_search
from rlbook.llm.generation.generate import generate
from rlbook.llm.generation.prompt_rows import rows_of
from rlbook.llm.generation.sampling import Sampling
from rlbook.llm.models.language_model import LanguageModelPolicy

EOS = 2
ENDS = {"llama": 6, "gpt2": 18}
"""Tokens that end some of the random models' texts early, and leave others to the limit."""


def ragged_prompts() -> tuple[np.ndarray, np.ndarray]:
    """Five prompts of 2 to 7 tokens, padded to the right, and their lengths."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(3, 31, n) for n in (4, 7, 2, 4, 5)]
    return pad_rows(rows, 0), np.array([len(row) for row in rows])


def their_beams(
    model: Any, tokens: np.ndarray, length: np.ndarray, eos: int, **options: Any
) -> Any:
    """transformers' own beam search, on prompts padded to the left."""
    width = tokens.shape[1]
    left = np.stack([np.roll(row, width - n) for row, n in zip(tokens, length, strict=True)])
    mask = np.arange(width) >= width - length[:, None]
    return model.generate(
        torch.from_numpy(left),
        attention_mask=torch.from_numpy(mask).long(),
        do_sample=False,
        eos_token_id=eos,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )


@pytest.mark.parametrize(
    ("kind", "beams", "penalty"),
    [("llama", 1, 1.0), ("llama", 4, 1.0), ("llama", 3, 0.0), ("llama", 5, 2.0), ("gpt2", 4, 1.0)],
)
def test_beam_search_finds_what_generate_finds(
    kind: str, beams: int, penalty: float, random_model: Callable[..., Any]
) -> None:
    model = random_model(kind)
    tokens, length = ragged_prompts()
    found = beam_search(
        LanguageModelPolicy(model),
        tokens,
        length,
        ends=[ENDS[kind]],
        max_new_tokens=9,
        beams=beams,
        length_penalty=penalty,
    )
    if beams == 1:  # generate(num_beams=1) is another function, which greedy decoding equals
        greedy = generate(
            LanguageModelPolicy(model), tokens, length, eos=ENDS[kind], max_new_tokens=9
        )
        assert np.array_equal(found.mask[:, 0], greedy.mask)
        assert np.array_equal(found.tokens[:, 0][greedy.mask], greedy.tokens[greedy.mask])
        return
    theirs = their_beams(
        model,
        tokens,
        length,
        ENDS[kind],
        num_beams=beams,
        num_return_sequences=beams,
        length_penalty=penalty,
        max_new_tokens=9,
    )
    written = theirs.sequences[:, tokens.shape[1] :].numpy()
    # transformers fills up with EOS where PAD is 0
    ours = np.where(found.mask, found.tokens, ENDS[kind]).reshape(len(written), -1)
    assert (
        found.mask[..., -1] & (found.tokens[..., -1] != ENDS[kind])
    ).any()  # some reach the limit
    assert (found.mask.sum(-1) < 9).any()  # and some end before it
    assert np.array_equal(ours, written)
    score = theirs.sequences_scores.view(found.score.shape)
    assert_near(found.score, score, dtype="float32", terms=9 * widths(model), size=60.0)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_with_a_beam_for_every_text_all_of_them_are_found_in_their_order(
    random_model: Callable[..., Any], temperature: float
) -> None:
    """Four symbols, one of which ends, and at most three of them: 1 + 3 + 9 · 4 texts."""
    policy = LanguageModelPolicy(random_model("llama", vocab_size=4), temperature=temperature)
    prompt = np.array([[1, 3]])
    texts = [
        text
        for n in (1, 2, 3)
        for text in itertools.product(range(4), repeat=n)
        if EOS not in text[:-1] and (text[-1] == EOS or n == 3)
    ]
    score = {}
    for text in texts:
        whole = torch.tensor([[*prompt[0], *text]])
        log_prob = (policy.model(whole).logits[0, 1:-1] / temperature).log_softmax(-1)
        score[text] = log_prob.gather(1, whole[0, 2:, None]).sum().item()
    found = beam_search(
        policy,
        prompt,
        np.array([2]),
        ends=[EOS],
        max_new_tokens=3,
        beams=len(texts),
        length_penalty=0.0,
    )
    order = sorted(texts, key=lambda text: -score[text])
    rows = zip(found.tokens[0], found.mask[0], strict=True)
    assert [tuple(row[mask].tolist()) for row, mask in rows] == order
    expected = [score[text] for text in order]
    assert found.score[0].tolist() == near(
        expected, dtype="float32", terms=3 * widths(policy.model)
    )


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize(
    "sampling", [None, Sampling(temperature=0.7, top_k=5, repetition_penalty=1.3), "greedy"]
)
def test_the_cache_changes_no_token(
    kind: str, sampling: Sampling | str | None, random_model: Callable[..., Any]
) -> None:
    policy = LanguageModelPolicy(random_model(kind))
    tokens, length = ragged_prompts()
    both = [
        generate(
            policy,
            tokens,
            length,
            eos=EOS,
            max_new_tokens=12,
            rng=None if sampling == "greedy" else np.random.default_rng(5),
            sampling=sampling if isinstance(sampling, Sampling) else None,
            cached=cached,
        )
        for cached in (True, False)
    ]
    assert np.array_equal(both[0].tokens, both[1].tokens)
    assert np.array_equal(both[0].mask, both[1].mask)
    assert_near(both[0].log_prob, both[1].log_prob, terms=2 * widths(policy.model), size=20.0)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_decoder_goes_on_with_the_rows_that_were_selected(
    kind: str, random_model: Callable[..., Any]
) -> None:
    """With padding: its logits are those of the same texts from their beginning."""
    policy = LanguageModelPolicy(random_model(kind))
    tokens, length = (torch.from_numpy(array) for array in ragged_prompts())
    decoder = policy.decoder()
    decoder.prefill(rows_of(tokens, length, tokens[:, :0]), new_tokens=3)
    rows, first, second = torch.tensor([3, 1, 1, 4]), torch.arange(5) + 3, torch.arange(4) + 9
    decoder.step(first)
    decoder.select(rows)
    found = decoder.step(second)
    for row, (source, token) in enumerate(zip(rows.tolist(), second.tolist(), strict=True)):
        text = [*tokens[source, : length[source]].tolist(), int(first[source]), token]
        expected = policy.model(torch.tensor([text])).logits[0, -1]
        assert_near(found[row], expected, terms=2 * widths(policy.model))
