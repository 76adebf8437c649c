"""N-gram models: counting, smoothing, perplexity, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from closeness import near

from rlbook.book.experiments.language_models.village_text import village
from rlbook.llm.tokenizers.ngrams import END, NgramModel

TEXT = [sentence.split() for sentence in ("the cat sleeps", "the dog sleeps", "the cat eats")]


def test_a_bigram_is_a_ratio_of_counts() -> None:
    model = NgramModel(2).fit(TEXT)
    assert model.probability("cat", ["the"]) == near(2 / 3, terms=1)
    assert model.probability("the", ["<s>"]) == 1.0
    assert model.probability(END, ["cat", "sleeps"]) == 1.0  # of the history one word counts
    assert model.probability("eats", ["dog"]) == model.probability("mouse", ["the"]) == 0.0


def test_what_is_fitted_later_is_counted_beside_what_was_before() -> None:
    model = NgramModel(1).fit([["a"]]).fit([["b"]])  # a, b and two ends
    assert [model.probability(word, []) for word in ("a", "b", END)] == [1 / 4, 1 / 4, 1 / 2]


def test_add_k_gives_some_to_what_was_not_seen() -> None:
    model = NgramModel(2, k=1.0).fit(TEXT)  # V = the, cat, dog, sleeps, eats and the end: 6
    assert model.probability("eats", ["dog"]) == near((0 + 1) / (1 + 6), terms=1)
    assert model.probability("cat", ["the"]) == near((2 + 1) / (3 + 6), terms=1)
    assert model.probability("cat", ["eats", "eats"]) == near(1 / (1 + 6), terms=1)


def test_interpolation_takes_the_rest_from_shorter_histories() -> None:
    model = NgramModel(2, interpolation=0.75).fit(TEXT)
    alone = 0.75 * (1 / 12) + 0.25 * (1 / 6)  # eats is one of 12 words and ends, V is 6
    assert model.probability("eats", ["cat"]) == near(0.75 * (1 / 2) + 0.25 * alone, terms=6)
    assert model.probability("eats", ["dog"]) == near(0.25 * alone, terms=6)
    assert model.probability("eats", ["eats", "the", "mouse"]) == near(alone, terms=6)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("smooth", [{}, {"k": 0.5}, {"interpolation": 0.7}])
def test_the_words_probabilities_sum_to_one(n: int, smooth: dict[str, float]) -> None:
    model = NgramModel(n, **smooth).fit(TEXT)
    for history in (["<s>", "<s>"], ["the", "cat"], ["cat"]):
        seen = history[len(history) - n + 1 :] if n > 1 else []
        if tuple(seen) in model.counts or smooth:
            total = sum(model.probability(word, history) for word in model.words)
            assert total == near(1.0, terms=20)


def test_perplexity_is_the_number_of_equally_likely_words() -> None:
    die = [[str(face)] for face in range(6)]
    # of each sentence the face has 1/6 in a bigram, the end after it 1: √(6 · 1)
    assert NgramModel(2).fit(die).perplexity(die) == near(math.sqrt(6.0), terms=12)
    one = NgramModel(1).fit(die)  # 6 faces of 1/12 each, and 6 ends of ½
    assert one.perplexity(die) == near(math.sqrt(12 * 2), terms=12)
    assert NgramModel(2).fit(TEXT).perplexity([["the", "mouse"]]) == math.inf
    assert NgramModel(2).fit(TEXT).perplexity([["dog", "eats"]]) == math.inf


def test_longer_histories_help_on_held_out_text_only_with_smoothing() -> None:
    """docs/chapters/tokens.md: the numbers of the table; nothing in it is random."""
    text = village()
    shown, held_out = text[:1350], text[1350:]
    plain = [NgramModel(n).fit(shown) for n in (1, 2, 3, 4)]
    seen = [model.perplexity(shown) for model in plain]
    assert seen == sorted(seen, reverse=True)
    assert [math.isinf(model.perplexity(held_out)) for model in plain] == [False, True, True, True]
    mixed = [NgramModel(n, interpolation=0.8).fit(shown).perplexity(held_out) for n in (1, 2, 3, 4)]
    assert mixed == sorted(mixed, reverse=True) and mixed[3] < 2.0
    one = [NgramModel(n, k=1.0).fit(shown).perplexity(held_out) for n in (2, 3, 4)]
    assert one == sorted(one)  # one for each of V words is too much for what follows a long history


def test_sampled_sentences_end_and_depend_on_the_seed_alone() -> None:
    model = NgramModel(2).fit(TEXT)
    drawn = [model.sample(np.random.default_rng(seed)) for seed in (0, 0, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert all(sentence in [*TEXT, ["the", "dog", "eats"]] for sentence in drawn)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"n": 0}, "n must be an integer of at least 1, got 0"),
        ({"n": 2, "k": -1.0}, "k must be a number of at least 0"),
        ({"n": 2, "interpolation": 1.5}, "interpolation must be"),
        ({"n": 2, "k": 1.0, "interpolation": 0.5}, "smooth by k or by interpolation"),
    ],
)
def test_values_out_of_range_are_refused(arguments: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        NgramModel(**arguments)  # type: ignore[arg-type]
