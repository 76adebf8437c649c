"""Word vectors of the village's text: how many analogies between people are solved, and a picture.

    found = run(5)
    found.vectors.analogy("man", "king", "woman")        [("queen", 0.97)]

The seven couples of the text make 7 · 6 · 2 = 84 analogies such as man : king = woman : queen.
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlbook.book.experiments.language_models.village_text import COUPLES, GROUPS, village
from rlbook.llm.tokenizers.word_vectors import MODELS, WordVectors, train_word_vectors


class VillageVectors(NamedTuple):
    """The learned vectors and their accuracy."""

    vectors: WordVectors  # of the first seed's skip-gram
    right: dict[str, NDArray[np.float64]]  # model → [seeds], the share of analogies that come out


def run(seeds: int = 5, *, first: int = 0) -> VillageVectors:
    """Trains both models with each seed."""
    text, made = village(), {}
    for model in MODELS:
        made[model] = [
            train_word_vectors(text, model, rng=np.random.default_rng(seed))
            for seed in range(first, first + seeds)
        ]
    right = {model: np.array([analogies_right(one) for one in made[model]]) for model in MODELS}
    return VillageVectors(made["skip-gram"][0], right)


def analogies_right(vectors: WordVectors) -> float:
    """The share of the 84 analogies whose nearest word is the right one."""
    found = [
        vectors.analogy(one[sex], one[1 - sex], other[sex])[0][0] == other[1 - sex]
        for one, other in permutations(COUPLES, 2)
        for sex in (0, 1)
    ]
    return float(np.mean(found))


def project_to_plane(vectors: WordVectors, words: list[str]) -> NDArray[np.float64]:
    """Some words' vectors projected on their two directions of largest variance: [len(words),
    2]."""
    rows = np.stack([vectors[word] for word in words])
    _, _, directions = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    return (rows - rows.mean(0)) @ directions[:2].T


def measurements(result: VillageVectors) -> dict[str, float]:
    """The share of solved analogies over the seeds, in per cent."""
    return {
        f"{model.replace('-', ' ')}: {name}": round(100 * float(value), 1)
        for model, share in result.right.items()
        for name, value in (("mean", share.mean()), ("lowest", share.min()))
    }


def draw(result: VillageVectors) -> Figure:
    """Left, words of every kind; right, the couples, with a line from husband to wife."""
    from rlbook.book.figures.axes import curve_colour
    from rlbook.plots.figure import new_figure

    figure = new_figure(8.4, 4.0)
    left, right = figure.subplots(1, 2)
    kinds = [list(group) for group in GROUPS]
    places = project_to_plane(result.vectors, [word for kind in kinds for word in kind])
    for number, kind in enumerate(kinds):
        own, places = places[: len(kind)], places[len(kind) :]
        left.scatter(*own.T, s=16, color=curve_colour(number))
        left.annotate(kind[0], own.mean(0), color=curve_colour(number), ha="center", va="bottom")
    left.set_title("words of one kind lie together", fontsize=9)
    couples = [word for couple in COUPLES for word in couple]
    places = project_to_plane(result.vectors, couples)
    for number, (he, she) in enumerate(zip(places[::2], places[1::2], strict=True)):
        right.plot(*np.stack([he, she]).T, marker="o", markersize=3, color=curve_colour(number))
        for word, place in zip(couples[2 * number : 2 * number + 2], (he, she), strict=True):
            right.annotate(word, place, fontsize=8, xytext=(3, 3), textcoords="offset points")
    right.set_title("from him to her is always the same way", fontsize=9)
    for axes in (left, right):
        axes.set(xticks=[], yticks=[])
        axes.margins(0.15)
    return figure
