"""One token per word: split a text into words, keep the most frequent ones, and encode the rest as
<unk>.

    vocabulary = special tokens, then the V most frequent words
    ids        = [vocabulary.get(word, unknown) for word in split(text)]

A text of 10 000 words has few tokens, and any word that the training texts lack is lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

PIECES = r"\w+|\s|[^\w\s]"
"""The pattern of words: letters and digits in a row; each space and each punctuation mark by
itself. Together the pieces are the whole text."""


def split_words(text: str) -> list[str]:
    """The words, spaces and punctuation marks of a text, in order."""
    return re.findall(PIECES, text)


def count_words(texts: Iterable[str]) -> Counter[str]:
    """How often each piece of `split_words` occurs in all texts."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(split_words(text))
    return counts


def train_words(
    words: Mapping[str, int],
    vocabulary_size: int | None = None,
    *,
    special_tokens: Sequence[str] = (),
) -> dict[str, int]:
    """Word → id of the most frequent words; of those equally frequent, the first by code points.

    Args:
        words: word → its count.
        vocabulary_size: V, special tokens included; None for all words.
        special_tokens: have the first ids.
    """
    by_count = sorted(words, key=lambda word: (-words[word], word))
    return {
        token: i
        for i, token in enumerate([*dict.fromkeys([*special_tokens, *by_count])][:vocabulary_size])
    }


def one_hot(ids: Sequence[int], vocabulary_size: int) -> list[list[int]]:
    """Each id as a row of V numbers, 1 at its own index and 0 elsewhere: [T] → [T, V]. Any two rows
    are equally far apart, so they do not express which words are similar."""
    return [[int(place == i) for place in range(vocabulary_size)] for i in ids]
