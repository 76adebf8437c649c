"""Choosing the worked examples of a prompt: "371|904=" is answered by "<17><42>", the two of 64 candidates that help most.

A world with known scores. A query has three digits of text features and three of image features, and so has every candidate. A model that
is not written out answers the query; how likely it is right depends on the shots in front of the query:

    sim(x, y)  = 1 - mean |x_i - y_i| / 9                            over the six digits, in [0, 1]
    evidence   = Σ_k w_k (sim(query, shot_k) - 0.64) - 0.3 Σ_{j<k} (sim(shot_j, shot_k) - 0.64),   w = 0.6 for the last shot, 0.4 before
    P(right)   = σ(evidence),  ½ without shots
    score      = P(right) - ½

So a shot should be like the query, the last one most of all, and the shots should not say the same twice. 0.64 is about how alike two rows
of random digits are: random shots help nobody. The best of all 64 · 64 pairs is known for each query.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlbook.llm.tasks.task import SPLIT_SEED, Task, drawn

QUERIES, CANDIDATES, SHOTS = 1_024, 64, 2
FEATURES = 3                                 # digits of each of the two views
LAST, EARLIER, REDUNDANCY, ALIKE = 0.6, 0.4, 0.3, 0.64
WORDS = tuple(f"<{i:02d}>" for i in range(CANDIDATES))
_CHOICE = re.compile(r"<(\d\d)>")


class RetrievalTask(Task):
    """512 queries to learn from and 512 held out; the answer is the best pair of candidates, in its order."""

    name = "retrieval"
    characters = "0123456789|="
    words = WORDS

    def all_prompts(self) -> list[str]:
        return [f"{i:06d}"[:FEATURES] + "|" + f"{i:06d}"[FEATURES:] + "=" for i in drawn(10**6, QUERIES)]

    def answer(self, prompt: str) -> str:
        return best(prompt)

    def score(self, prompt: str, text: str) -> float:
        """By how much the shots raise the probability of a right answer; 0 where the text is not two candidates, as without shots."""
        shots = chosen(text)
        return 0.0 if shots is None else gain(prompt, shots)

    def optimum(self, prompt: str) -> float:
        """The score of the best pair."""
        return float(pair_scores(prompt).max())


def features(prompt: str) -> NDArray[np.float64]:
    """The six digits of a query [6]: the text's, then the image's."""
    return np.array([int(character) for character in prompt if character.isdigit()], dtype=np.float64)


@functools.cache
def candidates() -> NDArray[np.float64]:
    """The digits of the candidates [64, 6], the same everywhere."""
    return np.random.default_rng(SPLIT_SEED + 1).integers(10, size=(CANDIDATES, 2 * FEATURES)).astype(np.float64)


def similarity(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 - mean |x_i - y_i| / 9 over the last axis."""
    return 1.0 - np.abs(left - right).mean(-1) / 9.0


def views(prompt: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How alike a query and each candidate are [64]: in their texts, and in their images."""
    query, others = features(prompt), candidates()
    return similarity(others[:, :FEATURES], query[:FEATURES]), similarity(others[:, FEATURES:], query[FEATURES:])


@functools.cache
def alike() -> NDArray[np.float64]:
    """How alike the candidates are, above two rows of random digits [64, 64]."""
    others = candidates()
    return similarity(others[:, None], others[None]) - ALIKE


@functools.cache
def best(prompt: str) -> str:
    """The best of all pairs, as it is written."""
    return choice(divmod(int(pair_scores(prompt).argmax()), CANDIDATES))


def gain(prompt: str, shots: Sequence[int]) -> float:
    """P(right | shots) - ½."""
    query, others = features(prompt), candidates()[list(shots)]                       # [6], [K, 6]
    weight = np.full(len(shots), EARLIER)
    weight[-1:] = LAST
    helps = float((weight * (similarity(others, query) - ALIKE)).sum())
    twice = similarity(others[:, None], others[None]) - ALIKE                         # [K, K]
    return 1.0 / (1.0 + math.exp(REDUNDANCY * float(np.triu(twice, 1).sum()) - helps)) - 0.5


def pair_scores(prompt: str) -> NDArray[np.float64]:
    """The score of every pair, in this order: [64, 64]."""
    near = similarity(candidates(), features(prompt)) - ALIKE                         # [64]
    evidence = EARLIER * near[:, None] + LAST * near - REDUNDANCY * alike()
    return 1.0 / (1.0 + np.exp(-evidence)) - 0.5


def answered(prompt: str, shots: Sequence[int]) -> bool:
    """Whether the query is answered rightly with these shots: where P(right) is above a number in [0, 1] that each query has of its own."""
    seed = [SPLIT_SEED, *(int(digit) for digit in features(prompt))]
    return float(np.random.default_rng(seed).random()) < 0.5 + gain(prompt, shots)


def choice(shots: Sequence[int]) -> str:
    """Candidates as they are written."""
    return "".join(WORDS[shot] for shot in shots)


def chosen(text: str) -> tuple[int, int] | None:
    """The two candidates that a text names; None where it is anything else."""
    found = [int(number) for number in _CHOICE.findall(text)]
    return (found[0], found[1]) if len(found) == SHOTS and text == choice(found) else None
