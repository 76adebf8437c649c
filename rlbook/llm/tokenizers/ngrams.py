"""N-gram models: the next word from the n - 1 words before it, by counting.

    P(w | h)  =  count(h w) / count(h)              nothing that was not seen is possible
    add-k:       (count(h w) + k) / (count(h) + k V)
    interpolated: λ count(h w) / count(h) + (1 - λ) P(w | h without its first word), at last 1 / V

A text's perplexity is e^(mean of -log P per word): the number of equally likely words that would be
as hard to guess. Source: Jurafsky and Martin, Speech and Language Processing, 3rd edition, chapter
3 (equations 3.7, 3.17, 3.26 and 3.29); Jelinek and Mercer 1980.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from rlbook.checks import check, non_negative, positive_int, share_below_one

BEGIN, END = "<s>", "</s>"


class NgramModel:
    """Counts of words after each history of up to n - 1 words.

    Args:
        n: length of an n-gram; 1 takes no notice of what is before.
        k: of add-k smoothing, added to each count; 0 for none.
        interpolation: λ, the share of the longest history; the rest comes from the next shorter one.
            None for add-k alone.

    Raises:
        ValueError: a value out of range, or k and an interpolation together.
    """

    def __init__(self, n: int, *, k: float = 0.0, interpolation: float | None = None) -> None:
        check("n", n, positive_int)
        check("k", k, non_negative)
        if interpolation is not None:
            check("interpolation", interpolation, share_below_one)
            if k:
                raise ValueError(f"smooth by k or by interpolation, got k {k} and {interpolation}")
        self.n, self.k, self.interpolation = n, k, interpolation
        self.counts: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        self.words: frozenset[str] = frozenset()

    def fit(self, sentences: Sequence[Sequence[str]]) -> NgramModel:
        """Counts the n-grams of sentences, each with an end, in addition to those counted
        before."""
        self.words |= {END}.union(*sentences)
        for sentence in sentences:
            for word, history in self._events(sentence):
                for length in range(self.n):
                    self.counts[history[len(history) - length :]][word] += 1
        return self

    def probability(self, word: str, history: Sequence[str]) -> float:
        """P(word | history), of which the last n - 1 words count; 0 for a word never seen."""
        if word not in self.words:
            return 0.0
        recent = tuple(history)[max(0, len(history) - self.n + 1) :] if self.n > 1 else ()
        if self.interpolation is not None:
            return self._interpolate(word, recent)
        seen = self.counts.get(recent, Counter())
        total = seen.total() + self.k * len(self.words)
        return (seen[word] + self.k) / total if total else 0.0

    def _interpolate(self, word: str, history: tuple[str, ...]) -> float:
        """λ for this history, plus the remaining weight for the shorter one; for the empty history,
        the uniform distribution. A history that was never seen has weight 0, so the shorter one
        gets all of it."""
        shorter = self._interpolate(word, history[1:]) if history else 1.0 / len(self.words)
        seen = self.counts.get(history)
        if seen is None or self.interpolation is None:
            return shorter
        share = self.interpolation
        return share * seen[word] / seen.total() + (1.0 - share) * shorter

    def perplexity(self, sentences: Sequence[Sequence[str]]) -> float:
        """e^(mean of -log P) over the words and ends of sentences; infinite where one of them is
        impossible."""
        found = [
            self.probability(word, history)
            for sentence in sentences
            for word, history in self._events(sentence)
        ]
        if not all(found):
            return math.inf
        return math.exp(-sum(map(math.log, found)) / len(found))

    def sample(self, rng: np.random.Generator, limit: int = 50) -> list[str]:
        """A sentence word by word, until its end or `limit` words."""
        words, written = sorted(self.words), [BEGIN] * (self.n - 1)
        for _ in range(limit):
            share = np.array([self.probability(word, written) for word in words])
            written.append(words[rng.choice(len(words), p=share / share.sum())])
            if written[-1] == END:
                break
        return [word for word in written if word not in (BEGIN, END)]

    def _events(self, sentence: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
        """Each word, the end included, with the n - 1 words before it."""
        padded = [BEGIN] * (self.n - 1) + [*sentence, END]
        before = self.n - 1
        return [
            (padded[place], tuple(padded[place - before : place]))
            for place in range(before, len(padded))
        ]
