"""Word vectors: words that occur in similar contexts get similar vectors.

    skip-gram:  the vector of a word predicts each word around it
    CBOW:       the mean of the vectors around a word predicts the word
    both:       θ ← θ - α ∇ negative_sampling_loss, for pairs from a text and words from the noise

Source: Mikolov et al. 2013, arXiv:1301.3781 (the two models) and arXiv:1310.4546 (negative
sampling, noise in proportion to count^¾, frequent words left out). Difference: the step of a word in a
minibatch is the mean over its pairs, so that it does not depend on how frequent the word is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook.checks import check, did_you_mean, one_of, positive, positive_int
from rlbook.functional.word_vectors import negative_sampling_gradients
from rlbook.hyperparameters import Hyperparameters

MODELS = ("skip-gram", "cbow")
NOISE_POWER = 0.75
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class VectorSettings(Hyperparameters):
    """Settings of `train_word_vectors`."""

    dimensions: Annotated[int, positive_int] = 16
    """D, the size of a vector."""
    window: Annotated[int, positive_int] = 5
    """The number of words on either side that count as neighbours."""
    negatives: Annotated[int, positive_int] = 5
    """K, the number of noise words drawn for each pair."""
    passes: Annotated[int, positive_int] = 12
    """The number of passes over the text."""
    batch_size: Annotated[int, positive_int] = 512
    """The number of pairs (skip-gram) or words (CBOW) per step."""
    learning_rate: Annotated[float, positive] = 1.0
    """α, decreasing linearly to 0."""
    threshold: Annotated[float, positive] = 0.01
    """t: a word whose share of the text is f is kept with probability √(t / f), if f > t."""


@dataclass(frozen=True)
class WordVectors:
    """Words with a vector each."""

    words: tuple[str, ...]  # V, the most frequent first
    vectors: NDArray[np.float64]  # [V, D]

    def __getitem__(self, word: str) -> NDArray[np.float64]:
        """The vector of a word, of length 1: [D]. Raises ValueError if there is none."""
        if word not in self.words:
            raise ValueError(f"no vector for {word!r}{did_you_mean(word, self.words)}")
        vector = self.vectors[self.words.index(word)]
        return vector / np.linalg.norm(vector)

    def nearest_words(
        self, vector: NDArray[np.float64], count: int = 3, *, without: Sequence[str] = ()
    ) -> list[tuple[str, float]]:
        """The words whose vectors have the largest cosine with a vector [D], with that cosine."""
        units = self.vectors / np.linalg.norm(self.vectors, axis=1, keepdims=True)
        cosines = units @ (vector / np.linalg.norm(vector))
        order = [i for i in np.argsort(-cosines, kind="stable") if self.words[i] not in without]
        return [(self.words[i], float(cosines[i])) for i in order[:count]]

    def neighbours(self, word: str, count: int = 3) -> list[tuple[str, float]]:
        """The words most similar to a word, with the cosine."""
        return self.nearest_words(self[word], count, without=(word,))

    def analogy(self, one: str, other: str, third: str, count: int = 1) -> list[tuple[str, float]]:
        """What is to `third` as `other` is to `one`: the words nearest to other - one + third.

        Source: Mikolov, Yih and Zweig 2013, equation 1 (NAACL, N13-1090).
        """
        wanted = self[other] - self[one] + self[third]
        return self.nearest_words(wanted, count, without=(one, other, third))


def train_word_vectors(
    sentences: Sequence[Sequence[str]],
    model: str = "skip-gram",
    settings: VectorSettings | None = None,
    *,
    rng: np.random.Generator,
) -> WordVectors:
    """The vectors of all words of a text.

    Args:
        sentences: lists of words; neighbours are looked for within a sentence.
        model: "skip-gram" or "cbow".
        settings: None for the defaults.
        rng: draws the first vectors, the order, the noise, and which frequent words are left out.

    Raises:
        ValueError: another model, or no two words beside each other.
    """
    check("model", model, one_of(*MODELS))
    settings = settings or VectorSettings()
    counts = Counter(word for sentence in sentences for word in sentence)
    words = tuple(sorted(counts, key=lambda word: (-counts[word], word)))
    if max(map(len, sentences), default=0) < 2:
        raise ValueError("sentences must have at least two adjacent words somewhere")
    ids = {word: i for i, word in enumerate(words)}
    text = [np.array([ids[word] for word in sentence], dtype=np.int64) for sentence in sentences]
    shares = np.array([counts[word] for word in words]) / sum(counts.values())
    keep = np.minimum(1.0, np.sqrt(settings.threshold / shares))
    noise = np.cumsum(shares**NOISE_POWER) / (shares**NOISE_POWER).sum()
    shape = len(words), settings.dimensions
    inputs = torch.from_numpy(rng.uniform(-0.5, 0.5, shape) / settings.dimensions)
    outputs = torch.zeros(shape, dtype=torch.float64)
    for part in range(settings.passes):
        shown = [sentence[rng.random(len(sentence)) < keep[sentence]] for sentence in text]
        around, centre = windows(shown, settings.window)
        read, told = (around, centre) if model == "cbow" else pairs(around, centre)
        order = rng.permutation(len(told))
        for start in range(0, len(order), settings.batch_size):
            chosen = order[start : start + settings.batch_size]
            drawn = np.searchsorted(noise, rng.random((len(chosen), settings.negatives)))
            progress = (part + start / len(order)) / settings.passes
            rate = settings.learning_rate * (1.0 - progress)
            parts = (torch.from_numpy(item) for item in (read[chosen], told[chosen], drawn))
            vector_step(inputs, outputs, *parts, rate=rate)
    return WordVectors(words, inputs.numpy())


def vector_step(
    inputs: Tensor,
    outputs: Tensor,
    context: Tensor,
    target: Tensor,
    negatives: Tensor,
    *,
    rate: float,
) -> None:
    """One gradient step of both models, in place on inputs and outputs [V, D].

    Args:
        context: [B, W], the words whose mean predicts (W is 1 for skip-gram); -1 is none.
        target: [B], the word that was there.
        negatives: [B, K], words from the noise.
        rate: α, the step size.
    """
    there = (context >= 0).to(inputs.dtype)[..., None]
    share = there / there.sum(1, keepdim=True)  # of each word in the mean over the window
    hidden = (share * inputs[context.clamp(min=0)]).sum(1)
    gradient = negative_sampling_gradients(hidden, outputs[target], outputs[negatives])
    _descend(inputs, context, share * gradient.hidden[:, None], rate)
    both = torch.cat([gradient.target[:, None], gradient.negatives], 1)
    _descend(outputs, torch.cat([target[:, None], negatives], 1), both, rate)


def _descend(table: Tensor, rows: Tensor, gradient: Tensor, rate: float) -> None:
    """Moves each row of a table [V, D] against the mean of its gradients."""
    used = rows >= 0
    total = torch.zeros_like(table).index_add_(0, rows[used], gradient[used])
    count = torch.bincount(rows[used], minlength=len(table)).clamp(min=1)
    table -= rate * total / count[:, None]


def windows(sentences: Sequence[Ids], window: int) -> tuple[Ids, Ids]:
    """The words around each word [P, 2 · window], -1 if there is none, and the word itself [P];
    words without a neighbour are left out."""
    around, centre = [], []
    for sentence in sentences:
        padded = np.pad(sentence, window, constant_values=-1)
        rows = np.lib.stride_tricks.sliding_window_view(padded, 2 * window + 1)
        around.append(np.delete(rows, window, axis=1))
        centre.append(sentence)
    beside, middle = np.concatenate(around), np.concatenate(centre)
    some = (beside >= 0).any(1)
    return beside[some], middle[some]


def pairs(around: Ids, centre: Ids) -> tuple[Ids, Ids]:
    """Each word [P, 1] with each of its neighbours [P], from the result of `windows`."""
    place, column = np.nonzero(around >= 0)
    return centre[place][:, None], around[place, column]
