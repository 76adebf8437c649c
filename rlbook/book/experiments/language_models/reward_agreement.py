"""How well two rewards agree with the truth, on cases that ship with the book: a rubric, and
grounding in a passage.

    passages   five sentences of the village text, one of them asked with a gap: "pour the ___ into
               my cup". Four answers to each: the word, the word in a sentence, another word of its
               kind, and another word of the passage. The first two are right.
    rubric     open prompts of `rlbook recipe r1_scenarios` with an answer as one finds them. An
               answer is good where people, whose opinion is a formula, give it more than 1/2. The
               rubric sees the brackets and the letter that had better not be there, and knows no
               more of the word than that it has letters.

Source: agreement as Cohen's κ, as for judges in Zheng et al. 2023, arXiv:2306.05685, section 4, whose
measure is the share alone. Cases and rubric are ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbook.book.experiments.language_models import r1_scenarios
from rlbook.book.experiments.language_models.village_text import GROUPS, village
from rlbook.evaluation.classification import cohen_kappa
from rlbook.llm.rewards import Completion, grounding, rubric
from rlbook.seeding import rng_for

SENTENCES = 5  # of a passage
GAP = "___"
RUBRIC = {
    "brackets": {"matches": r"^\[[A-Z]*\]$"},
    "a word": {"matches": "[A-Z]"},
    "the letter": {"contains": r1_scenarios.RISKY.upper(), "weight": -1.0},
}
RESAMPLES = 2_000  # of the bootstrap


class Agreement(NamedTuple):
    """A reward's decisions on n answers to p prompts, and the truth."""

    label: NDArray[np.bool_]  # [p, n / p], whether the answer is right
    said: NDArray[np.bool_]  # [p, n / p], whether the reward is above 1/2
    kinds: tuple[str, ...]  # of the answers to a prompt


def passage_agreement(seed: int = 0) -> Agreement:
    """The decisions of `grounding` on four answers to each passage."""
    rng, found = rng_for(seed, "data"), list[list[float | None]]()
    for passage, question, word, kind in _passages():
        others = [one for one in kind if one != word]
        near = sorted({one for one in passage.split() if len(one) > 3} - {word})
        answers = (word, f"it is {word}", str(rng.choice(others)), str(rng.choice(near)))
        columns = {"passage": passage}
        found.append(
            [grounding(Completion(question, word, text, True, columns)) for text in answers]
        )
    said = np.array(found, dtype=np.float64) > 0.5
    kinds = ("the word", "in a sentence", "another of its kind", "another of the passage")
    return Agreement(np.broadcast_to([True, True, False, False], said.shape), said, kinds)


def _passages() -> list[tuple[str, str, str, tuple[str, ...]]]:
    """Passages with a question whose answer is one word: passage, question, word, and the words of
    its kind."""
    kinds = {word: group for group in GROUPS for word in group}
    text, found = village(), []
    for start in range(0, len(text), SENTENCES):
        part = text[start : start + SENTENCES]
        passage = " ".join(word for sentence in part for word in sentence)
        asked = [
            (" ".join(GAP if word in kinds else word for word in sentence), hidden[0])
            for sentence in part
            if len(hidden := [word for word in sentence if word in kinds]) == 1
        ]
        if asked and [question for question, _ in asked].count(asked[0][0]) == 1:
            question, word = asked[0]
            found.append((passage, question, word, kinds[word]))
    return found


def rubric_agreement(seed: int = 0) -> Agreement:
    """The decisions of `RUBRIC` on an answer to each open prompt."""
    rng, prompts = rng_for(seed, "data"), r1_scenarios.examples("train")
    answers = [
        Completion(str(one.prompt), one.answer, r1_scenarios.rough_answer(one, rng), True)
        for one in prompts
        if one.columns["task"] == "open"
    ]
    told = rubric(answers, criteria=RUBRIC)
    said = np.array([float(one["score"] or 0.0) > 0.5 for one in told])
    label = np.array([r1_scenarios.people_score(one) > 0.5 for one in answers])
    return Agreement(label[:, None], said[:, None], ("an answer",))


def agreement_measures(result: Agreement) -> dict[str, float]:
    """Accuracy and Cohen's κ, each with half of its 95 % interval, a percentile bootstrap over the
    prompts; and the share of each kind of answer that is called right."""
    label, said = result.label, result.said
    counts = np.array(
        [
            [(~label & ~said).sum(1), (~label & said).sum(1)],
            [(label & ~said).sum(1), (label & said).sum(1)],
        ]
    ).transpose(2, 0, 1)  # [p, 2, 2]
    rows = np.random.default_rng(0).integers(len(counts), size=(RESAMPLES, len(counts)))
    drawn = np.array([counts[row].sum(0) for row in rows])  # [RESAMPLES, 2, 2]
    numbers: dict[str, float] = {"answers": float(label.size)}
    for name, measure in (("accuracy", accuracy), ("kappa", cohen_kappa)):
        low, high = np.quantile(measure(drawn), [0.025, 0.975])
        numbers |= {name: float(measure(counts.sum(0))), f"{name}, ±": float(high - low) / 2}
    if len(result.kinds) > 1:
        shares = zip(result.kinds, said.mean(0), strict=True)
        numbers |= {f"called right: {kind}": float(share) for kind, share in shares}
    return numbers


def accuracy(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of cases in which both agree; counts as for `cohen_kappa`."""
    return np.trace(confusion, axis1=-2, axis2=-1) / confusion.sum(axis=(-2, -1))


def run() -> dict[str, Agreement]:
    """Evaluates both rewards."""
    return {"grounding": passage_agreement(), "rubric": rubric_agreement()}


def measurements(result: dict[str, Agreement]) -> dict[str, float]:
    """The numbers on the page."""
    return {
        f"{name}: {key}": value
        for name, each in result.items()
        for key, value in agreement_measures(each).items()
    }
