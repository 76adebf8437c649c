"""Negative sampling by hand and by autograd, and vectors of the village's words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from closeness import assert_near, near

from rlbook.book.experiments.language_models import village_text, village_vectors
from rlbook.functional.word_vectors import negative_sampling_gradients, negative_sampling_loss
from rlbook.llm.tokenizers.word_vectors import (
    VectorSettings,
    WordVectors,
    pairs,
    train_word_vectors,
    vector_step,
    windows,
)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_the_loss_is_that_of_independent_yes_or_no_questions() -> None:
    zero = torch.zeros(2, 3)
    loss = negative_sampling_loss(zero, zero, torch.zeros(2, 4, 3))
    assert loss.item() == near(5 * math.log(2), dtype="float32", terms=10)
    one = torch.tensor([[1.0, 0.0]])
    told = negative_sampling_loss(one, 2 * one, torch.tensor([[[0.5, 9.0]]]))
    right, wrong = 1 / (1 + math.exp(-2.0)), 1 / (1 + math.exp(0.5))
    assert told.item() == near(-math.log(right) - math.log(wrong), dtype="float32", terms=10)


def test_the_gradients_by_hand_are_autograd_s() -> None:
    parts = [
        drawn(6, 5).requires_grad_(),
        drawn(6, 5, seed=1).requires_grad_(),
        drawn(6, 3, 5, seed=2).requires_grad_(),
    ]
    negative_sampling_loss(*parts).backward()
    ours = negative_sampling_gradients(*(part.detach() for part in parts))
    for mine, part in zip(ours, parts, strict=True):
        assert part.grad is not None
        assert_near(mine / 6, part.grad, terms=60)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="must have matching sizes, got"):
        negative_sampling_loss(drawn(2, 3), drawn(2, 3), drawn(3, 4, 3))
    with pytest.raises(ValueError, match="must have matching sizes, got"):
        negative_sampling_gradients(drawn(2, 3), drawn(1, 3), drawn(2, 4, 3))


def test_windows_and_pairs_by_hand() -> None:
    around, centre = windows([np.array([4, 7, 9]), np.array([5])], 1)
    assert around.tolist() == [[-1, 7], [4, 9], [7, -1]] and centre.tolist() == [4, 7, 9]
    read, told = pairs(around, centre)
    shown = [(int(a[0]), int(b)) for a, b in zip(read, told, strict=True)]
    assert shown == [(4, 7), (7, 4), (7, 9), (9, 7)]


@pytest.mark.parametrize("width", [1, 3])
def test_a_step_descends_along_autograd_s_gradient(width: int) -> None:
    """Each word occurs once in the minibatch, so that the mean over its pairs is its gradient."""
    inputs, outputs = drawn(12, 4), drawn(12, 4, seed=1)
    read = torch.arange(2 * width).reshape(2, width)
    if width == 3:
        read[1, 2] = -1
    told, noise = torch.tensor([0, 1]), torch.tensor([[2, 3], [4, 5]])
    leaves = [inputs.clone().requires_grad_(), outputs.clone().requires_grad_()]
    there = (read >= 0)[..., None]
    hidden = (leaves[0][read.clamp(min=0)] * there).sum(1) / there.sum(1)
    (2 * negative_sampling_loss(hidden, leaves[1][told], leaves[1][noise])).backward()
    expected = [leaf.detach() - 0.1 * leaf.grad for leaf in leaves]  # type: ignore[operator]
    vector_step(inputs, outputs, read, told, noise, rate=0.1)
    for mine, theirs in zip((inputs, outputs), expected, strict=True):
        assert_near(mine, theirs, terms=60)


def test_the_shipped_text_is_the_one_that_is_composed() -> None:
    assert "\n".join(village_text.compose()) + "\n" == village_text.FILE.read_text()
    words = {word for sentence in village_text.village() for word in sentence}
    assert words.issuperset(word for couple in village_text.COUPLES for word in couple)


@pytest.fixture(scope="module")
def vectors() -> WordVectors:
    return train_word_vectors(
        village_text.village(),
        settings=VectorSettings(passes=6, dimensions=12),
        rng=np.random.default_rng(10),
    )


@pytest.mark.thorough
def test_neighbours_are_of_the_same_kind(vectors: WordVectors) -> None:
    for group in village_text.GROUPS:
        if len(group) >= 4:
            found = {word for word, _ in vectors.neighbours(group[0], 3)}
            assert found <= set(group), group


def test_a_king_is_to_a_man_what_a_queen_is_to_a_woman(vectors: WordVectors) -> None:
    assert vectors.analogy("man", "king", "woman")[0][0] == "queen"
    assert village_vectors.analogies_right(vectors) > 0.75  # by chance 1 in 250


def test_similarities_are_cosines() -> None:
    made = WordVectors(("a", "b", "c"), np.array([[1.0, 0.0], [3.0, 3.0], [0.0, -2.0]]))
    ((word, cosine),) = made.neighbours("a", 1)
    assert word == "b" and cosine == near(math.sqrt(0.5), terms=8)
    # b - a + c = (.707 - 1, .707 - 1), and only b is left
    assert made.analogy("a", "a", "c", 2)[0][0] == "b"
    with pytest.raises(ValueError, match="no vector for 'd'"):
        made["d"]


def test_the_same_seed_gives_the_same_vectors() -> None:
    text = village_text.village()[:60]
    quick = VectorSettings(passes=1)
    for model in ("skip-gram", "cbow"):
        made = [
            train_word_vectors(text, model, quick, rng=np.random.default_rng(seed)).vectors
            for seed in (0, 0, 1)
        ]
        assert (made[0] == made[1]).all() and (made[0] != made[2]).any()


def test_bad_requests_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="model must be one of 'skip-gram', 'cbow', got 'glove'"):
        train_word_vectors([["a", "b"]], "glove", rng=rng)
    with pytest.raises(ValueError, match="two adjacent words"):
        train_word_vectors([["a"], []], rng=rng)
    with pytest.raises(ValueError, match="window must be an integer of at least 1"):
        VectorSettings(window=0)


def test_the_picture_has_both_halves(vectors: WordVectors) -> None:
    found = village_vectors.VillageVectors(vectors, {"skip-gram": np.array([1.0, 0.5])})
    assert village_vectors.measurements(found) == {
        "skip gram: mean": 75.0,
        "skip gram: lowest": 50.0,
    }
    assert len(village_vectors.draw(found).axes) == 2
