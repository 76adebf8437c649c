"""Choosing in-context examples for a prompt: "3f|CR=" is answered by "<17><42>", the two of 64
candidates that help most.

A world with known scores. A query has two features of its text and two of its image, and so has
every candidate. Each has ten levels, and is written with ten characters of its own: 0 to 9, a to j,
A to J, K to T. A model that is not written out answers the query; how likely it is right depends on
the shots in front of the query:

    sim(x, y)  = 1 - mean |x_i - y_i| / 9                            over the four levels, in [0, 1]
    evidence   = Σ_k w_k (sim(query, shot_k) - 0.63) - 0.3 Σ_{j<k} (sim(shot_j, shot_k) - 0.63),   w = 0.6 for the last shot, 0.4 before
    P(right)   = σ(evidence),  ½ without shots
    score      = P(right) - ½

So a shot should be like the query, the last one most of all, and the shots should not say the same
twice. 0.63 is about how alike two rows of random levels are: random shots help nobody. The best of
all 64 · 64 pairs is known for each query.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlbook.llm.tasks.task import SPLIT_SEED, Task, draw_numbers

QUERIES, CANDIDATES, SHOTS = 1_024, 64, 2
LEVELS = ("0123456789", "abcdefghij", "ABCDEFGHIJ", "KLMNOPQRST")
"""The characters for the levels 0 to 9 of each feature: two features of the text, two of the
image."""
TEXT = 2
LAST, EARLIER, REDUNDANCY, ALIKE = 0.6, 0.4, 0.3, 0.63
WORDS = tuple(f"<{i:02d}>" for i in range(CANDIDATES))
_CHOICE = re.compile(r"<(\d\d)>")


class RetrievalTask(Task):
    """512 training and 512 held-out queries; the answer is the best ordered pair of candidates."""

    name = "retrieval"
    characters = "".join(LEVELS) + "|="
    words = WORDS

    def all_prompts(self) -> list[str]:
        return [
            write_query([i // 10**k % 10 for k in range(len(LEVELS))])
            for i in draw_numbers(10 ** len(LEVELS), QUERIES)
        ]

    def answer(self, prompt: str) -> str:
        scores = pair_scores(prompt)
        return choice(divmod(int(scores.argmax()), CANDIDATES))

    def score(self, prompt: str, text: str) -> float:
        return self.score_recorded(prompt, "", text)  # the best of all pairs takes long to find

    @staticmethod
    def score_recorded(prompt: str, answer: str, text: str) -> float:
        """How much the shots raise the probability of a correct answer; 0 for a text that is not
        two candidates, as without shots."""
        shots = parse_choice(text)
        return 0.0 if shots is None else gain(prompt, shots)

    def optimum(self, prompt: str) -> float:
        """The score of the best pair."""
        return float(pair_scores(prompt).max())


def write_query(levels: Sequence[int]) -> str:
    """The query with these levels."""
    text = "".join(characters[level] for characters, level in zip(LEVELS, levels, strict=True))
    return f"{text[:TEXT]}|{text[TEXT:]}="


def features(prompt: str) -> NDArray[np.float64]:
    """The levels of a query [4]: the text's, then the image's."""
    text = prompt.rstrip("=").replace("|", "")
    return np.array(
        [characters.index(character) for characters, character in zip(LEVELS, text, strict=True)],
        dtype=np.float64,
    )


@functools.cache
def candidates() -> NDArray[np.float64]:
    """The levels of the candidates [64, 4], the same in all environments."""
    return (
        np.random.default_rng(SPLIT_SEED + 1)
        .integers(10, size=(CANDIDATES, len(LEVELS)))
        .astype(np.float64)
    )


def similarity(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 - mean |x_i - y_i| / 9 over the last axis."""
    return 1.0 - np.abs(left - right).mean(-1) / 9.0


def views(prompt: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The similarity of a query to each candidate [64]: of the texts, and of the images."""
    query, others = features(prompt), candidates()
    return similarity(others[:, :TEXT], query[:TEXT]), similarity(others[:, TEXT:], query[TEXT:])


def gain(prompt: str, shots: Sequence[int]) -> float:
    """P(correct | shots) - ½."""
    query, others = features(prompt), candidates()[list(shots)]  # [6], [K, 6]
    weight = np.full(len(shots), EARLIER)
    weight[-1:] = LAST
    helps = float((weight * (similarity(others, query) - ALIKE)).sum())
    twice = similarity(others[:, None], others[None]) - ALIKE  # [K, K]
    return 1.0 / (1.0 + math.exp(REDUNDANCY * float(np.triu(twice, 1).sum()) - helps)) - 0.5


def pair_scores(prompt: str) -> NDArray[np.float64]:
    """The score of every ordered pair: [64, 64]."""
    near = similarity(candidates(), features(prompt)) - ALIKE  # [64]
    evidence = EARLIER * near[:, None] + LAST * near - REDUNDANCY * _excess_similarity()
    return 1.0 / (1.0 + np.exp(-evidence)) - 0.5


@functools.cache
def _excess_similarity() -> NDArray[np.float64]:
    """How much more similar each pair of candidates is than average: [64, 64]."""
    others = candidates()
    return similarity(others[:, None], others[None]) - ALIKE


def is_answered(prompt: str, shots: Sequence[int]) -> bool:
    """Whether the query is answered correctly with these shots: whether P(correct) exceeds the
    query's own threshold in [0, 1]."""
    seed = [SPLIT_SEED, *(int(level) for level in features(prompt))]
    return float(np.random.default_rng(seed).random()) < 0.5 + gain(prompt, shots)


def choice(shots: Sequence[int]) -> str:
    """Candidates in the format of an answer."""
    return "".join(WORDS[shot] for shot in shots)


def parse_choice(text: str) -> tuple[int, int] | None:
    """The two candidates that a text names; None if the text is invalid."""
    found = [int(number) for number in _CHOICE.findall(text)]
    return (found[0], found[1]) if len(found) == SHOTS and text == choice(found) else None
