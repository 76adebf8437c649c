"""Byte-pair encoding: start from characters, and merge the most frequent pair of neighbours, again
and again.

    repeat: (a, b) ← argmax over pairs of neighbours of Σ_words count(word) · occurrences in word
            write every a b in every word as the one token ab

Frequent words end as one token, rare ones as several, and no word is unknown whose characters are
known. `byte_characters` maps the 256 bytes to 256 visible characters: BPE over these, byte-level
BPE, knows every text.

Source: Gage 1994; Sennrich, Haddow and Birch 2016, arXiv:1508.07909, algorithm 1 (`learn_merges`);
Radford et al. 2019, section 2.2 (bytes). `train_bpe` has the tie rule of the `tokenizers` library,
and the same vocabulary and merges.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

Pair = tuple[str, str]
END_OF_WORD = "</w>"


def count_pairs(words: Mapping[tuple[str, ...], int]) -> Counter[Pair]:
    """How often each pair of neighbouring symbols occurs in words with these counts."""
    pairs: Counter[Pair] = Counter()
    for symbols, count in words.items():
        for pair in pairwise(symbols):
            pairs[pair] += count
    return pairs


def merge_pair(symbols: Sequence[str], pair: Pair) -> tuple[str, ...]:
    """The symbols with each occurrence of the pair, from the left, merged into one."""
    merged: list[str] = []
    for symbol in symbols:
        if merged and (merged[-1], symbol) == pair:
            merged[-1] += symbol
        else:
            merged.append(symbol)
    return tuple(merged)


def learn_merges(words: Mapping[str, int], merges: int) -> list[Pair]:
    """The first merges of words with these counts, as in Sennrich's listing: each word ends with a
    symbol "</w>" of its own, and of pairs that are equally frequent the first one found is
    merged."""
    split = {(*word, END_OF_WORD): count for word, count in words.items()}
    learned: list[Pair] = []
    for _ in range(merges):
        pairs = count_pairs(split)
        if not pairs:
            break
        best = max(pairs, key=pairs.__getitem__)
        split = {merge_pair(symbols, best): count for symbols, count in split.items()}
        learned.append(best)
    return learned


class Merges(NamedTuple):
    """The result of BPE training."""

    vocabulary: dict[str, int]  # token → id
    merges: list[Pair]  # in the order in which they are applied


def train_bpe(
    words: Mapping[str, int],
    vocabulary_size: int,
    *,
    special_tokens: Sequence[str] = (),
    alphabet: Iterable[str] = (),
    end_of_word: str = "",
) -> Merges:
    """The vocabulary and merges of words with these counts.

    Ids are given in this order: special tokens, characters by code point, merged tokens. Of pairs
    that are equally frequent, the one with the lowest ids is merged. Only the counts of words that
    a merge changes are counted again, and a heap holds the pairs by count, so that a merge takes
    time in proportion to what it changes.

    Args:
        words: word → its count.
        vocabulary_size: V, reached unless no pairs are left. Special tokens and characters are
            part of it, whatever their number.
        special_tokens: have the first ids, and are never merged.
        alphabet: characters beside those of the words, such as all bytes.
        end_of_word: a text such as "</w>" that the last symbol of a word bears; "" for none.
    """
    characters = sorted(set(alphabet).union(*words))
    split = [[*word[:-1], word[-1] + end_of_word] for word in words if word]
    counts = [count for word, count in words.items() if word]
    ends = sorted({symbols[-1] for symbols in split})
    ids = {token: i for i, token in enumerate(dict.fromkeys([*special_tokens, *characters, *ends]))}
    pairs: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)  # pair → the words that may hold it
    for place, symbols in enumerate(split):
        for pair in pairwise(symbols):
            pairs[pair] += counts[place]
            places[pair].add(place)

    def entry(pair: Pair) -> tuple[int, int, int, Pair]:
        return -pairs[pair], ids[pair[0]], ids[pair[1]], pair

    heap, merges = [entry(pair) for pair in pairs], []
    heapq.heapify(heap)
    while len(ids) < vocabulary_size and heap:
        best = heapq.heappop(heap)
        pair = best[-1]
        if best != entry(pair) or not pairs[pair]:
            continue  # its count has changed since it was put here
        merges.append(pair)
        ids.setdefault(pair[0] + pair[1], len(ids))
        changed: dict[Pair, None] = {}
        for place in places.pop(pair):
            before, split[place] = split[place], list(merge_pair(split[place], pair))
            for old in pairwise(before):
                pairs[old] -= counts[place]
                changed[old] = None
            for new in pairwise(split[place]):
                pairs[new] += counts[place]
                places[new].add(place)
                changed[new] = None
        for other in changed:
            if pairs[other] > 0:
                heapq.heappush(heap, entry(other))
    return Merges(ids, merges)


def apply_merges(
    word: Sequence[str], merges: Sequence[Pair], *, end_of_word: str = ""
) -> tuple[str, ...]:
    """The tokens of one word, or of its symbols: among its pairs the one that was learned first is
    merged, until none is left."""
    rank = {pair: place for place, pair in enumerate(merges)}
    symbols = (*word[:-1], word[-1] + end_of_word) if word else ()
    while True:
        known = [pair for pair in pairwise(symbols) if pair in rank]
        if not known:
            return symbols
        symbols = merge_pair(symbols, min(known, key=rank.__getitem__))


def byte_characters() -> list[str]:
    """A visible character for each of the 256 bytes, as in GPT-2: the byte's own Latin-1 character
    if that is visible, and for the other 68 those from code point 256 on ("Ġ" is the space)."""
    visible = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), 256),
    }
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(hidden)) for byte in range(256)]


def to_byte_characters(text: str) -> str:
    """The UTF-8 bytes of a text, each as its visible character."""
    characters = byte_characters()
    return "".join(characters[byte] for byte in text.encode())
